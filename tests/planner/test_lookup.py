"""When drafts looked up in the text pay, and how long a chain."""

from __future__ import annotations

import pytest

from twofold.planner.acceptance import DEFAULT_STATISTICS
from twofold.planner.draft_choice import PassSeconds, choose_draft
from twofold.planner.lookup import (
    LENGTHS,
    MAX_MATCH_TOKENS,
    NO_LOOKUP,
    PRIOR,
    SHAPES,
    chain_probabilities,
    choose_lookup,
    class_of,
)


def test_classes_cover_every_length() -> None:
    assert len(PRIOR) == len(LENGTHS)
    assert [class_of(length) for length in LENGTHS] == list(range(len(LENGTHS)))
    assert class_of(5) == class_of(4) == 3
    assert class_of(MAX_MATCH_TOKENS) == class_of(10_000) == len(LENGTHS) - 1


def test_a_chain_ends_where_a_token_is_too_unlikely() -> None:
    half = [0.5] * len(LENGTHS)
    assert chain_probabilities(half, 3, 8, 0.1) == [0.5, 0.25, 0.125]
    assert chain_probabilities(half, 3, 2, 0.1) == [0.5, 0.25]
    assert chain_probabilities(half, 3, 8, 0.6) == []
    assert chain_probabilities(half, 3, 0, 0.0) == []
    # each further token has a match that is longer by one
    rising = [0.1, 1.0, *[0.5] * (len(LENGTHS) - 2)]
    assert chain_probabilities(rising, 1, 3, 0.0) == pytest.approx([0.1, 0.1, 0.05])


def linear(row: float) -> dict[int, float]:
    """Seconds of a verify pass whose further rows cost `row` of the first."""
    return {rows: 1 + row * (rows - 1) for rows in (1, *(nodes + 1 for nodes in SHAPES))}


def test_the_dearer_a_row_the_shorter_and_the_surer() -> None:
    chosen = [choose_lookup(linear(row)) for row in (0.0, 0.05, 0.2, 0.5, 0.7, 0.9)]
    assert chosen[0].nodes == max(SHAPES) and chosen[0].least_probability == 0
    assert [one.nodes for one in chosen] == sorted((one.nodes for one in chosen), reverse=True)
    least = [one.least_probability for one in chosen if one.nodes]
    assert least == sorted(least) and len(least) > 3
    assert chosen[3].least_probability == pytest.approx(0.5)
    assert chosen[-1] == NO_LOOKUP, "a row that costs a whole pass pays for nothing"


def test_a_tree_that_gains_much_asks_more_of_the_text() -> None:
    row = linear(0.2)
    alone, beside = choose_lookup(row), choose_lookup(row, gain=2.0)
    assert beside.least_probability == pytest.approx(2 * alone.least_probability)
    assert choose_lookup(row, gain=100.0) == NO_LOOKUP


def test_the_choice_of_drafts_has_both() -> None:
    cheap = PassSeconds({1: 1.0, 17: 1.2}, {1: 0.2, 4: 0.25})
    choice = choose_draft(DEFAULT_STATISTICS, cheap)
    assert choice.nodes and choice.lookup.nodes == 16
    assert choice.changes() == {
        "draft_nodes": choice.nodes,
        "draft_depth": choice.depth,
        "lookup_nodes": 16,
        "lookup_least": round(choice.lookup.least_probability, 3),
    }
    dear = choose_draft(DEFAULT_STATISTICS, PassSeconds({1: 1.0, 2: 1.5, 17: 9.0}, {1: 0.9, 4: 3.0}))
    assert dear.nodes == 0 and dear.lookup.nodes > 0, "without a draft pass the text still pays"
