"""A safetensors file as a memory map: the header is checked at once, tensors are views that are read on first touch.

A mapped file that becomes shorter, or whose disk fails, would end the process with SIGBUS. The native module's guard
turns what cannot be read into zeros and remembers it, so that whoever computed from the map can say what happened
(`Checkpoint.check_intact`); without the native module only the size is watched.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twofold.kernels.cpu import missing_reason, native
from twofold.profiles.errors import CorruptFile
from twofold.profiles.readers.safetensors_header import read_safetensors_header

DTYPES = {"F16": np.float16, "F32": np.float32, "I8": np.int8, "U8": np.uint8}


class Guard(Protocol):
    """What watches a map."""

    def intact(self) -> bool:
        """Whether all that was read so far was in the file."""
        ...

    def unchanged(self) -> bool:
        """Whether the file has the size and the time of its last change that it had when it was mapped."""
        ...


class _SizeGuard:
    def __init__(self, size: int, descriptor: int) -> None:
        self._size, self._descriptor = size, os.dup(descriptor)
        self._changed_ns = os.fstat(descriptor).st_mtime_ns

    def intact(self) -> bool:
        return os.fstat(self._descriptor).st_size >= self._size

    def unchanged(self) -> bool:
        now = os.fstat(self._descriptor)
        return now.st_size >= self._size and now.st_mtime_ns == self._changed_ns

    def __del__(self) -> None:
        os.close(self._descriptor)


class GuardedMap(mmap.mmap):
    """A read-only map with its guard, which goes before the memory does."""

    guard: Guard


def map_file(path: Path) -> GuardedMap:
    """The whole file, mapped and guarded."""
    with path.open("rb") as file:
        mapped = GuardedMap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _ask_for_huge_pages(mapped)
        if missing_reason() is None and hasattr(native(), "MapGuard"):
            mapped.guard = native().MapGuard(mapped, file.fileno())
        else:
            mapped.guard = _SizeGuard(len(mapped), file.fileno())
    return mapped


def _ask_for_huge_pages(mapped: mmap.mmap) -> None:
    """Let what is read from here on lie in huge pages where the system has them for files (Linux with large folios).

    The weights are read from end to end for every token: with pages of 4 KiB, looking addresses up takes as long as
    reading. The pages are the page cache's own, so that other processes share them and memory can be had back.
    """
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            mapped.madvise(mmap.MADV_HUGEPAGE)


def changed(path: Path, size_bytes: int, hint: str) -> CorruptFile:
    """What to raise where a guard is not intact or not unchanged; `size_bytes` is of when the file was mapped."""
    size = path.stat().st_size if path.exists() else None
    is_written_over = size == size_bytes
    return CorruptFile(
        f"{path} changed while it was in use: "
        + ("it was written over" if is_written_over else "a part of the weights could not be read"),
        found="no such file any more" if size is None else f"{size} bytes" + ", others" * is_written_over,
        needed=f"{size_bytes} bytes, as when it was opened",
        hint=hint,
    )


def all_intact(guards: list[Guard]) -> bool:
    """Whether every guard is; one native call where all are native."""
    if missing_reason() is None and hasattr(native(), "MapGuard"):
        return bool(native().all_intact(guards))
    return all(guard.intact() for guard in guards)


class MappedTensors:
    """One open file. Views keep the map alive.

    Raises:
        CorruptFile: when the file is truncated, its header is damaged, or a tensor's range contradicts its shape.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = read_safetensors_header(path)
        self._map = map_file(path)

    @property
    def guard(self) -> Guard:
        return self._map.guard

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole file."""
        return len(self._map)

    @property
    def range(self) -> tuple[int, int]:
        """Where the map lies, and its bytes."""
        return int(np.frombuffer(self._map, np.uint8).ctypes.data), len(self._map)

    def array(self, name: str) -> NDArray[Any]:
        """A read-only view into the map (a copy where the file leaves it misaligned)."""
        entry = self.entries[name]
        dtype = np.dtype(DTYPES[entry.dtype])
        flat = np.frombuffer(self._map, dtype, entry.n_values, entry.start) if entry.n_values else np.empty(0, dtype)
        view = flat.reshape(entry.shape)
        return view if view.flags.aligned else view.copy()
