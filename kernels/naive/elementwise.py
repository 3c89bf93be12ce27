"""The residual stream's addition."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, check, result


def add(x: F32, y: F32, *, out: F32 | None = None) -> F32:
    """x + y, fp32 of any one shape; `out` may be x or y."""
    check(x, np.float32, x.shape, "x")
    check(y, np.float32, x.shape, "y")
    with np.errstate(all="ignore"):
        return result(x + y, out)
