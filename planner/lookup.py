"""Drafts looked up in the text itself: where its last tokens stood before, what followed then may follow now.

Such a draft takes no draft pass, only its rows in the verify pass (prompt lookup: Saxena 2023; n-gram drafts of
llama.cpp and others). It pays where a row is cheap or the text repeats itself: edits of given code, lists, quotations.
How likely a token is follows from how many tokens agree before it. Planner and engine share that here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_MATCH_TOKENS = 32
"""Agreement beyond this tells nothing more."""
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Matched tokens from which on each class of matches begins."""
PRIOR = (0.19, 0.48, 0.58, 0.67, 0.79, 0.85, 0.93, 0.93, 0.98)
"""How often the token behind the earlier run came again, by class: counted over the 28,238 answer tokens of the shipped
conversations, written by SmolLM2-135M-Instruct. What a text itself shows soon outweighs it.
"""
PRIOR_WEIGHT = 16
"""Matches of a text that weigh as much as the prior."""
SHAPES = (1, 2, 4, 8, 16)
"""Chains that are compared."""
LEAST_GAIN = 1.1
"""A long match has to promise this much more than the step without it: most steps have none."""


def class_of(length: int) -> int:
    """The class of matches of `length` tokens, 1 or more."""
    return sum(length >= least for least in LENGTHS) - 1


@dataclass(frozen=True, slots=True)
class LookupChoice:
    """The plan's knobs: the longest chain that a step takes from the text, and how likely each of its tokens has to be
    (as likely as its row in the verify pass costs, in tokens).
    """

    nodes: int
    least_probability: float


NO_LOOKUP = LookupChoice(0, 0.0)


def chain_probabilities(by_class: Sequence[float], length: int, nodes: int, least: float) -> list[float]:
    """How likely each node of a chain behind a match of `length` tokens is to be reached, down to `least`.

    Where a token was right, the next one has a match that is longer by one.
    """
    reached: list[float] = []
    probability = 1.0
    for node in range(nodes):
        probability *= by_class[class_of(length + node)]
        if probability < least:
            break
        reached.append(probability)
    return reached


def choose_lookup(verify_seconds: Mapping[int, float], gain: float = 1.0) -> LookupChoice:
    """From measured seconds of a verify pass by rows (1, and every `SHAPES` node count plus 1).

    `gain`: tokens per second of the plan's own drafts over none.
    """
    plain, best, most = verify_seconds[1], NO_LOOKUP, gain * LEAST_GAIN
    for nodes in SHAPES:
        seconds = verify_seconds[nodes + 1]
        tokens = 1 + sum(chain_probabilities(PRIOR, MAX_MATCH_TOKENS, nodes, 0.0))
        if tokens * plain / seconds > most:
            row = max(0.0, seconds - plain) / (nodes * plain)
            most, best = tokens * plain / seconds, LookupChoice(nodes, min(1.0, row * gain))
    return best
