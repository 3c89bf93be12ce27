"""The best-first tree against a dynamic programme over depths and numbers of nodes, as Sequoia's."""

from __future__ import annotations

import functools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.planner.acceptance import MeasuredRanks, tree_shape, tree_tokens

MAX_NODES, MAX_DEPTH, MAX_RANKS = 9, 5, 4


@st.composite
def statistics(draw: st.DrawFn) -> MeasuredRanks:
    """Rank frequencies by depth: each row sums to at most 1 and falls with the rank, as guesses are sorted."""
    tables = []
    for _ in range(draw(st.integers(1, MAX_DEPTH))):
        weights = sorted((draw(st.floats(0.01, 1)) for _ in range(draw(st.integers(1, MAX_RANKS)))), reverse=True)
        total = sum(weights) / draw(st.floats(0.3, 1))
        tables.append(tuple(weight / total for weight in weights))
    return MeasuredRanks(tables[0], 1.0, "random", tuple(tables))


def best_tree(ranks: MeasuredRanks, nodes: int, depth: int, *, chain: int = 0) -> float:
    """The most tokens that a tree of at most `nodes` nodes and `depth` levels gives, the root's own included.

    `inside(n, d)`: what n nodes below a node at depth d add, for each time that node is reached. They are shared out
    among its children, rank by rank. `chain` levels of first guesses must be part of the tree.
    """
    n_ranks = len(ranks.ranks)

    @functools.cache
    def inside(n: int, at: int, forced: bool) -> float:
        if forced and at < chain:
            rest = range(n) if n else range(0)
            return max(
                (spread(n - 1 - below, at, 1) + reach(at, 0) * (1 + inside(below, at + 1, True)) for below in rest),
                default=-math.inf,  # no room for the chain
            )
        return 0.0 if n == 0 or at == depth else spread(n, at, 0)

    @functools.cache
    def spread(n: int, at: int, rank: int) -> float:
        """n nodes among the children of ranks `rank` and up."""
        if n == 0 or rank == n_ranks or at == depth:
            return 0.0
        without = spread(n, at, rank + 1)
        with_it = (
            spread(n - 1 - below, at, rank + 1) + reach(at, rank) * (1 + inside(below, at + 1, False))
            for below in range(n)
        )
        return max(without, *with_it)

    def reach(at: int, rank: int) -> float:
        return ranks.probability(at + 1, rank)

    return 1.0 + inside(nodes, 0, chain > 0)


@settings(max_examples=150, deadline=None)
@given(statistics(), st.integers(0, MAX_NODES))
def test_the_best_first_tree_of_any_depth_is_the_best_there_is(ranks: MeasuredRanks, nodes: int) -> None:
    found, depth = tree_tokens(ranks, nodes, 0)
    assert found == pytest.approx(best_tree(ranks, nodes, MAX_NODES), rel=1e-9)
    for limit in range(1, depth + 1):
        # down to the depth that it has by itself, asking for less cuts nothing that could be put to better use
        assert tree_tokens(ranks, nodes, limit)[0] == pytest.approx(best_tree(ranks, nodes, limit), rel=1e-9)


@settings(max_examples=150, deadline=None)
@given(statistics(), st.integers(1, MAX_NODES), st.integers(1, MAX_NODES))
def test_a_tree_made_deeper_is_the_best_that_holds_its_chain(ranks: MeasuredRanks, nodes: int, depth: int) -> None:
    chain = min(depth, nodes)
    shape = tree_shape(ranks, nodes, depth)
    assert shape.tokens == pytest.approx(best_tree(ranks, nodes, depth, chain=chain), rel=1e-9)
    assert shape.tokens <= best_tree(ranks, nodes, depth) + 1e-9


def test_the_programme_itself_on_trees_that_can_be_counted() -> None:
    ranks = MeasuredRanks((0.6, 0.3), 1.0, "test", ((0.6, 0.3), (0.5, 0.1)))
    one, two, three = (best_tree(ranks, nodes, 8) for nodes in (1, 2, 3))
    assert (one, two, three) == pytest.approx((1.6, 1.9, 2.2))
    assert best_tree(ranks, 3, 1) == pytest.approx(1.9)  # only two ranks are known
    assert best_tree(ranks, 2, 2, chain=2) == pytest.approx(1 + 0.6 + 0.3)


def test_more_depth_never_hurts_the_free_programme() -> None:
    ranks = MeasuredRanks((0.7, 0.1), 1.0, "test", ((0.7, 0.1), (0.6, 0.2), (0.5, 0.3)))
    values = [best_tree(ranks, 7, depth) for depth in range(1, 7)]
    assert values == sorted(values)
