"""Rounds: order, endings, warm-up, and what a series says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from twofold.engine.bench.rounds import Rule, interleave, warm_up
from twofold.profiles.series import Series, iqr


def _clock(step: float) -> Callable[[], float]:
    ticks: Iterator[float] = itertools.count(0.0, step)
    return lambda: next(ticks)


def test_every_other_round_runs_in_reverse() -> None:
    called: list[tuple[str, int]] = []

    def sampler(name: str) -> Callable[[int], float]:
        def sample(round_: int) -> float:
            called.append((name, round_))
            return 1.0

        return sample

    interleave({name: sampler(name) for name in "abc"}, Rule(repeats=3))
    assert called == [("a", 0), ("b", 0), ("c", 0), ("c", 1), ("b", 1), ("a", 1), ("a", 2), ("b", 2), ("c", 2)]


def test_repeats_fix_the_number_of_rounds_and_the_shares_told() -> None:
    shares: list[float] = []
    found = interleave({"a": lambda i: 10.0 + i}, Rule(repeats=4), shares.append)
    assert found["a"].samples == (10.0, 11.0, 12.0, 13.0)
    assert found["a"].ended_by == "rounds asked for"
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_little_noise_ends_after_the_least_rounds() -> None:
    found = interleave({"a": lambda i: 100 + 0.1 * (i % 2)}, Rule(min_rounds=5), clock=_clock(0.01))
    assert len(found["a"].samples) == 5
    assert found["a"].ended_by == "noise small"


def test_one_noisy_series_keeps_all_going_until_its_noise_is_stable() -> None:
    samplers = {"calm": lambda i: 1.0, "noisy": lambda i: 1.0 + (i * 37 % 101) / 101}
    found = interleave(samplers, Rule(min_rounds=4, window=4, max_seconds=5), clock=_clock(0.01))
    assert found["noisy"].ended_by == "noise stable"
    assert len(found["calm"].samples) == len(found["noisy"].samples) >= 8


def test_a_slow_sampler_ends_at_the_time_limit_with_what_there_is() -> None:
    found = interleave({"a": lambda i: 5.0}, Rule(min_rounds=7, max_seconds=20), clock=_clock(30.0))
    assert found["a"] == Series((5.0,), "time limit")


def test_warming_up_ends_when_samples_are_stable_or_at_its_limits() -> None:
    falling = [8.0, 4.0, 2.0, 2.1, 2.0]
    assert warm_up({"a": lambda i: falling[i]}, Rule(), _clock(0.01)) == 4
    assert warm_up({"a": lambda i: float(2**i)}, Rule(warm_rounds=3), _clock(0.01)) == 3
    assert warm_up({"a": lambda i: float(2**i)}, Rule(warm_seconds=1.0), _clock(2.0)) == 1


def test_a_figure_is_the_median_with_n_and_interquartile_range() -> None:
    figure = Series((1.0, 2.0, 3.0, 4.0, 100.0), "noise stable").figure("us", "a pass")
    assert (figure.value, figure.spread, figure.n, figure.source) == (3.0, 2.0, 5, "measured")
    assert "noise stable" in figure.by
    assert iqr([7.0]) == 0


def test_a_rule_that_cannot_end_well_is_refused() -> None:
    for wrong in ({"min_rounds": 1}, {"window": 1}, {"max_seconds": 0.0}, {"repeats": 0}):
        with pytest.raises(ValueError, match="two rounds"):
            Rule(**wrong)


def test_no_samples_after_an_interruption_are_invented() -> None:
    def sample(round_: int) -> float:
        if round_ == 2:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        interleave({"a": sample}, Rule())
