"""A safetensors file as a memory map: the header is parsed and checked at once, tensors are views read on first touch.

The layout is Hugging Face's published one: 8 bytes of little-endian header length, a JSON object from tensor name to
dtype, shape and byte range, then the data.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.profiles.errors import CorruptFile

DTYPES = {"F16": np.float16, "F32": np.float32, "I8": np.int8, "U8": np.uint8}
_MAX_HEADER_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor's place: `begin` and `end` in bytes from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class MappedTensors:
    """One open file. Views keep the map alive; `close` only drops this object's own reference.

    Raises:
        CorruptFile: when the file is truncated, its header is damaged, or a tensor's range contradicts its shape.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = int.from_bytes(head, "little") if len(head) == 8 else -1
            if length < 0:
                raise CorruptFile(f"{path} is truncated", found=f"{self.size_bytes} bytes", needed="at least 8 bytes")
            if length > _MAX_HEADER_BYTES:
                raise CorruptFile(f"{path} is not a safetensors file", found=f"a header of {length} bytes")
            if 8 + length > self.size_bytes:
                raise CorruptFile(
                    f"{path} is truncated", found=f"{self.size_bytes} bytes", needed=f"{8 + length} bytes of header"
                )
            self.entries = self._parse(file.read(length), 8 + length)
            needed = max((entry.end for entry in self.entries.values()), default=8 + length)
            if needed > self.size_bytes:
                raise CorruptFile(
                    f"{path} is truncated",
                    found=f"{self.size_bytes} bytes",
                    needed=f"{needed} bytes",
                    hint="download or quantise the model again",
                )
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _parse(self, text: bytes, data_start: int) -> dict[str, Entry]:
        try:
            header = json.loads(text)
            header.pop("__metadata__", None)
            return {name: self._entry(name, facts, data_start) for name, facts in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(f"{self.path} has a damaged header", found=str(error)) from None

    def _entry(self, name: str, facts: dict[str, Any], data_start: int) -> Entry:
        dtype, shape = str(facts["dtype"]), tuple(int(n) for n in facts["shape"])
        begin, end = (int(offset) for offset in facts["data_offsets"])
        if dtype in DTYPES:
            needed = int(np.prod(shape, dtype=np.int64)) * np.dtype(DTYPES[dtype]).itemsize
            if begin < 0 or min(shape, default=0) < 0 or end - begin != needed:
                raise CorruptFile(
                    f"{self.path}: {name} has a wrong byte range",
                    found=f"{end - begin} bytes",
                    needed=f"{needed} bytes",
                )
        return Entry(dtype, shape, data_start + begin, data_start + end)

    def array(self, name: str) -> NDArray[Any]:
        """A read-only view into the map (a copy where the file leaves it misaligned)."""
        entry = self.entries[name]
        dtype = np.dtype(DTYPES[entry.dtype])
        count = (entry.end - entry.begin) // dtype.itemsize
        flat = np.frombuffer(self._map, dtype, count, entry.begin) if count else np.empty(0, dtype)
        view = flat.reshape(entry.shape)
        return view if view.flags.aligned else view.copy()
