"""Rotary position tables of a `RopeSpec`: one definition (the kernels') for the float reference and the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.arrays import IN_MEMORY, Arrays
from twofold.kernels.naive.rope import rope_tables
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import RopeSpec

F32 = NDArray[np.float32]
_BLOCK = 256


def tables(rope: RopeSpec, positions: NDArray[np.integer[Any]]) -> tuple[F32, F32]:
    """cos and sin of every position's angles: fp32 [n_positions, rotary_dim / 2] each.

    Raises:
        UnsupportedModel: for a scaling that is not default, linear or llama3, or whose parameters are missing.
    """
    try:
        return rope_tables(np.asarray(positions, np.int64), rope.rotary_dim, rope.theta, rope.scaling)
    except KeyError as error:
        raise UnsupportedModel(f"the RoPE scaling lacks {error.args[0]!r}", found=repr(rope.scaling)) from None
    except ValueError as error:
        raise UnsupportedModel(str(error), needed="default, linear or llama3 scaling") from None


class RopeTable:
    """Tables of positions 0..capacity−1, `cos` and `sin` [positions, rotary_dim / 2], filled in blocks when needed.

    A vectorised cosine may differ in the last bit with its neighbours in the vector; fixed blocks make a position's row
    the same in whatever pass it is read.
    """

    def __init__(self, rope: RopeSpec, capacity: int, arrays: Arrays = IN_MEMORY) -> None:
        blocks = -(-capacity // _BLOCK)
        self._rope = rope
        self.cos: F32 = arrays.empty((blocks * _BLOCK, rope.rotary_dim // 2), np.float32)
        self.sin: F32 = arrays.empty(self.cos.shape, np.float32)
        self.filled = np.zeros(1, np.int64)
        """How many positions are valid: [1], so that a tape reads what is true when it runs."""

    @property
    def nbytes(self) -> int:
        return self.cos.nbytes + self.sin.nbytes

    def fill(self, n_positions: int) -> None:
        """Make the first `n_positions` valid."""
        while (filled := int(self.filled[0])) < n_positions:
            block = slice(filled, filled + _BLOCK)
            self.cos[block], self.sin[block] = tables(self._rope, np.arange(block.start, block.stop))
            self.filled[0] = block.stop

    def read(self, positions: NDArray[np.int64], cos: F32, sin: F32) -> None:
        """Copy the rows of `positions` [n] into `cos` and `sin` [n, rotary_dim / 2]."""
        self.fill(int(positions.max()) + 1)
        np.take(self.cos, positions, axis=0, out=cos)
        np.take(self.sin, positions, axis=0, out=sin)
