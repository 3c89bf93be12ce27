"""The largest few logits: what a draft tree's children are chosen by. No softmax, which would change no order."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, I64, check


def top_k(logits: F32, k: int) -> I64:
    """The ids of each row's k largest logits by (−logit, id), best first: fp32 [rows, vocab] to int64 [rows, k].

    Raises:
        ValueError: when k is not 1 to vocab, or a logit is NaN (naming the first such row).
    """
    check(logits, np.float32, (None, None), "logits")
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"cannot choose {k} of {logits.shape[1]} logits")
    bad = np.isnan(logits).any(axis=1)
    if bad.any():
        raise ValueError(f"NaN among the logits of row {int(bad.argmax())}")
    best: I64 = np.argsort(-logits, axis=1, kind="stable")[:, :k].astype(np.int64)
    return best
