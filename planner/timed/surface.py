"""Timings over two axes, rows and cached positions: an estimate that falls along neither, wherever it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from twofold.planner.timed.curve import Estimate, between, beyond, end_slope

Points = dict[int, Estimate]
"""Seconds by rows."""


class Surface:
    """Curves over rows, by context.

    Within the rows timed: along the contexts first, for each number of rows timed there; then along the rows. Both
    steps keep an order that their points have, so neither more rows nor a longer context costs less.

    Beyond them what a further row costs is carried on. Read off in one context alone it may fall as the context grows,
    where the timings of the last two widths scatter, and far enough out the longer context would cost less. It is
    therefore a curve over the contexts itself, made never falling as every other: a row that sees more does more.
    """

    def __init__(self, curves: Mapping[int, Points]) -> None:
        counts = Counter(n for points in curves.values() for n in points)
        # what was timed in one context only says nothing about another
        widths = sorted(n for n, times in counts.items() if times > 1) or sorted(counts)
        self._over_contexts = {
            n: [(float(at), points[n]) for at, points in curves.items() if n in points] for n in widths
        }
        self._last = widths[-1]
        self._per_row: list[tuple[float, Estimate]] = []

    def at(self, context: int, rows: int) -> Estimate:
        """`rows` rows that each see `context` cached positions."""
        found = between(min(rows, self._last), self._over_rows(context), "rows")
        if rows <= self._last:
            return found
        if not self._per_row:
            contexts = [at for at, _ in self._over_contexts[self._last]]
            self._per_row = [(at, end_slope(self._over_rows(at))) for at in contexts]
        more = between(context, self._per_row, "contexts").times(rows - self._last)
        return beyond(found + more, rows, self._last, "rows")

    def _over_rows(self, context: float) -> list[tuple[float, Estimate]]:
        return [(float(n), between(context, points, "contexts")) for n, points in self._over_contexts.items()]
