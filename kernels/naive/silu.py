"""SiLU times a factor: the gated activation of an MLP."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, check, result
from twofold.kernels.naive.exponential import exp


def silu(x: F32) -> F32:
    """x * sigmoid(x), written so that exp only ever sees arguments up to zero."""
    with np.errstate(all="ignore"):
        e = exp(-np.abs(x))
        one = np.float32(1)
        return np.where(x >= 0, x / (one + e), (x * e) / (one + e))


def silu_mul(gate: F32, up: F32, *, out: F32 | None = None) -> F32:
    """silu(gate) * up, fp32 of any one shape."""
    check(gate, np.float32, gate.shape, "gate")
    check(up, np.float32, gate.shape, "up")
    with np.errstate(all="ignore"):
        return result(silu(gate) * up, out)
