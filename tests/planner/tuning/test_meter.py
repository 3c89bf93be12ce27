"""Samples, their centre and error, and which sample comes next."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from twofold.planner.search.space import Point
from twofold.planner.tuning.meter import Meter, Piece, centre, spread

ONE = Point(6, "f16", 0, 1, 64, 2)
OTHER = Point(6, "f16", 4, 4, 64, 2)


class TwoPieces:
    """A prefill that both points share, and a step of each."""

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self.asked: list[object] = []
        self._noise, self._random = noise, random.Random(seed)

    def shortfall_mib(self, point: Point) -> float:
        return -1.0

    def pieces(self, point: Point) -> tuple[Piece, ...]:
        return Piece("prefill", "prefill", 16.0), Piece("step", ("step", point.draft_nodes), 256.0)

    def sample(self, point: Point, piece: Piece) -> float:
        self.asked.append(piece.key)
        true = {"prefill": 0.5, ("step", 0): 0.04, ("step", 4): 0.06}[piece.key]  # type: ignore[index]
        return true * self._random.gauss(1, self._noise)


def test_a_turn_is_the_weighted_sum_of_its_pieces() -> None:
    meter = Meter(TwoPieces())
    assert meter.estimate(ONE) is None
    assert meter.turn(ONE) == pytest.approx(16 * 0.5 + 256 * 0.04)
    found = meter.estimate(ONE)
    assert found is not None and found.seconds == pytest.approx(18.24)


def test_a_piece_is_sampled_once_for_all_points_that_have_it() -> None:
    target = TwoPieces()
    meter = Meter(target)
    meter.noise = 0.0
    meter.refine(ONE, 0.01)
    meter.refine(OTHER, 0.01)
    assert target.asked == ["prefill", ("step", 0), ("step", 4)]


def test_refining_reaches_the_error_that_was_asked_for() -> None:
    target = TwoPieces(noise=0.03, seed=4)
    meter = Meter(target)
    meter.noise = 0.03
    found = meter.refine(ONE, 0.005)
    assert found.error <= 0.005 * found.seconds
    assert abs(found.seconds - 18.24) < 4 * found.error
    # Steps are short and more of the error comes from them: they are sampled oftener.
    assert target.asked.count(("step", 0)) > target.asked.count("prefill") > 1


def test_what_is_hopeless_is_sampled_once() -> None:
    target = TwoPieces()
    meter = Meter(target)
    meter.refine(OTHER, 0.001, give_up_above=5.0)
    assert len(target.asked) == 2


def test_time_that_is_over_leaves_one_sample_of_each_piece() -> None:
    target = TwoPieces(noise=0.1)
    Meter(target).refine(ONE, 0.0001, is_over=lambda: True)
    assert len(target.asked) == 2


def test_samples_have_an_end() -> None:
    target = TwoPieces(noise=0.5)
    Meter(target, max_samples=7).refine(ONE, 1e-9)
    assert len(target.asked) == 14


def test_the_centre_does_not_move_with_a_few_slow_samples() -> None:
    quiet = [1.0 + 0.001 * i for i in range(-10, 11)]
    assert centre([*quiet, 9.0, 9.0]) == pytest.approx(1.0, abs=0.002)
    assert centre([1.0, 1.0, 50.0]) == 1.0
    draw = random.Random(3)
    normal = [draw.gauss(1, 0.03) for _ in range(2000)]
    assert spread(normal) == pytest.approx(0.03, rel=0.1)
    assert centre(normal) == pytest.approx(statistics.fmean(normal), abs=0.002)
    assert spread([2.0]) == 0.0 and not math.isnan(spread([1.0, 1.0]))
