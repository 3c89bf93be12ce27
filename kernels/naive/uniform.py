"""The uniform number of a (seed, position): what a sampled choice is drawn by."""

from __future__ import annotations

import numpy as np


def uniform(seed: int, position: int) -> float:
    """53 bits in [0, 1): the first word of a Philox4x64-10 stream keyed by (seed, position), each 0 … 2^64 − 1.

    A counter-based generator: no number depends on how many were drawn before (Salmon et al., Parallel random numbers:
    as easy as 1, 2, 3; SC 2011).
    """
    key = np.array([seed, position], np.uint64)  # a list of numbers from 2^63 on would go through float64
    return int(np.random.Philox(key=key).random_raw() >> 11) * 2.0**-53
