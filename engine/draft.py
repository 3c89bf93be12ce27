"""Drafts: tokens guessed ahead of the verifier, as a tree of rows. Here a chain drafted by the base alone.

Row 0 of a verify pass is the last token of the text (not yet in the cache); nodes follow as rows 1…N. The base drafts
in the one KV cache: its K and V go to the slots behind the committed ones, where the verify pass overwrites them with
exact ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BasePass = Callable[[int, int], NDArray[np.float32]]
"""(token, rows already drafted) → logits [vocab] of one base-only row behind them."""


@dataclass(frozen=True, slots=True)
class Draft:
    """`tokens[0]` is the text's last token; `parents[r]` is the row that row r continues (−1 for row 0)."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def children(self, row: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == row and child]


def chain_length(draft_nodes: int, draft_depth: int) -> int:
    """How many nodes a chain may have: the plan's nodes, no deeper than its depth (0: no limit)."""
    return min(draft_nodes, draft_depth) if draft_depth else draft_nodes


def draft_chain(token: int, n_nodes: int, base_pass: BasePass) -> Draft:
    """The base's own greedy continuation of `token`, one row a pass; no passes for `n_nodes` = 0."""
    tokens = [token]
    for drafted in range(n_nodes):
        tokens.append(int(np.argmax(base_pass(tokens[-1], drafted))))
    return Draft(tuple(tokens), tuple(range(-1, n_nodes)))
