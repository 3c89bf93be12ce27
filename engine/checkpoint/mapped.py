"""A safetensors file as a memory map: the header is checked at once, tensors are views that are read on first touch."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.profiles.readers.safetensors_header import read_safetensors_header

DTYPES = {"F16": np.float16, "F32": np.float32, "I8": np.int8, "U8": np.uint8}


class MappedTensors:
    """One open file. Views keep the map alive.

    Raises:
        CorruptFile: when the file is truncated, its header is damaged, or a tensor's range contradicts its shape.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = read_safetensors_header(path)
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole file."""
        return len(self._map)

    def array(self, name: str) -> NDArray[Any]:
        """A read-only view into the map (a copy where the file leaves it misaligned)."""
        entry = self.entries[name]
        dtype = np.dtype(DTYPES[entry.dtype])
        flat = np.frombuffer(self._map, dtype, entry.n_values, entry.start) if entry.n_values else np.empty(0, dtype)
        view = flat.reshape(entry.shape)
        return view if view.flags.aligned else view.copy()
