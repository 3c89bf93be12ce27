"""exp for arguments up to zero, as a polynomial that every implementation evaluates alike."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32

LOWEST = np.float32(-87.33654)  # exp of it is the smallest normal fp32
LOG2_E = np.float32(1.44269504)
LN2_HI = np.float32(0.693359375)  # few bits: its product with a small integer is exact
LN2_LO = np.float32(-2.12194440e-4)

# Minimax of degree 6 on [-ln2/2, ln2/2] with constant term 1, relative error 2e-9; highest power first.
COEFFICIENTS = tuple(
    np.float32(c) for c in (0.00138436072, 0.00837419555, 0.0416680053, 0.166664302, 0.49999994, 1.0, 1.0)
)


def exp(x: F32) -> F32:
    """exp(x) for fp32 x <= 0 (below -87.33654: exp(-87.33654)); NaN stays NaN."""
    x = np.maximum(x, LOWEST)
    k: F32 = np.rint(x * LOG2_E)
    k[np.isnan(k)] = 0
    r = (x - k * LN2_HI) - k * LN2_LO
    p = np.full_like(r, COEFFICIENTS[0])
    for c in COEFFICIENTS[1:]:
        p = p * r + c
    scaled: F32 = p * ((k.astype(np.int32) + 127) << 23).view(np.float32)
    return scaled
