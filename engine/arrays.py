"""Where the engine's arrays come from: memory, or nowhere when only their sizes are asked for."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


class Arrays(Protocol):
    """Makes arrays; the constructors of what the engine keeps take all of theirs from one."""

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array of zeros."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array of anything."""
        ...


class _InMemory:
    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return np.zeros(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return np.empty(shape, dtype)


class _SizesOnly:
    """Arrays of the right shape, type and `nbytes` that are one element, repeated: read-only, and they take nothing."""

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return np.broadcast_to(np.zeros((), dtype), shape)

    empty = zeros


IN_MEMORY: Arrays = _InMemory()
SIZES_ONLY: Arrays = _SizesOnly()
