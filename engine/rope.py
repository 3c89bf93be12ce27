"""Rotary position tables of a `RopeSpec`: one definition (the kernels') for the float reference and the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """Tables of positions 0..capacity−1, filled in fixed blocks when first asked for.

    A vectorised cosine may differ in the last bit with its neighbours in the vector; fixed blocks make a position's row
    the same in whatever pass it is read.
    """

    def __init__(self, rope: RopeSpec, capacity: int) -> None:
        blocks = -(-capacity // _BLOCK)
        self._rope, self._filled = rope, 0
        self._cos = np.empty((blocks * _BLOCK, rope.rotary_dim // 2), np.float32)
        self._sin = np.empty_like(self._cos)

    @property
    def nbytes(self) -> int:
        return self._cos.nbytes + self._sin.nbytes

    def read(self, positions: NDArray[np.int64], cos: F32, sin: F32) -> None:
        """Copy the rows of `positions` [n] into `cos` and `sin` [n, rotary_dim / 2]."""
        highest = int(positions.max())
        while self._filled <= highest:
            block = slice(self._filled, self._filled + _BLOCK)
            self._cos[block], self._sin[block] = tables(self._rope, np.arange(block.start, block.stop))
            self._filled = block.stop
        np.take(self._cos, positions, axis=0, out=cos)
        np.take(self._sin, positions, axis=0, out=sin)
