"""Draft trees: which rows each level's pass gets, whom they attend to, and where the guesses go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from twofold.engine.draft import Draft, DraftTree
from twofold.planner.acceptance import RankStatistics, TreeShape, tree_shape

STATISTICS = RankStatistics((0.5, 0.3, 0.1), 0.9, "test")


def successor_ranks(tokens: Sequence[int], k: int) -> np.ndarray:
    """The draft thinks that t is followed by 10·t + 1, most likely, then 10·t + 2, …"""
    return np.array([[10 * token + 1 + rank for rank in range(k)] for token in tokens], np.int64)


def test_a_chain() -> None:
    asked: list[tuple[list[int], list[int]]] = []

    def guess(tokens: Sequence[int], parents: Sequence[int], k: int) -> np.ndarray:
        asked.append((list(tokens), list(parents)))
        return successor_ranks(tokens, k)

    draft = DraftTree(tree_shape(STATISTICS, 3, 3)).draft(4, 10**6, guess)
    assert (draft.tokens, draft.parents) == ((4, 41, 411, 4111), (-1, 0, 1, 2))
    assert asked == [([4], [-1]), ([41], [-1, 0]), ([411], [-1, 0, 1])]
    assert [draft.children(row) for row in range(4)] == [[1], [2], [3], []]
    assert draft.guesses[0][:3] == (41, 42, 43) and sorted(draft.guesses) == [0, 1, 2]


def test_no_nodes_need_no_pass() -> None:
    def guess(tokens: Sequence[int], parents: Sequence[int], k: int) -> np.ndarray:
        raise AssertionError("nothing to guess")

    for shape in (TreeShape((), (), ()), tree_shape(STATISTICS, 0, 0), tree_shape(STATISTICS, 9, 4).above(0)):
        assert DraftTree(shape).draft(4, 100, guess) == Draft((4,), (-1,), {})


@pytest.mark.parametrize("nodes, depth", [(1, 0), (5, 2), (16, 0), (16, 5), (33, 3), (64, 9)])
def test_every_node_continues_its_path(nodes: int, depth: int) -> None:
    """Each token spells the ranks on the way to it, and a draft row sees exactly its own path."""
    shape, computed = tree_shape(STATISTICS, nodes, depth), []

    def guess(tokens: Sequence[int], parents: Sequence[int], k: int) -> np.ndarray:
        computed.extend(tokens)
        assert len(parents) == len(computed)
        for row in range(len(parents) - len(tokens), len(parents)):
            parent = parents[row]
            assert (row == 0) == (parent == -1) and parent < len(parents) - len(tokens)
            assert parent == -1 or computed[row] // 10 == computed[parent]
        return successor_ranks(tokens, k)

    draft = DraftTree(shape).draft(7, 10**18, guess)
    assert len(draft.tokens) == nodes + 1 and len(set(draft.tokens)) == nodes + 1
    for node, (parent, rank) in enumerate(zip(shape.parents, shape.ranks, strict=True)):
        assert draft.tokens[node + 1] == 10 * draft.tokens[parent] + 1 + rank
        assert draft.parents[node + 1] == parent
    inner = [row for row in range(nodes + 1) if draft.children(row)]
    assert sorted(draft.guesses) == inner and computed == [draft.tokens[row] for row in inner]


def test_a_vocabulary_smaller_than_what_is_kept() -> None:
    shape = tree_shape(RankStatistics((0.2,) * 5, 1.0, "test"), 60, 3, max_ranks=3)
    assert max(shape.ranks) == 2

    def guess(tokens: Sequence[int], parents: Sequence[int], k: int) -> np.ndarray:
        assert k == 3
        return np.tile(np.arange(3), (len(tokens), 1))

    assert set(DraftTree(shape).draft(0, 3, guess).tokens) == {0, 1, 2}
