"""Curves through measured points: what a prediction between them may and may not be."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.planner.timed.curve import NOTHING, Estimate, between, rising

POINTS = st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1e3), min_size=1, max_size=8)
WHERE = st.floats(0.5, 300)


def exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def spread(value: float, half: float) -> Estimate:
    return Estimate(value - half, value, value + half)


@given(POINTS, WHERE, WHERE)
def test_more_never_costs_less(points: dict[int, float], a: float, b: float) -> None:
    table = [(float(x), exact(y)) for x, y in points.items()]
    first, second = (between(x, table, "rows").likely for x in sorted((a, b)))
    assert first <= second * (1 + 1e-9)


@given(POINTS, WHERE)
def test_the_likely_case_lies_in_the_range_and_within_what_was_measured(points: dict[int, float], x: float) -> None:
    found = between(x, [(float(at), spread(y, y / 10)) for at, y in points.items()], "rows")
    assert 0 <= found.low <= found.likely <= found.high
    if x <= max(points):
        assert min(points.values()) * (1 - 1e-9) <= found.likely <= max(points.values()) * (1 + 1e-9)


def test_measured_points_are_met_and_lines_are_straight_between_them() -> None:
    table = [(1.0, exact(2.0)), (5.0, exact(4.0)), (9.0, exact(12.0))]
    assert [between(x, table, "rows").likely for x in (1, 3, 5, 7, 9)] == pytest.approx([2, 3, 4, 8, 12])
    assert between(0.5, table, "rows").likely == 2


def test_beyond_the_last_point_the_slope_goes_on_and_the_range_and_the_words_say_so() -> None:
    table = [(1.0, exact(2.0)), (5.0, exact(4.0))]
    inside, far, farther = (between(x, table, "rows") for x in (5, 10, 20))
    assert inside.gaps == frozenset() and inside.low == inside.high
    assert far.likely == pytest.approx(6.5) and farther.likely == pytest.approx(11.5)
    assert far.gaps == {"rows beyond 5 are carried on"}
    assert 0 < (far.high - far.low) / far.likely < (farther.high - farther.low) / farther.likely


def test_one_point_alone_is_a_cost_for_each_row() -> None:
    assert between(4, [(2.0, exact(3.0))], "rows").likely == pytest.approx(6)
    assert between(1, [(2.0, exact(3.0))], "rows").likely == 3
    with pytest.raises(ValueError, match="no points"):
        between(1, [], "rows")


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12))
def test_the_rising_sequence_is_the_nearest_one(values: list[float]) -> None:
    found = rising(values)
    assert all(a <= b + 1e-6 for a, b in itertools.pairwise(found))
    assert statistics.fmean(found) == pytest.approx(statistics.fmean(values), abs=1e-6)
    # a projection onto a convex cone: what is left over is at right angles to it
    assert sum((v - f) * f for v, f in zip(values, found, strict=True)) == pytest.approx(0, abs=1e-2)
    assert rising(sorted(values)) == pytest.approx(sorted(values))


def test_estimates_add_up_with_what_is_not_known_of_them() -> None:
    a, b = spread(2, 0.5).widened(0.0, "a"), spread(3, 0.25).widened(0.1, "b")
    total = (a + b).times(2)
    assert (total.low, total.likely, total.high) == pytest.approx((2 * (1.5 + 2.45), 10, 2 * (2.5 + 3.55)))
    assert total.gaps == {"a", "b"} and (NOTHING + a) == a
