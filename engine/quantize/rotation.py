"""The randomised rotation R = mix ∘ hadamard ∘ signs of `docs/checkpoint.md`, on torch tensors of any device.

For D = m·2^k with m odd, index = block·w + i and w = 2^k: the Walsh–Hadamard transform (Sylvester order, divided by √w)
acts inside each block, then an orthogonal m × m matrix mixes the blocks at equal i. R is orthogonal: its inverse is
its transpose. Weights W of y = W x are stored as W~ = R_o·W·R_iᵀ, Hessians of inputs become R_i·H·R_iᵀ.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.kernels.naive.rotation import block_width, needs_mix

_KRONECKER_WIDTH = 64


def blocks_of(dimension: int) -> tuple[int, int]:
    """(m, w) with dimension = m·w, m odd and w a power of two.

    Raises:
        ValueError: for a dimension below 1.
    """
    w = block_width(dimension)
    return dimension // w, w


def _bits(seed: int, name: str) -> np.random.PCG64:
    words = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u4")
    return np.random.PCG64([seed, *(int(word) for word in words)])


def make_signs(seed: int, name: str, dimension: int) -> NDArray[np.int8]:
    """±1 of shape [dimension], the same for the same seed and name on every machine and numpy version."""
    raw = np.asarray(_bits(seed, name).random_raw(dimension))
    return np.where(raw >> np.uint64(63), -1, 1).astype(np.int8)


def make_mix(dimension: int) -> NDArray[np.float32] | None:
    """The orthogonal mixer [m, m] of a dimension, or None where there is none.

    The Hartley matrix, cas(2πjk/m)/√m: symmetric, orthogonal for every m, and its entries are at most √2/√m, so every
    block reaches every other about evenly (a random orthogonal matrix leaves some blocks nearly where they were).
    """
    if not needs_mix(dimension):
        return None
    m, _ = blocks_of(dimension)
    angle = 2 * math.pi / m * (np.outer(np.arange(m), np.arange(m)) % m)
    return ((np.cos(angle) + np.sin(angle)) / math.sqrt(m)).astype(np.float32)


@functools.lru_cache(maxsize=16)
def _hadamard(width: int, device: str) -> Tensor:
    h = torch.ones(1, 1)
    while h.shape[0] < width:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)), 0)
    return h.to(device)


def hadamard(x: Tensor, width: int) -> Tensor:
    """Walsh–Hadamard transform, not normalised, of each run of `width` entries along the last axis."""
    shape = x.shape
    x = x.reshape(-1, width)
    inner = min(width, _KRONECKER_WIDTH)
    outer = width // inner
    if outer > 1:
        # H_width = H_outer ⊗ H_inner acts on [outer, inner] as H_outer · X · H_inner.
        x = hadamard(x.reshape(-1, outer, inner).transpose(1, 2).contiguous(), outer).transpose(1, 2)
    return (x.reshape(-1, inner) @ _hadamard(inner, str(x.device))).reshape(shape)


@dataclass(frozen=True, slots=True)
class Rotation:
    """One R: signs [D] (fp32 ±1) and the mixer [m, m] (fp32) or None."""

    signs: Tensor
    mix: Tensor | None

    @property
    def dimension(self) -> int:
        return self.signs.shape[0]

    def _mixed(self, x: Tensor, mix: Tensor) -> Tensor:
        m, w = blocks_of(self.dimension)
        return torch.matmul(mix, x.reshape(-1, m, w)).reshape(x.shape)

    def apply(self, x: Tensor) -> Tensor:
        """R x for every vector along the last axis."""
        _, w = blocks_of(self.dimension)
        x = hadamard(x * self.signs, w).mul_(1 / math.sqrt(w))
        return x if self.mix is None else self._mixed(x, self.mix)

    def undo(self, y: Tensor) -> Tensor:
        """Rᵀ y for every vector along the last axis."""
        _, w = blocks_of(self.dimension)
        if self.mix is not None:
            y = self._mixed(y, self.mix.T)
        return hadamard(y, w).mul_(1 / math.sqrt(w)).mul_(self.signs)


def rotation(signs: NDArray[np.int8], mix: NDArray[np.float32] | None, device: torch.device | str = "cpu") -> Rotation:
    """A Rotation on a device from stored arrays."""
    on_device = torch.from_numpy(signs.astype(np.float32)).to(device)
    # torch warns about arrays that are views of a read-only map, so the mixer is copied.
    return Rotation(on_device, None if mix is None else torch.from_numpy(mix.copy()).to(device))
