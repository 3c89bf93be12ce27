"""Looking drafts up in the text itself, and counting how often what was found came again.

The text's tokens are followed in one growing array, so that a step copies only what is new. Nothing is counted of what
a looked-up draft could not have shown: a token counts where all before it came as found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.draft import Draft
from twofold.planner.lookup import (
    LENGTHS,
    MAX_MATCH_TOKENS,
    PRIOR,
    PRIOR_WEIGHT,
    LookupChoice,
    chain_probabilities,
    class_of,
)


@dataclass(frozen=True, slots=True)
class Found:
    """What a look into the text gave: how many tokens agree, and what follows then, as long as a chain may be and one
    more. `tokens` repeats from its start where the earlier run reaches the end of the text.
    """

    length: int
    tokens: tuple[int, ...]


class LookupCounts:
    """By class of matches: how many there were, and how often the next token came as found."""

    def __init__(self) -> None:
        self._tries, self._hits = [0] * len(LENGTHS), [0] * len(LENGTHS)

    @property
    def probabilities(self) -> list[float]:
        """The prior, corrected by what was counted."""
        return [
            (hits + PRIOR_WEIGHT * prior) / (tries + PRIOR_WEIGHT)
            for hits, tries, prior in zip(self._hits, self._tries, PRIOR, strict=True)
        ]

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """(matches, hits) of each class."""
        return tuple(zip(self._tries, self._hits, strict=True))

    def note(self, found: Found, emitted: Sequence[int]) -> None:
        """Count along `emitted`, up to the first token that came otherwise."""
        for i, (expected, token) in enumerate(zip(found.tokens, emitted, strict=False)):
            kind = class_of(found.length + i)
            self._tries[kind] += 1
            if expected != token:
                return
            self._hits[kind] += 1


class TextLookup:
    """Chains of at most `choice.nodes` tokens; `text` has room for all of the text, `ops` has `last_match`."""

    def __init__(self, choice: LookupChoice, text: NDArray[np.int32], ops: Any) -> None:
        self.choice, self.counts = choice, LookupCounts()
        self._ops, self._text, self._n_known = ops, text, 0

    def keep(self, n_tokens: int) -> None:
        """Only the text's first `n_tokens` stay as they are."""
        self._n_known = min(self._n_known, n_tokens)

    def find(self, tokens: Sequence[int]) -> Found | None:
        """What followed where the end of the text stood before; None where it did not, or nothing is looked up."""
        if not self.choice.nodes:
            return None
        n, known = len(tokens), self._n_known
        self._text[known:n] = tokens[known:]
        self._n_known = n
        length, behind = self._ops.last_match(self._text[:n], MAX_MATCH_TOKENS)
        if not length:
            return None
        follows = self._text[behind : min(n, behind + self.choice.nodes + 1)].tolist()
        repeats = -(-(self.choice.nodes + 1) // len(follows))
        return Found(length, tuple((follows * repeats)[: self.choice.nodes + 1]))

    def draft(self, token: int, found: Found, room: int, tokens_wanted: float) -> Draft | None:
        """A chain behind `token` of at most `room` nodes; None where it is expected to give fewer than
        `tokens_wanted`.
        """
        nodes = min(room, self.choice.nodes)
        reached = chain_probabilities(self.counts.probabilities, found.length, nodes, self.choice.least_probability)
        if not reached or 1 + sum(reached) < tokens_wanted:
            return None
        chain = found.tokens[: len(reached)]
        return Draft((token, *chain), tuple(range(-1, len(chain))), {})

    def note(self, found: Found, emitted: Sequence[int], *, was_drafted: bool) -> None:
        """Count a step. Behind another draft's first token only easy ones were accepted: they are not counted."""
        self.counts.note(found, emitted if was_drafted else emitted[:1])
