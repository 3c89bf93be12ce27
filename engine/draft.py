"""Drafts: tokens guessed ahead of the verifier, as a tree of rows whose shape the planner's rank statistics fix.

Row 0 of a verify pass is the last token of the text (not yet in the cache); nodes follow as rows 1…N, level by level.
The base drafts in the one KV cache, one pass a level: the rows that have children, behind the exact K and V of the
committed text. Their own K and V go to the slots behind the committed ones, where the verify pass overwrites them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.planner.acceptance import TreeShape

I64 = NDArray[np.int64]
KEPT_RANKS = 16
"""How many guesses of a row are kept, for the statistics; a tree rarely uses so many."""
Guess = Callable[[Sequence[int], Sequence[int], int], I64]
"""(tokens of a level's rows, parents of all draft rows so far, k) → each row's k likeliest tokens, int64 [rows, k].

Draft rows are numbered in their own order; the level's rows are the last ones, −1 stands for the committed text.
"""


@dataclass(frozen=True, slots=True)
class Draft:
    """`tokens[0]` is the text's last token; `parents[r]` is the row that row r continues (−1 for row 0).

    `guesses` holds, by row, what the draft thought likely after it, best first (rows without children have none).
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    guesses: dict[int, tuple[int, ...]]

    def children(self, row: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == row and child]


@dataclass(frozen=True, slots=True)
class _Level:
    """Rows of one depth that have children, and for each child its row, its parent's place in `rows`, its rank."""

    rows: tuple[int, ...]
    children: tuple[tuple[int, int, int], ...]


class DraftTree:
    """A tree shape made ready for drafting: which rows each pass computes, and whom they attend to."""

    def __init__(self, shape: TreeShape) -> None:
        self.shape = shape
        self.parents = (-1, *shape.parents)
        depths, inner = shape.depths, sorted(set(shape.parents))
        number = {row: i for i, row in enumerate(inner)}
        self._draft_parents = tuple(number[self.parents[row]] if row else -1 for row in inner)
        self._levels: list[_Level] = []
        for depth in range(shape.depth):
            rows = tuple(row for row in inner if depths[row] == depth)
            children = tuple(
                (node + 1, rows.index(parent), shape.ranks[node])
                for node, parent in enumerate(shape.parents)
                if parent in rows
            )
            self._levels.append(_Level(rows, children))
        self._n_guesses = max((KEPT_RANKS, *(rank + 1 for rank in shape.ranks)))

    def draft(self, token: int, vocab_size: int, guess: Guess) -> Draft:
        """Fill the tree behind `token`; one call of `guess` per level, none for a tree without nodes."""
        tokens = [token] * (self.shape.nodes + 1)
        guesses: dict[int, tuple[int, ...]] = {}
        k, done = min(self._n_guesses, vocab_size), 0
        for level in self._levels:
            done += len(level.rows)
            likely = guess([tokens[row] for row in level.rows], self._draft_parents[:done], k)
            for child, place, rank in level.children:
                tokens[child] = int(likely[place, rank])
            guesses |= {row: tuple(ids) for row, ids in zip(level.rows, likely.tolist(), strict=True)}
        return Draft(tuple(tokens), self.parents, guesses)
