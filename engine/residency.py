"""Which of this process's pages are in memory, from its own page map (Linux)."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable

import numpy as np

_ENTRY_BYTES = 8
_PRESENT = np.uint64(1 << 63)
_CHUNK_PAGES = 1 << 16


def resident_bytes(ranges: Iterable[tuple[int, int]]) -> int | None:
    """Bytes of the (address, length) ranges that are in this process's memory; None where the system does not tell.

    A page that two ranges share is counted once for each, at most one page a range too many.
    """
    total = 0
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            for address, length in ranges:
                total += _resident(pagemap.fileno(), address, length)
    except OSError:
        return None
    return total


def _resident(descriptor: int, address: int, length: int) -> int:
    if length <= 0:
        return 0
    page = mmap.PAGESIZE
    first, last = address // page, (address + length - 1) // page
    found = 0
    for start in range(first, last + 1, _CHUNK_PAGES):
        n = min(_CHUNK_PAGES, last + 1 - start)
        data = os.pread(descriptor, n * _ENTRY_BYTES, start * _ENTRY_BYTES)
        if len(data) != n * _ENTRY_BYTES:
            raise OSError("the page map ends early")
        found += int(np.count_nonzero(np.frombuffer(data, np.uint64) & _PRESENT))
    return min(found * page, length)
