"""Accepting a draft: the verifier chooses as if there were none, and the walk follows the child that equals its choice.

This is exact for any tree and any sampling: each emitted token is the verifier's own choice given exactly the tokens
before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twofold.engine.draft import Draft

ChooseAt = Callable[[int, list[int]], int]
"""(row, tokens emitted so far in this step) → the verifier's token after that row."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """`path`: rows whose K and V stay, row 0 first. `tokens`: what the step emits, one per row of the path."""

    path: tuple[int, ...]
    tokens: tuple[int, ...]


def accept(draft: Draft, choose_at: ChooseAt) -> Accepted:
    """Walk from row 0 along the verifier's choices."""
    path, emitted = [0], [choose_at(0, [])]
    while True:
        following = next((row for row in draft.children(path[-1]) if draft.tokens[row] == emitted[-1]), None)
        if following is None:
            return Accepted(tuple(path), tuple(emitted))
        path.append(following)
        emitted.append(choose_at(following, list(emitted)))
