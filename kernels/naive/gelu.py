"""GELU (tanh form) times a factor: the gated activation of Gemma's MLP."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, check, result
from twofold.kernels.naive.exponential import exp

# 2·sqrt(2/pi), and 0.044715 times it.
LINEAR, CUBIC = np.float32(1.5957691216), np.float32(0.0713548163)


def gelu(x: F32) -> F32:
    """0.5·x·(1 + tanh(sqrt(2/pi)·(x + 0.044715·x³))), written as x·sigmoid(u) with u = x·(LINEAR + CUBIC·x²).

    tanh(u/2) = 2·sigmoid(u) − 1, so that exp only ever sees arguments up to zero, as in `silu`.
    """
    with np.errstate(all="ignore"):
        u = x * (LINEAR + CUBIC * (x * x))
        e = exp(-np.abs(u))
        one = np.float32(1)
        return np.where(u >= 0, x / (one + e), (x * e) / (one + e))


def gelu_mul(gate: F32, up: F32, *, out: F32 | None = None) -> F32:
    """gelu(gate) * up, fp32 of any one shape."""
    check(gate, np.float32, gate.shape, "gate")
    check(up, np.float32, gate.shape, "up")
    with np.errstate(all="ignore"):
        return result(gelu(gate) * up, out)
