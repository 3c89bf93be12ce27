"""The canonical reduction: 16 lanes in ascending order, then a fixed tree."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32

LANES = 16


def sum16(x: F32) -> F32:
    """Sum over the last axis of fp32 [..., n] to [...].

    Lane l adds x[l], x[l+16], … from +0; then lanes l += l+8, l += l+4, l += l+2, lane 0 + lane 1. A lane that started
    from +0 is never -0, so that padding with zeros is the same as leaving a short tail's lanes untouched.
    """
    n = x.shape[-1]
    padded = np.zeros((*x.shape[:-1], -(-n // LANES) * LANES), np.float32)
    padded[..., :n] = x
    steps = padded.reshape(*x.shape[:-1], -1, LANES)
    lanes = np.zeros((*x.shape[:-1], LANES), np.float32)
    for step in range(steps.shape[-2]):
        lanes += steps[..., step, :]
    for width in (8, 4, 2, 1):
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
    total: F32 = lanes[..., 0]
    return total
