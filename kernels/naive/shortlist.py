"""A draft's guesses: the whole vocabulary weighed by the head's base, the best of it again with the residual."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, I64, check
from twofold.kernels.naive.chosen_rows import check_addressable, chosen_rows
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.kernels.naive.top_k import top_k


def check_shortlist(logits: F32, x: F32, weights: SplitWeights, n: int, k: int) -> None:
    """Raise ValueError unless the shapes fit, single outputs can be computed, and 1 ≤ k ≤ n ≤ vocab."""
    check(x, np.float32, (None, weights.in_features), "x")
    check(logits, np.float32, (x.shape[0], weights.out_features), "logits")
    check_addressable(weights)
    if not 1 <= k <= n <= weights.out_features:
        raise ValueError(f"cannot choose {k} of a shortlist of {n} of {weights.out_features}")


def shortlist(logits: F32, x: F32, weights: SplitWeights, n: int, k: int) -> I64:
    """Each row's k likeliest outputs, best first, the lowest id among equals: int64 [rows, k].

    `logits` [rows, vocab], the base's, choose n; the whole product of x [rows, in_features] ranks them.

    Raises:
        ValueError: shapes that do not fit, a Linear without single outputs, or a NaN (naming the first such row).
    """
    check_shortlist(logits, x, weights, n, k)
    ids = np.sort(top_k(logits, n), axis=1)
    best = top_k(chosen_rows(x, weights, ids), k)
    return np.take_along_axis(ids, best, axis=1)
