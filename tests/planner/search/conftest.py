"""Small spaces and an objective that every process can compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.search.space import Point, Space
from twofold.planner.search.study import Outcome

SPACE = Space(
    residual_bits=(6,),
    kv_types=("f16", "q8_0"),
    draft_nodes=(0, 2, 4, 8),
    max_depth=3,
    prefill_chunks=(32, 64, 128),
    threads=(1, 2, 4),
)


def seconds(point: Point) -> Outcome:
    """Best at 4 nodes, depth 2, chunk 128, 2 threads; chunks of 128 with 4 threads do not fit."""
    if point.prefill_chunk == 128 and point.threads == 4:
        return Outcome(None, 100.0)
    away = abs(point.draft_nodes - 4) + abs(point.draft_depth - 2) + abs(point.threads - 2)
    return Outcome(1.0 + 0.1 * away + 8 / point.prefill_chunk, -1.0)


@pytest.fixture
def space() -> Space:
    return SPACE


@pytest.fixture
def objective() -> Callable[[Point], Outcome]:
    return seconds


@pytest.fixture
def first() -> Point:
    return Point(6, "f16", 0, 1, 64, 4)
