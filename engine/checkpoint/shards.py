"""Safetensors files written tensor by tensor, or slice by slice, in any order, and published only when complete.

A vocabulary's rows are never held whole: embedding and LM head arrive as slices of their first axis. The bytes are
those that `safetensors` itself would write for the whole tensors.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from twofold.engine.checkpoint.layout import TensorLayout
from twofold.engine.checkpoint.mapped import DTYPES
from twofold.profiles.files import written_aside

_ORDER = ("F32", "F16", "I8", "U8")
"""Tensors of the widest type come first, so that all are aligned; equal types go by name."""


class _Shard:
    """One open file: where each tensor goes, and how many of its rows have come."""

    def __init__(self, file: BinaryIO, layouts: Mapping[str, TensorLayout]) -> None:
        self._file, self._layouts = file, layouts
        self._rows = dict.fromkeys(layouts, 0)
        header: dict[str, Any] = {"__metadata__": {"format": "twofold"}}
        end = 0
        for name in sorted(layouts, key=lambda name: (_ORDER.index(layouts[name].dtype), name)):
            layout = layouts[name]
            begin, end = end, end + math.prod(layout.shape) * np.dtype(DTYPES[layout.dtype]).itemsize
            header[name] = {"dtype": layout.dtype, "shape": list(layout.shape), "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        file.write(struct.pack("<Q", len(text)) + text)
        self._starts = {name: 8 + len(text) + header[name]["data_offsets"][0] for name in layouts}

    def write(self, name: str, array: NDArray[Any], first: int) -> None:
        layout = self._layouts[name]
        if array.dtype != DTYPES[layout.dtype] or array.shape[1:] != layout.shape[1:]:
            raise ValueError(f"{name}: {array.dtype} {array.shape} into {layout.dtype} {layout.shape}")
        if first + array.shape[0] > layout.shape[0]:
            raise ValueError(f"{name}: rows {first} to {first + array.shape[0]} of {layout.shape[0]}")
        row_bytes = math.prod(layout.shape[1:]) * array.dtype.itemsize
        self._file.seek(self._starts[name] + first * row_bytes)
        if array.size:
            self._file.write(np.ascontiguousarray(array).data.cast("B"))
        self._rows[name] += array.shape[0]

    def check_complete(self) -> None:
        short = [name for name, rows in self._rows.items() if rows != self._layouts[name].shape[0]]
        if short:
            raise ValueError(f"{short[0]}: {self._rows[short[0]]} of {self._layouts[short[0]].shape[0]} rows written")


class ShardSet:
    """The files of a set of tensors, open together. Leaving the block well publishes them in order of their names (a
    residual after its base); an exception leaves nothing.

    Raises:
        ValueError: from `write` for an array of another type or shape, at the end when rows are missing.
    """

    def __init__(self, folder: Path, layouts: Mapping[str, TensorLayout]) -> None:
        self._folder, self._layouts = folder, layouts
        self._stack = contextlib.ExitStack()
        self._shards: dict[str, _Shard] = {}

    def __enter__(self) -> Self:
        with self._stack as opening:
            # The stack is left in the opposite order.
            for name in sorted({layout.file for layout in self._layouts.values()}, reverse=True):
                file = opening.enter_context(written_aside(self._folder / name))
                own = {tensor: layout for tensor, layout in self._layouts.items() if layout.file == name}
                self._shards[name] = _Shard(file, own)
            self._stack = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            for shard in self._shards.values():
                shard.check_complete()

    def write(self, name: str, array: NDArray[Any], first: int = 0) -> None:
        """Rows `first` … of the tensor's first axis."""
        self._shards[self._layouts[name].file].write(name, array, first)


def layouts_of(file: str, tensors: Mapping[str, NDArray[Any]]) -> dict[str, TensorLayout]:
    """The layouts of whole tensors that go into one file.

    Raises:
        ValueError: for a type that the format does not have.
    """
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    for name, array in tensors.items():
        if array.dtype not in names:
            raise ValueError(f"{name} is {array.dtype}, a checkpoint holds {', '.join(DTYPES)}")
    return {name: TensorLayout(names[array.dtype], array.shape, file) for name, array in tensors.items()}
