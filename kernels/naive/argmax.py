"""The greedy choice."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, I64, check


def argmax(logits: F32) -> I64:
    """The id of each row's largest logit, the lowest id among equals: fp32 [rows, vocab] to int64 [rows].

    Raises:
        ValueError: when a logit is NaN, naming the first such row.
    """
    check(logits, np.float32, (None, None), "logits")
    if logits.shape[1] == 0:
        raise ValueError("argmax of no logits")
    bad = np.isnan(logits).any(axis=1)
    if bad.any():
        raise ValueError(f"NaN among the logits of row {int(bad.argmax())}")
    best: I64 = logits.argmax(axis=1).astype(np.int64)
    return best
