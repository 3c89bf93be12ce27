"""Timings over rows and contexts: no order of points, however they scatter, makes more cost less."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.planner.timed.curve import Estimate, between, end_slope
from twofold.planner.timed.surface import Points, Surface

CONTEXTS = st.integers(1, 5000)
CURVES = st.dictionaries(
    CONTEXTS, st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1e3), min_size=1, max_size=5), min_size=1, max_size=4
)
"""Microseconds by context and rows, other rows in every context."""


def exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def points(curves: dict[int, dict[int, float]]) -> dict[int, Points]:
    return {at: {n: exact(value) for n, value in known.items()} for at, known in curves.items()}


@given(CURVES, st.integers(1, 600), st.integers(0, 600), st.integers(0, 40_000), st.integers(0, 40_000))
def test_more_rows_and_longer_contexts_never_cost_less(
    curves: dict[int, dict[int, float]], rows: int, more_rows: int, context: int, more_context: int
) -> None:
    surface = Surface(points(curves))
    now = surface.at(context, rows)
    assert 0 <= now.low <= now.likely <= now.high
    for later in (surface.at(context + more_context, rows), surface.at(context, rows + more_rows)):
        assert now.likely <= later.likely * (1 + 1e-9)


@given(st.lists(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3), min_size=3, max_size=3))
def test_there_is_no_jump_behind_the_last_width(values: list[list[float]]) -> None:
    timed = zip((64, 512, 4096), values, strict=True)
    surface = Surface({at: dict(zip((1, 8, 64), map(exact, row), strict=True)) for at, row in timed})
    for context in (0, 64, 300, 4096, 9000):
        last, one, two = (surface.at(context, rows).likely for rows in (64, 65, 66))
        assert two - one == pytest.approx(one - last, rel=1e-6, abs=1e-6)


def test_timings_in_proportion_to_rows_and_context_are_carried_on_as_they_are() -> None:
    def cost(context: int, rows: int) -> float:
        return (30 + context) * (3 + rows)

    surface = Surface({at: {n: exact(cost(at, n)) for n in (1, 8, 64)} for at in (64, 512, 4096)})
    for context, rows in itertools.product((64, 700, 4096, 20_000), (1, 5, 64, 65, 500)):
        found = surface.at(context, rows)
        assert found.likely == pytest.approx(cost(context, rows))
        carried = {f"{what} beyond {last} are carried on" for what, last, at in
                   (("contexts", 4096, context), ("rows", 64, rows)) if at > last}  # fmt: skip
        assert found.gaps == carried and (found.high > found.likely) == bool(carried)


def test_a_slope_that_falls_with_the_context_is_made_even() -> None:
    """The last two widths behind 64 positions lie 64 apart for 8 rows, behind 512 only 16: 5 a row in both."""
    surface = Surface({64: {8: exact(10), 16: exact(74)}, 512: {8: exact(80), 16: exact(96)}})
    assert [surface.at(64, rows).likely for rows in (16, 17, 26)] == pytest.approx([74, 79, 124])
    assert [surface.at(512, rows).likely for rows in (16, 17, 26)] == pytest.approx([96, 101, 146])


def test_wide_passes_that_were_timed_behind_short_contexts_only() -> None:
    """What a further row costs is read where the widest pass was timed."""
    curves = {
        64: {8: exact(8), 16: exact(16)}, 512: {8: exact(12), 16: exact(24)}, 4096: {8: exact(30)},
    }  # fmt: skip
    surface = Surface(curves)
    assert [surface.at(512, rows).likely for rows in (16, 20)] == pytest.approx([24, 30])
    behind = surface.at(1408, 20)  # two more steps of 448 positions: 16 rows cost 8 more in each, a further row 0.5
    assert behind.likely == pytest.approx(24 + 16 + 4 * 2.5)
    assert behind.gaps == {"contexts beyond 512 are carried on", "rows beyond 16 are carried on"}


@given(st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1e3), min_size=1, max_size=8))
def test_the_slope_at_the_end_is_what_a_curve_is_carried_on_by(values: dict[int, float]) -> None:
    curve, last = [(float(x), exact(y)) for x, y in values.items()], max(values)
    a, b = (between(x, curve, "rows").likely for x in (last, last + 10))
    assert end_slope(curve).likely == pytest.approx((b - a) / 10, rel=1e-6, abs=1e-9)
    assert end_slope(curve).likely >= 0
    with pytest.raises(ValueError, match="no points"):
        end_slope([])
