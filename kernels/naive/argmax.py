"""The greedy choice."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, I64, check


def argmax(logits: F32) -> I64:
    """The id of each row's largest logit, the lowest id among equals: fp32 [rows, vocab] to int64 [rows].

    −1 for a row where a logit is not finite.

    Raises:
        ValueError: rows of no logits.
    """
    check(logits, np.float32, (None, None), "logits")
    if logits.shape[1] == 0:
        raise ValueError("argmax of no logits")
    best: I64 = np.where(np.isfinite(logits).all(axis=1), logits.argmax(axis=1), -1).astype(np.int64)
    return best
