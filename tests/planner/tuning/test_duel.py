"""The A/B: it is won by what is faster, and only by more than the noise."""

from __future__ import annotations

import random

import pytest

from twofold.planner.search.space import Point
from twofold.planner.tuning.duel import LEAST_GAIN, MIN_ROUNDS, Duel, duel
from twofold.planner.tuning.meter import Meter, Piece

FIRST = Point(6, "f16", 0, 1, 64, 2)
OTHER = Point(6, "f16", 0, 1, 128, 2)


class Machine:
    """`OTHER` takes `ratio` of the time; every `slow_every`th round the machine is three times slower."""

    def __init__(self, ratio: float, noise: float = 0.03, seed: int = 0, slow_every: int = 0) -> None:
        self.ratio, self._noise, self._slow_every = ratio, noise, slow_every
        self._random, self.order = random.Random(seed), []  # type: ignore[var-annotated]

    def shortfall_mib(self, point: Point) -> float:
        return -1.0

    def pieces(self, point: Point) -> tuple[Piece, ...]:
        return Piece("prefill", ("prefill", point.prefill_chunk), 1.0), Piece("step", "step", 0.0)

    def sample(self, point: Point, piece: Piece) -> float:
        self.order.append((point.prefill_chunk, piece.part))
        round_ = (len(self.order) - 1) // 3
        busy = 3.0 if self._slow_every and round_ % self._slow_every == 0 else 1.0
        true = self.ratio if piece.key == ("prefill", 128) else 1.0
        return busy * true * self._random.gauss(1, self._noise)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("slow_every", [0, 3])
def test_a_tenth_is_told_and_its_size_is_right(seed: int, slow_every: int) -> None:
    found = duel(Meter(Machine(0.9, seed=seed, slow_every=slow_every)), FIRST, OTHER)
    assert found.is_won
    assert found.gain == pytest.approx(0.1, abs=max(0.02, 4 * found.error))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("ratio", [1.0, 1.01, 1.05])
def test_what_is_not_faster_never_wins(seed: int, ratio: float) -> None:
    assert not duel(Meter(Machine(ratio, seed=seed)), FIRST, OTHER).is_won


def test_rounds_are_interleaved_and_what_both_have_is_sampled_once() -> None:
    machine = Machine(0.9)
    duel(Meter(machine), FIRST, OTHER, max_rounds=2)
    assert machine.order == [
        (64, "prefill"), (64, "step"), (128, "prefill"),
        (128, "prefill"), (128, "step"), (64, "prefill"),
    ]  # fmt: skip


def test_a_gain_below_the_noise_floor_of_trial_0_does_not_count() -> None:
    rounds = (1.0,) * 50, (0.95,) * 50
    assert Duel(*rounds, noise=0.1).is_won
    assert not Duel(*rounds, noise=0.3).is_won
    assert Duel(*rounds, noise=0.3).floor == pytest.approx(0.3 * (2 / 50) ** 0.5)


def test_too_few_rounds_and_too_small_gains_do_not_count() -> None:
    fast = Duel((1.0,) * MIN_ROUNDS, (0.5,) * MIN_ROUNDS)
    assert fast.is_won and fast.gain == pytest.approx(0.5)
    assert not Duel((1.0,), (0.5,)).is_won
    nearly = 1 - LEAST_GAIN * 0.9
    assert not Duel((1.0,) * 50, (nearly,) * 50).is_won
