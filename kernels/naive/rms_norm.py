"""RMSNorm over the last axis."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, check, result
from twofold.kernels.naive.sum16 import sum16


def rms_norm(x: F32, weight: F32, eps: float, *, out: F32 | None = None) -> F32:
    """(x * r) * weight with r = 1 / sqrt(Sum16(x*x) / n + eps): fp32 [..., n] and weight [n] to [..., n]."""
    check(weight, np.float32, (x.shape[-1],), "weight")
    check(x, np.float32, x.shape, "x")
    with np.errstate(all="ignore"):
        mean = sum16(x * x) / np.float32(x.shape[-1])
        r = np.float32(1) / np.sqrt(mean + np.float32(eps))
        return result((x * r[..., None]) * weight, out)
