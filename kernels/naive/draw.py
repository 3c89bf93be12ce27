"""One token by its weight among those that the filters leave: the sampled choice."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from twofold.kernels.naive.arrays import F32, I64, check
from twofold.kernels.naive.softmax import softmax_total, softmax_weights
from twofold.kernels.naive.top_k import top_k

FIRST_PREFIX, GROWTH = 64, 16
"""How many of the likeliest are sorted at first, and how many times as many where those do not decide."""


def check_draw(logits: F32, temperature: float, keep: int, top_p: float, min_p: float, u: float) -> None:
    """Raise ValueError for what `draw` does not take."""
    check(logits, np.float32, (None,), "logits")
    fine = temperature > 0 and keep >= 0 and 0 < top_p <= 1 and 0 <= min_p < 1 and 0 <= u < 1
    if not (logits.size and fine):
        raise ValueError(f"cannot draw: {logits.size} logits, {temperature=}, {keep=}, {top_p=}, {min_p=}, {u=}")


def _prefixes(logits: F32, count: int, limit: int) -> Iterator[I64]:
    """Longer and longer runs of the likeliest ids, from `count` to `limit`: a draw rarely needs more than the first."""
    while True:
        yield top_k(logits[None], count)[0]
        if count == limit:
            return
        count = min(count * GROWTH, limit)


def draw(logits: F32, peak: float, *, temperature: float, keep: int, top_p: float, min_p: float, u: float) -> int:
    """The id at `u` (0 ≤ u < 1) of the inverse CDF over the survivors in order of (−logit, id).

    Args:
        logits: fp32 [n], finite, none above `peak`.
        keep: the likeliest so many survive (top-k); 0 for all. Then the shortest run of them that reaches `top_p` of
            their weight, then those that weigh at least `min_p` of the first.

    Weights are `softmax_weights`, added up in fp64: in the order of the survivors, and where all logits are asked, by
    `softmax_total`.
    """
    check_draw(logits, temperature, keep, top_p, min_p, u)

    def weights(ids: I64) -> NDArray[np.float64]:
        return softmax_weights(logits[ids], peak, temperature).astype(np.float64)

    limit = min(keep, logits.size) if keep else logits.size
    first = limit if keep else min(FIRST_PREFIX, limit)  # all that are kept: their sum is asked for
    total = softmax_total(logits, peak, temperature) if first < limit else math.nan
    for ids in _prefixes(logits, first, limit):
        mass = weights(ids)
        reached = np.cumsum(mass)
        complete, kept = ids.size == limit, ids.size
        total = float(reached[-1]) if complete else total
        if top_p < 1:
            cut = int(np.searchsorted(reached, top_p * total)) + 1
            complete, kept = complete or cut <= kept, min(kept, cut)
        above_floor = int(np.count_nonzero(mass >= min_p)) if min_p else ids.size
        complete, kept = complete or above_floor < ids.size, min(kept, max(1, above_floor))  # the likeliest stays
        mass_kept = float(reached[kept - 1]) if complete else total
        pick = int(np.searchsorted(reached[:kept], u * mass_kept, side="right"))
        if complete or (top_p == 1 and min_p == 0 and pick < kept):
            return int(ids[min(pick, kept - 1)])
    raise AssertionError("the last run is complete")
