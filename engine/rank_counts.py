"""How often the verifier's token had which rank among the draft's guesses, counted as the engine runs."""

from __future__ import annotations

from twofold.engine.accept import Accepted
from twofold.engine.draft import KEPT_RANKS, Draft

Counts = tuple[tuple[int, ...], ...]
"""By depth − 1: how often each rank below `KEPT_RANKS` was the verifier's, and last how often none of them was."""


class RankCounts:
    """Counts of real verify passes, along the accepted paths only: what a tree of this shape is asked in use."""

    def __init__(self) -> None:
        self._counts: list[list[int]] = []

    @property
    def counts(self) -> Counts:
        return tuple(tuple(depth) for depth in self._counts)

    def note(self, draft: Draft, accepted: Accepted) -> None:
        """Count a step."""
        for depth, (row, token) in enumerate(zip(accepted.path, accepted.tokens, strict=True)):
            guesses = draft.guesses.get(row)
            if guesses is None:
                return
            kept = guesses[:KEPT_RANKS]
            if depth == len(self._counts):
                self._counts.append([0] * (KEPT_RANKS + 1))
            self._counts[depth][kept.index(token) if token in kept else KEPT_RANKS] += 1

    def clear(self) -> None:
        """Start anew, once the counts are kept elsewhere."""
        self._counts.clear()
