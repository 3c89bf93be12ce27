"""Tokens per check from rank statistics and the shape of the draft tree.

`p[d][r]` is how often the verifier's token has rank r among the draft's at depth d. The best-first tree takes the N
most probable paths; it yields 1 + (sum of its paths' probabilities) tokens per check. A chain is the tree of rank 0
only.

The default statistics are those reported for a 31B model whose draft reads the verifier's exact KV: recall@1, 2, 4, 8
of 0.853, 0.951, 0.983, 0.996 at depth 1. Deeper levels lose a constant factor, fitted to the one reported chain (8
nodes, 4.63 tokens); reported trees (16 nodes 5.23, 64 nodes 6.46) check it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

_RECALL = ((1, 0.853), (2, 0.951), (4, 0.983), (8, 0.996))
_DEPTH_FACTOR = 0.97925
SPREAD = 0.15
"""Relative uncertainty of tokens per check for a model whose statistics nobody measured."""


@dataclass(frozen=True, slots=True)
class RankStatistics:
    """Probability of each rank at depth 1, how it falls with depth, and who says so."""

    ranks: tuple[float, ...]
    depth_factor: float
    by: str

    def probability(self, depth: int, rank: int) -> float:
        """Probability that the verifier's token has `rank` at `depth` (1 = first draft level)."""
        return self.ranks[rank] * float(self.depth_factor ** (depth - 1)) if rank < len(self.ranks) else 0.0


def _ranks_from_recall(recall: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
    ranks: list[float] = []
    previous = 0.0
    for size, value in recall:
        new = size - len(ranks)
        ranks.extend([(value - previous) / new] * new)
        previous = value
    return tuple(ranks)


DEFAULT_STATISTICS = RankStatistics(
    _ranks_from_recall(_RECALL), _DEPTH_FACTOR, "rank statistics reported for a 31B model with exact KV"
)


def tree_tokens(statistics: RankStatistics, nodes: int, max_depth: int) -> tuple[float, int]:
    """Expected tokens per check of the best-first tree of `nodes` nodes, and the depth that it reaches."""
    total, deepest = 1.0, 0
    heap: list[tuple[float, int, int]] = []

    def push_children(probability: float, depth: int) -> None:
        if depth < max_depth:
            for rank in range(len(statistics.ranks)):
                heapq.heappush(heap, (-probability * statistics.probability(depth + 1, rank), depth + 1, rank))

    push_children(1.0, 0)
    for _ in range(nodes):
        if not heap:
            break
        negative, depth, _rank = heapq.heappop(heap)
        total -= negative
        deepest = max(deepest, depth)
        push_children(-negative, depth)
    return total, deepest


def chain_tokens(statistics: RankStatistics, length: int) -> float:
    """Expected tokens per check of a chain of `length` nodes."""
    total, path = 1.0, 1.0
    for depth in range(1, length + 1):
        path *= statistics.probability(depth, 0)
        total += path
    return total
