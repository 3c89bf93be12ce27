"""Single outputs of a split Linear whose rows are addressable: a draft's shortlist, weighed with the residual."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, I64, check, result
from twofold.kernels.naive.split_linear import split_linear
from twofold.kernels.naive.split_weights import SplitWeights


def check_addressable(weights: SplitWeights) -> None:
    """Raise ValueError unless single outputs can be computed: a Linear alone in its group and not rotated."""
    if len(weights.member_rows) != 1 or weights.output_signs is not None:
        raise ValueError("only a single Linear whose outputs are not rotated has rows to choose from")


def check_chosen(x: F32, weights: SplitWeights, ids: I64) -> None:
    """Raise ValueError unless `ids` [rows, n] are outputs of a Linear alone in its group and not rotated."""
    check(x, np.float32, (None, weights.in_features), "x")
    check(ids, np.int64, (x.shape[0], None), "ids")
    check_addressable(weights)
    if ids.size and not 0 <= ids.min() <= ids.max() < weights.out_features:
        raise ValueError(f"ids are 0 to {weights.out_features - 1}, got {int(ids.min())} to {int(ids.max())}")


def chosen_rows(x: F32, weights: SplitWeights, ids: I64, *, out: F32 | None = None) -> F32:
    """Outputs `ids` [rows, n] of each row of x [rows, in_features], base and residual: fp32 [rows, n]."""
    check_chosen(x, weights, ids)
    return result(np.take_along_axis(split_linear(x, weights, True), ids, axis=1), out)
