"""A source's weight file as mapped bytes, guarded as a checkpoint's are: one that is cut while it is read is an error.

Reading behind the end of a mapped file would end the process with SIGBUS; the native module's guard gives zeros and
remembers it (without the native module only the size is watched).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.engine.checkpoint.mapped import GuardedMap, changed, map_file

HINT = "get the model again"


class MappedBytes:
    """One open file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map: GuardedMap | None = map_file(path)
        self._size = len(self._map)

    def part(self, start: int, end: int) -> NDArray[np.uint8]:
        """Bytes `start` … `end` − 1, a view; what is computed from it counts only once `check_intact` has passed.

        Raises:
            CorruptFile: the file ended before `end` when it was opened.
        """
        if self._map is None:
            raise ValueError(f"{self.path.name} is closed")
        if end > self._size:
            raise changed(self.path, end, HINT)
        return np.frombuffer(self._map, np.uint8, end - start, start)

    def check_intact(self) -> None:
        """Call behind every use of a part, when the values are copied.

        Raises:
            CorruptFile: the file became shorter, or a part of it could not be read.
        """
        if self._map is not None and not self._map.guard.intact():
            raise changed(self.path, self._size, HINT)

    def close(self) -> None:
        """Let go of the map; views keep it alive."""
        self._map = None
