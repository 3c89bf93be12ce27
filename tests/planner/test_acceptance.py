"""Tokens per check against reported trees, and against brute force."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from twofold.planner.acceptance import (
    DEFAULT_STATISTICS,
    MeasuredRanks,
    RankStatistics,
    chain_tokens,
    measured_ranks,
    tree_shape,
    tree_tokens,
)


def test_the_fitted_chain() -> None:
    assert chain_tokens(DEFAULT_STATISTICS, 8) == pytest.approx(4.63, abs=0.005)


@pytest.mark.parametrize("nodes, tokens", [(16, 5.23), (64, 6.46)])
def test_reported_trees_that_were_not_fitted(nodes: int, tokens: float) -> None:
    assert tree_tokens(DEFAULT_STATISTICS, nodes, 0)[0] == pytest.approx(tokens, rel=0.02)


def test_no_nodes_is_one_token() -> None:
    assert tree_tokens(DEFAULT_STATISTICS, 0, 8) == (1.0, 0)


def test_one_rank_makes_a_chain() -> None:
    greedy = RankStatistics((0.7,), 0.95, "test")
    assert tree_tokens(greedy, 5, 0) == (pytest.approx(chain_tokens(greedy, 5)), 5)


def test_best_first_is_the_best_tree() -> None:
    """Over every set of 4 paths of depth ≤ 3 and 2 ranks that is closed under parents."""
    statistics = RankStatistics((0.6, 0.25), 0.9, "test")
    paths = [path for depth in (1, 2, 3) for path in itertools.product((0, 1), repeat=depth)]

    def weight(path: tuple[int, ...]) -> float:
        product = 1.0
        for depth, rank in enumerate(path, 1):
            product *= statistics.probability(depth, rank)
        return product

    trees = [
        tree for tree in itertools.combinations(paths, 4) if all(len(path) == 1 or path[:-1] in tree for path in tree)
    ]
    best = max(1 + sum(weight(path) for path in tree) for tree in trees)
    assert tree_tokens(statistics, 4, 3)[0] == pytest.approx(best)


def test_more_nodes_never_yield_less() -> None:
    tokens = [tree_tokens(DEFAULT_STATISTICS, n, 0)[0] for n in range(40)]
    assert tokens == sorted(tokens)


def test_depth_is_respected_and_a_full_tree_ends() -> None:
    statistics = RankStatistics((0.5, 0.3), 1.0, "test")
    tokens, depth = tree_tokens(statistics, 1000, 2)
    assert depth == 2
    assert tokens == pytest.approx(1 + 0.8 + 0.64)


def report(*depths: Any, tokens: Any = 400) -> dict[str, Any]:
    """The part of an evaluation's report that holds ranks."""
    return {"draft": {"rank_frequencies": list(depths), "tokens": tokens}}


def test_measured_ranks_are_used_per_depth() -> None:
    found = measured_ranks(report([0.8, 0.1], [0.5, 0.2]))
    assert found is not None and "400 held-out tokens" in found.by
    assert [found.probability(depth, 0) for depth in (1, 2, 3, 9)] == [0.8, 0.5, 0.5, 0.5]
    assert found.probability(2, 1) == 0.2 and found.probability(1, 2) == 0
    assert chain_tokens(found, 3) == pytest.approx(1 + 0.8 + 0.4 + 0.2)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"draft": {}}, {"draft": None}, report(), report([]), report([2.0]), report(["x"]), report([0.5], tokens="?")],
)
def test_ranks_that_nobody_measured(wrong: dict[str, Any]) -> None:
    assert measured_ranks(wrong) is None


@pytest.mark.parametrize("nodes, depth", [(0, 0), (1, 0), (4, 4), (16, 8), (16, 0), (33, 2), (3, 8), (200, 64)])
def test_a_shape_is_level_by_level_with_siblings_of_different_ranks(nodes: int, depth: int) -> None:
    shape = tree_shape(DEFAULT_STATISTICS, nodes, depth)
    assert shape.nodes == len(shape.ranks) == len(shape.probabilities) == nodes
    assert list(shape.depths) == sorted(shape.depths)
    assert all(0 <= parent <= node for node, parent in enumerate(shape.parents))
    assert len(set(zip(shape.parents, shape.ranks, strict=True))) == nodes
    # a node's better siblings are in the tree: none is guessed in vain
    assert all(rank == 0 or (parent, rank - 1) in set(zip(shape.parents, shape.ranks, strict=True))
               for parent, rank in zip(shape.parents, shape.ranks, strict=True))  # fmt: skip
    assert shape.depth == (min(depth, nodes) if depth else shape.depth)
    assert shape.tokens == pytest.approx(1 + sum(shape.probabilities))


def test_a_chain_is_the_tree_as_deep_as_it_has_nodes() -> None:
    poor = RankStatistics((0.2, 0.19, 0.18), 0.5, "test")
    assert tree_shape(poor, 5, 5).parents == (0, 1, 2, 3, 4) and set(tree_shape(poor, 5, 5).ranks) == {0}
    assert tree_shape(poor, 5, 0).depth < 5


def test_a_tree_cut_where_the_room_ends() -> None:
    shape = tree_shape(DEFAULT_STATISTICS, 30, 6)
    for depth in range(8):
        cut = shape.above(depth)
        assert cut.depth == min(depth, 6) and cut.parents == shape.parents[: cut.nodes]
        assert cut.nodes == sum(0 < one <= depth for one in shape.depths)


def test_shapes_repeat_and_few_ranks_are_respected() -> None:
    uniform = MeasuredRanks((0.1,) * 8, 1.0, "test", ((0.1,) * 8,))  # everything ties
    assert tree_shape(uniform, 40, 3) == tree_shape(uniform, 40, 3)
    assert max(tree_shape(uniform, 40, 3, max_ranks=2).ranks) == 1
