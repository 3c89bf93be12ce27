"""Samples of what plans are made of, and what they say about a plan's turn.

A turn is a weighted sum of pieces (a prefill pass, a step), and plans share pieces: how long a prefill pass takes does
not depend on the draft tree. So a piece is sampled once for all plans that have it, and every further sample of it
sharpens all of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twofold.planner.search.space import Point

TRIMMED = 0.2
"""Of the samples, on either side, what does not count: another process's turn would."""
PRIOR_NOISE = 0.05
_FEW = 6
_PULLED_IN = 0.824
"""Standard deviation of a normal distribution whose outer tenths are pulled in."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a turn: plans with an equal `key` share it; the turn holds it `weight` times."""

    part: str
    key: Hashable
    weight: float


class Target(Protocol):
    """What is tuned: which pieces a point has, whether it fits, and one sample of a piece in seconds."""

    def shortfall_mib(self, point: Point) -> float: ...

    def pieces(self, point: Point) -> tuple[Piece, ...]: ...

    def sample(self, point: Point, piece: Piece) -> float: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of a turn as known so far, and the standard error of that."""

    seconds: float
    error: float

    @property
    def low(self) -> float:
        return self.seconds - 2 * self.error

    @property
    def high(self) -> float:
        return self.seconds + 2 * self.error


class Meter:
    """All samples of a tuning run."""

    def __init__(self, target: Target, *, max_samples: int = 100) -> None:
        self.target, self._max = target, max_samples
        self.samples: dict[Hashable, list[float]] = {}
        self.noise = PRIOR_NOISE
        """Relative standard deviation of a sample, until a piece has enough of its own."""

    @property
    def n_samples(self) -> int:
        return sum(len(samples) for samples in self.samples.values())

    def take(self, point: Point, piece: Piece) -> float:
        """One more sample of a piece, kept."""
        seconds = self.target.sample(point, piece)
        self.samples.setdefault(piece.key, []).append(seconds)
        return seconds

    def turn(self, point: Point) -> float:
        """Seconds of one turn whose pieces are all sampled now, kept."""
        return sum(piece.weight * self.take(point, piece) for piece in self.target.pieces(point))

    def estimate(self, point: Point) -> Estimate | None:
        """What is known of a point; None while a piece of it was never sampled."""
        seconds = variance = 0.0
        for piece in self.target.pieces(point):
            samples = self.samples.get(piece.key)
            if not samples:
                return None
            mean = piece.weight * centre(samples)
            seconds += mean
            variance += (mean * self._error(piece.key)) ** 2
        return Estimate(seconds, math.sqrt(variance))

    def refine(
        self,
        point: Point,
        relative_error: float,
        *,
        give_up_above: float = math.inf,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Estimate:
        """Sample until the turn is known to `relative_error`, or surely takes longer than `give_up_above`, or time is
        over; every piece at least once.

        The next sample is of the piece that lowers the error most for the time that it takes.
        """
        pieces = self.target.pieces(point)
        for piece in pieces:
            if not self.samples.get(piece.key):
                self.take(point, piece)
        while True:
            found = self.estimate(point)
            assert found is not None
            if found.error <= relative_error * found.seconds or found.low > give_up_above or is_over():
                return found
            open_pieces = [piece for piece in pieces if len(self.samples[piece.key]) < self._max]
            if not open_pieces:
                return found
            self.take(point, max(open_pieces, key=self._worth))

    def _worth(self, piece: Piece) -> float:
        samples = self.samples[piece.key]
        mean = centre(samples)
        return (piece.weight * mean * self._error(piece.key)) ** 2 / (len(samples) + 1) / mean

    def _error(self, key: Hashable) -> float:
        """Relative standard error of a piece's centre."""
        samples = self.samples[key]
        own = spread(samples) if len(samples) >= _FEW else 0.0
        return max(own, 0.5 * self.noise if own else self.noise) / math.sqrt(len(samples))


def centre(samples: Sequence[float]) -> float:
    """The mean of the middle of the samples (the median of a few)."""
    cut = int(len(samples) * TRIMMED)
    if len(samples) < _FEW:
        return statistics.median(samples)
    return statistics.fmean(sorted(samples)[cut : len(samples) - cut])


def spread(samples: Sequence[float]) -> float:
    """Relative standard deviation, with the outermost tenth on either side pulled in to the next.

    The interquartile range would mind outliers less, but says little of a dozen samples: by chance it is a quarter of
    what it should be, and then one sample seems enough.
    """
    if len(samples) < 2:
        return 0.0
    cut = len(samples) // 10
    ordered = sorted(samples)
    inner = [ordered[cut]] * cut + ordered[cut : len(samples) - cut] + [ordered[-1 - cut]] * cut
    return deviation(inner) / (_PULLED_IN if cut else 1.0) / statistics.median(ordered)


def deviation(samples: Sequence[float]) -> float:
    """Standard deviation; `statistics.stdev` is exact, and slow enough to be noticed between samples."""
    mean = statistics.fmean(samples)
    return math.sqrt(sum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1))
