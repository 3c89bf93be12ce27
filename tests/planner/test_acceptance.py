"""Tokens per check against reported trees, and against brute force."""

from __future__ import annotations

import itertools

import pytest

from twofold.planner.acceptance import DEFAULT_STATISTICS, RankStatistics, chain_tokens, tree_tokens


def test_the_fitted_chain() -> None:
    assert chain_tokens(DEFAULT_STATISTICS, 8) == pytest.approx(4.63, abs=0.005)


@pytest.mark.parametrize("nodes, tokens", [(16, 5.23), (64, 6.46)])
def test_reported_trees_that_were_not_fitted(nodes: int, tokens: float) -> None:
    assert tree_tokens(DEFAULT_STATISTICS, nodes, 32)[0] == pytest.approx(tokens, rel=0.02)


def test_no_nodes_is_one_token() -> None:
    assert tree_tokens(DEFAULT_STATISTICS, 0, 8) == (1.0, 0)


def test_one_rank_makes_a_chain() -> None:
    greedy = RankStatistics((0.7,), 0.95, "test")
    assert tree_tokens(greedy, 5, 9) == (pytest.approx(chain_tokens(greedy, 5)), 5)


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
    tokens = [tree_tokens(DEFAULT_STATISTICS, n, 8)[0] for n in range(40)]
    assert tokens == sorted(tokens)


def test_depth_is_respected_and_a_full_tree_ends() -> None:
    statistics = RankStatistics((0.5, 0.3), 1.0, "test")
    tokens, depth = tree_tokens(statistics, 1000, 2)
    assert depth == 2
    assert tokens == pytest.approx(1 + 0.8 + 0.64)
