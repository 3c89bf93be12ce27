"""Hessians of a Linear's inputs, Σ x·xᵀ / n, accumulated in bounded memory and factored in place.

The matrix is kept with both axes reversed, upper triangle only: that half of the products is enough for a Cholesky
factorisation, and the factor of the reversed matrix is the upper · upperᵀ factor that error feedback in natural order
needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DAMPING = 0.01
_BAND = 256


@dataclass(frozen=True, slots=True)
class Feedback:
    """F of H = (I + F)·D·(I + F)ᵀ, strictly upper triangular [K, K], stored reversed."""

    reversed_factor: Tensor

    def block(self, rows: slice, columns: slice) -> Tensor:
        """F[rows, columns] as a new contiguous tensor; meaningful above the diagonal only."""
        n = self.reversed_factor.shape[0]
        part = self.reversed_factor[n - rows.stop : n - rows.start, n - columns.stop : n - columns.start]
        return part.flip(0, 1)


class Hessian:
    """The second moment of inputs [rows, dimension]."""

    def __init__(self, dimension: int, device: torch.device | str = "cpu") -> None:
        self.n_rows: float = 0
        self._sum: Tensor | None = torch.zeros(dimension, dimension, device=device)

    def add(self, x: Tensor) -> None:
        """Count in rows of inputs [rows, dimension], fp32."""
        assert self._sum is not None, "already factored"
        x = x.flip(1)
        n = x.shape[1]
        for start in range(0, n, _BAND):
            stop = min(start + _BAND, n)
            self._sum[start:stop, start:].addmm_(x[:, start:stop].T, x[:, start:])
        self.n_rows += x.shape[0]

    def factor(self, damping: float = DAMPING) -> Feedback:
        """The damped matrix's feedback; the sum is used up.

        Inputs that never were active (diagonal ≤ 0) get a diagonal of one and no feedback: they are rounded to
        nearest. (Zeroing their weights, as GPTQ does, is pointless for levels that have no zero, and would lose them
        for other text.)

        Raises:
            ValueError: when nothing was added, or the matrix is not finite or not positive definite even after damping.
        """
        assert self._sum is not None, "already factored"
        h, self._sum = self._sum, None
        if self.n_rows == 0:
            raise ValueError("a Hessian of no inputs")
        h /= self.n_rows
        diagonal = h.diagonal()
        if not bool(torch.isfinite(diagonal).all()):
            raise ValueError("the inputs are not finite")
        dead = diagonal <= 0
        if bool(dead.any()):
            h[dead] = 0
            h[:, dead] = 0
            diagonal[dead] = 1
        diagonal += damping * diagonal.mean()
        # In place: the transposed view has the column order that LAPACK wants, and its lower triangle is our upper one.
        lower = h.mT
        info = torch.empty((), dtype=torch.int32, device=h.device)
        torch.linalg.cholesky_ex(lower, out=(lower, info))
        if int(info) != 0:
            raise ValueError("the Hessian is not positive definite")
        lower /= lower.diagonal().clone()
        return Feedback(lower)


def mix(a: Hessian, b: Hessian, share: float) -> None:
    """a ← a + share·b and b ← b + share·a, both of what they were before; in place, tokens counted alike."""
    assert a._sum is not None and b._sum is not None, "already factored"
    a._sum.add_(b._sum, alpha=share)
    # What b gets is a's old sum: the new one less share·b.
    b._sum.mul_(1 - share * share).add_(a._sum, alpha=share)
    a.n_rows, b.n_rows = a.n_rows + share * b.n_rows, b.n_rows + share * a.n_rows
