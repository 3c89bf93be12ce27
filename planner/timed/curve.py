"""Measured points as a curve: never falling, straight lines between them, carried on beyond the last by its slope."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass

BEYOND = 0.1
"""Relative uncertainty of what lies twice as far out as the last measured point; as much again for each doubling."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds (or any quantity that adds up): fast, likely and slow case, and what is not measured about them."""

    low: float
    likely: float
    high: float
    gaps: frozenset[str] = frozenset()

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.low + other.low, self.likely + other.likely, self.high + other.high, self.gaps | other.gaps
        )

    def times(self, factor: float) -> Estimate:
        return Estimate(self.low * factor, self.likely * factor, self.high * factor, self.gaps)

    def widened(self, share: float, gap: str | None = None) -> Estimate:
        """The range relatively wider by `share` on both sides, for the reason `gap`."""
        gaps = self.gaps if gap is None else self.gaps | {gap}
        return Estimate(max(0.0, self.low - share * self.likely), self.likely, self.high + share * self.likely, gaps)


NOTHING = Estimate(0.0, 0.0, 0.0)


def between(x: float, points: Iterable[tuple[float, Estimate]], what: str) -> Estimate:
    """The estimate at `x` by straight lines between `points` (at least one), which are made never falling.

    Below the first point the first holds. Beyond the last its slope goes on, the range widens, and the gap says so.

    Raises:
        ValueError: no points.
    """
    known, xs, columns = _curve(points)
    right = min(bisect.bisect_left(xs, x), len(xs) - 1)
    gaps = known[right][1].gaps | known[max(0, right - 1)][1].gaps
    low, likely, high = (_on_line(x, xs, ys) for ys in columns)
    found = Estimate(min(low, likely), likely, max(high, likely), gaps)
    if x <= xs[-1]:
        return found
    return beyond(found, x, xs[-1], what)


def beyond(found: Estimate, x: float, last: float, what: str) -> Estimate:
    """What was carried on to `x` from the `last` measured point, the range as much wider as that is far out."""
    share = BEYOND * math.log2(max(2.0, x) / max(last, 1.0))
    return found.widened(min(1.0, max(0.0, share)), f"{what} beyond {last:g} are carried on")


def end_slope(points: Iterable[tuple[float, Estimate]]) -> Estimate:
    """What one more of x adds behind the last of `points` (at least one): `between` carries on by it. Never negative.

    Raises:
        ValueError: no points.
    """
    known, xs, columns = _curve(points)
    low, likely, high = (_end_slope(xs, ys) for ys in columns)
    gaps = frozenset().union(*(one.gaps for _, one in known[-2:]))
    return Estimate(min(low, likely), likely, max(high, likely), gaps)


def _curve(
    points: Iterable[tuple[float, Estimate]],
) -> tuple[list[tuple[float, Estimate]], list[float], list[list[float]]]:
    """Points in order, their places, and their low, likely and high cases made never falling."""
    known = sorted(points, key=lambda point: point[0])
    if not known:
        raise ValueError("no points")
    columns = [rising([getattr(one, name) for _, one in known]) for name in ("low", "likely", "high")]
    return known, [at for at, _ in known], columns


def _end_slope(xs: list[float], ys: list[float]) -> float:
    if len(xs) == 1:
        return ys[0] / xs[0] if xs[0] > 0 else 0.0
    return (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])


def _on_line(x: float, xs: list[float], ys: list[float]) -> float:
    if len(xs) == 1:
        return ys[0] * max(1.0, x / xs[0]) if xs[0] > 0 else ys[0]
    if x <= xs[0]:
        return ys[0]
    right = min(bisect.bisect_left(xs, x), len(xs) - 1)
    left = right - 1
    return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])


def rising(values: list[float]) -> list[float]:
    """The never falling sequence nearest to `values` in least squares (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        total, n = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / n:
            before, m = blocks.pop()
            total, n = total + before, n + m
        blocks.append((total, n))
    return [total / n for total, n in blocks for _ in range(n)]
