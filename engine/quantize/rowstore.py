"""Matrices of one row per calibration token, in RAM while small, in files of the work folder otherwise.

Files are read and written with explicit calls, not mapped, so that what is on disk never counts as this process's
memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class RowFile:
    """fp32 [rows, width] in a file that is reserved on disk in full when created."""

    def __init__(self, path: Path, n_rows: int, width: int, *, create: bool = False) -> None:
        self.path, self.n_rows, self.width = path, n_rows, width
        self._fd = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create else 0), 0o644)
        if create:
            try:
                # A full disk shows here, not in the middle of a layer.
                os.posix_fallocate(self._fd, 0, max(1, n_rows * width * 4))
            except BaseException:
                self.drop()
                raise

    def write(self, start: int, rows: Tensor) -> None:
        data = rows.detach().to("cpu", torch.float32).contiguous().numpy().data.cast("B")
        offset = start * self.width * 4
        while data:
            written = os.pwrite(self._fd, data, offset)
            data, offset = data[written:], offset + written

    def read(self, start: int, stop: int) -> Tensor:
        out = np.empty((stop - start, self.width), np.float32)
        view, offset = out.data.cast("B"), start * self.width * 4
        while view:
            got = os.preadv(self._fd, [view], offset)
            if got == 0:
                raise EOFError(f"{self.path} is shorter than {self.n_rows} rows of {self.width}")
            view, offset = view[got:], offset + got
        return torch.from_numpy(out)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def drop(self) -> None:
        """Close and delete."""
        self.close()
        self.path.unlink(missing_ok=True)


class RowStore:
    """Named matrices of `n_rows` rows: in RAM up to `ram_bytes` in all, in files of `folder` beyond."""

    def __init__(self, folder: Path, n_rows: int, ram_bytes: int) -> None:
        self._folder, self.n_rows, self._ram_left = folder, n_rows, ram_bytes
        self._items: dict[str, Tensor | RowFile] = {}

    def write(self, name: str, start: int, rows: Tensor) -> None:
        """Rows [n, width] of the matrix `name`, which the first write creates."""
        item = self._items.get(name)
        if item is None:
            item = self._items[name] = self._create(name, rows.shape[1])
        if isinstance(item, RowFile):
            item.write(start, rows)
        else:
            item[start : start + rows.shape[0]] = rows.to(item.device)

    def _create(self, name: str, width: int) -> Tensor | RowFile:
        n_bytes = self.n_rows * width * 4
        if n_bytes <= self._ram_left:
            self._ram_left -= n_bytes
            return torch.empty(self.n_rows, width)
        return RowFile(self._folder / f"{name}.f32", self.n_rows, width, create=True)

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Rows start … stop − 1; not to be written to."""
        item = self._items[name]
        return item.read(start, stop) if isinstance(item, RowFile) else item[start:stop]

    def drop(self, name: str) -> None:
        item = self._items.pop(name)
        if isinstance(item, RowFile):
            item.drop()
        else:
            self._ram_left += item.nbytes

    def clear(self) -> None:
        for name in list(self._items):
            self.drop(name)
