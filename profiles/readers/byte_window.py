"""Bounded random reads over a local file or a remote range, with a small read-ahead window.

Parsers ask for exact spans; a span beyond the end is a `CorruptFile` that names both sizes, so a hostile length can
never cause an allocation larger than the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from twofold.profiles.errors import CorruptFile

ReadAt = Callable[[int, int], bytes]


class ByteWindow:
    """A forward cursor over `size` bytes that come from `read_at(offset, n)`, `chunk` bytes at a time."""

    def __init__(self, read_at: ReadAt, size: int, name: str, *, chunk: int = 1 << 20) -> None:
        self._read_at = read_at
        self.size = size
        self.name = name
        self.offset = 0
        self._chunk = chunk
        self._start = 0
        self._buffer = b""

    def take(self, n: int) -> bytes:
        """The next `n` bytes.

        Raises:
            CorruptFile: when fewer are left.
        """
        end = self.offset + n
        if n < 0 or end > self.size:
            raise CorruptFile(
                f"{self.name} ends early: it is truncated, or damaged at byte {self.offset}",
                found=f"{self.size} bytes",
                needed=f"at least {end} bytes",
                hint="get the file again",
            )
        low = self.offset - self._start
        if low < 0 or low + n > len(self._buffer):
            span = min(max(n, self._chunk), self.size - self.offset)
            self._buffer = self._read_at(self.offset, span)
            self._start, low = self.offset, 0
            if len(self._buffer) < n:
                raise CorruptFile(
                    f"{self.name} could not be read at byte {self.offset}",
                    found=f"{len(self._buffer)} bytes",
                    needed=f"{n} bytes",
                    hint="get the file again",
                )
        self.offset = end
        return self._buffer[low : low + n]

    def skip(self, n: int) -> None:
        """Move on by `n` bytes without reading them.

        Raises:
            CorruptFile: when fewer are left.
        """
        if n < 0 or self.offset + n > self.size:
            self.take(n)
        self.offset += n


class LocalFile:
    """A file opened for reads at an offset, as a context manager."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        self.size = os.fstat(self._file.fileno()).st_size
        self.name = path.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read_at(self, offset: int, n: int) -> bytes:
        return os.pread(self._file.fileno(), n, offset)

    def window(self, *, chunk: int = 1 << 20) -> ByteWindow:
        return ByteWindow(self.read_at, self.size, self.name, chunk=chunk)
