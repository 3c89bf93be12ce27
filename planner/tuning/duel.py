"""The winner against trial 0: paired, interleaved rounds, so that a slow minute of the machine slows both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from twofold.planner.search.space import Point
from twofold.planner.tuning.meter import Meter, centre, deviation, spread

MIN_ROUNDS = 6
SURE_ROUNDS = 12
"""Before these no error is small enough to stop at."""
MAX_ROUNDS = 100
TARGET_ERROR = 0.004
LEAST_GAIN = 0.01
"""A winner has to be this much faster, whatever the noise: less is not worth another plan."""
CERTAINTY = 2.5
"""Standard errors that the gain must exceed."""


@dataclass(frozen=True, slots=True)
class Duel:
    """Rounds of both, in seconds of a turn.

    Attributes:
        noise: the noise floor: how much repeated turns of trial 0 differed (relative standard deviation).
        gain: share of trial 0's time that the winner saves.
    """

    baseline: tuple[float, ...]
    winner: tuple[float, ...]
    noise: float = 0.0

    @property
    def _logs(self) -> list[float]:
        return [math.log(w / b) for w, b in zip(self.winner, self.baseline, strict=True)]

    @property
    def rounds(self) -> int:
        return len(self.winner)

    @property
    def gain(self) -> float:
        return 1 - math.exp(_middle(self._logs))

    @property
    def error(self) -> float:
        """Standard error of the gain; from the rounds' own spread."""
        return standard_error(self._logs)

    @property
    def floor(self) -> float:
        """What the gain must exceed to count: the pairs' own uncertainty, and what as many turns of trial 0 alone, set
        against each other, would differ by.
        """
        return max(LEAST_GAIN, CERTAINTY * self.error, self.noise * math.sqrt(2 / self.rounds))

    @property
    def is_won(self) -> bool:
        return self.rounds >= MIN_ROUNDS and self.gain > self.floor


def _middle(logs: list[float]) -> float:
    shifted = [1 + one for one in logs]  # `centre` and `spread` are for positive figures around their middle
    return centre(shifted) - 1


def standard_error(logs: list[float]) -> float:
    if len(logs) < 2:
        return math.inf
    shifted = [1 + one for one in logs]
    robust = spread(shifted) * statistics.median(shifted)
    plain = deviation(logs)
    # A rare slow round is hardly in the first, and too much in the second: the trimmed mean stands between.
    # A spread from a few rounds is uncertain itself, and those that happen to lie together must not decide.
    return max(robust, min(plain, 2 * robust)) / math.sqrt(len(logs)) * (1.06 + 4 / len(logs))


def duel(
    meter: Meter,
    baseline: Point,
    winner: Point,
    *,
    noise: float = 0.0,
    is_over: Callable[[], bool] = lambda: False,
    on_round: Callable[[int, int], None] = lambda *_: None,
    max_rounds: int = MAX_ROUNDS,
) -> Duel:
    """Sample both in turn until the gain is known to `TARGET_ERROR`, or time or rounds are used up.

    A piece that both have is sampled once a round for both. What ends it does not look at who is ahead.
    """
    times: dict[Point, list[float]] = {baseline: [], winner: []}
    for done in range(max_rounds):
        taken: dict[object, float] = {}
        for point in (baseline, winner) if done % 2 == 0 else (winner, baseline):
            seconds = 0.0
            for piece in meter.target.pieces(point):
                if piece.key not in taken:
                    taken[piece.key] = meter.take(point, piece)
                seconds += piece.weight * taken[piece.key]
            times[point].append(seconds)
        found = Duel(tuple(times[baseline]), tuple(times[winner]), noise)
        on_round(found.rounds, max_rounds)
        if found.rounds >= MIN_ROUNDS and (is_over() or (found.rounds >= SURE_ROUNDS and found.error <= TARGET_ERROR)):
            break
    return found
