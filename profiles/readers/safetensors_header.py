"""A strict reader of safetensors headers: names, dtypes, shapes and spans, checked against the file's size."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.profiles.errors import CorruptFile
from twofold.profiles.readers.byte_window import ByteWindow, LocalFile

MAX_HEADER_BYTES = 100 << 20
MAX_DIMS = 8
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor: its dtype's name, shape, and the span `start..end` in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def n_values(self) -> int:
        return math.prod(self.shape)


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a local file.

    Raises:
        CorruptFile: truncated, overlapping or out-of-range spans, or sizes that contradict the shapes.
    """
    with LocalFile(path) as file:
        return parse_safetensors_header(file.window())


def parse_safetensors_header(window: ByteWindow) -> dict[str, StoredTensor]:
    """Like `read_safetensors_header`, over any window of the whole file."""
    (length,) = struct.unpack("<Q", window.take(8))
    if length > MAX_HEADER_BYTES:
        raise CorruptFile(f"{window.name} is not a safetensors file", found=f"a header of {length} bytes")
    try:
        header = json.loads(window.take(length))
    except (ValueError, RecursionError) as error:
        raise _damaged(window, f"its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise _damaged(window, "its header is not an object")
    data_start = 8 + length
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    tensors = {name: _tensor(window, name, entry, data_start) for name, entry in entries.items()}
    _refuse_overlaps(window, tensors)
    end = max((tensor.end for tensor in tensors.values()), default=data_start)
    if end > window.size:
        raise CorruptFile(
            f"{window.name} is truncated: its tensors end beyond the file",
            found=f"{window.size} bytes",
            needed=f"{end} bytes",
            hint="get the file again",
        )
    return tensors


def _damaged(window: ByteWindow, why: str) -> CorruptFile:
    return CorruptFile(f"{window.name} is damaged: {why}", hint="get the file again")


def _tensor(window: ByteWindow, name: str, entry: Any, data_start: int) -> StoredTensor:
    try:
        dtype, shape, (low, high) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise _damaged(window, f"the entry of {name!r} is incomplete") from error
    if dtype not in DTYPE_BITS:
        raise _damaged(window, f"{name!r} has the unknown type {str(dtype)[:20]!r}")
    numbers = [low, high, *shape] if isinstance(shape, list) and len(shape) <= MAX_DIMS else [None]
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise _damaged(window, f"the shape or span of {name!r} is not made of whole numbers")
    if math.prod(shape) * DTYPE_BITS[dtype] != (high - low) * 8:
        raise _damaged(window, f"{name!r} of shape {shape} and type {dtype} has a span of {high - low} bytes")
    return StoredTensor(name, dtype, tuple(shape), data_start + low, data_start + high)


def _refuse_overlaps(window: ByteWindow, tensors: dict[str, StoredTensor]) -> None:
    end, previous = 0, ""
    for tensor in sorted(tensors.values(), key=lambda item: (item.start, item.end)):
        if tensor.start < end:
            raise _damaged(window, f"{previous!r} and {tensor.name!r} overlap")
        end, previous = tensor.end, tensor.name
