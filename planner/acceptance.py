"""Tokens per check from rank statistics, and the shape of the draft tree: one function for planner and engine.

`p[d][r]` is how often the verifier's token has rank r among the draft's at depth d. The tree is best-first: the N most
probable paths; it yields 1 + (sum of its paths' probabilities) tokens per check. A depth D means D draft passes: the
draft's own greedy chain reaches D, and what nodes are left go to the best places above. So D = N is a chain.

The default statistics are those reported for a 31B model whose draft reads the verifier's exact KV: recall@1, 2, 4, 8
of 0.853, 0.951, 0.983, 0.996 at depth 1. Deeper levels lose a constant factor, fitted to the one reported chain (8
nodes, 4.63 tokens); reported trees (16 nodes 5.23, 64 nodes 6.46) check it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_RECALL = ((1, 0.853), (2, 0.951), (4, 0.983), (8, 0.996))
_DEPTH_FACTOR = 0.97925
SPREAD = 0.15
"""Relative uncertainty of tokens per check for a model whose statistics nobody measured."""
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class RankStatistics:
    """Probability of each rank at depth 1, how it falls with depth, and who says so."""

    ranks: tuple[float, ...]
    depth_factor: float
    by: str

    def probability(self, depth: int, rank: int) -> float:
        """Probability that the verifier's token has `rank` at `depth` (1 = first draft level)."""
        return self.ranks[rank] * float(self.depth_factor ** (depth - 1)) if rank < len(self.ranks) else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredRanks(RankStatistics):
    """Rank frequencies measured per depth; deeper levels are taken to be like the deepest measured one."""

    by_depth: tuple[tuple[float, ...], ...] = ()

    def probability(self, depth: int, rank: int) -> float:
        table = self.by_depth[min(depth, len(self.by_depth)) - 1]
        return table[rank] if rank < len(table) else 0.0


def measured_ranks(measured: Mapping[str, Any]) -> MeasuredRanks | None:
    """The rank statistics that `twofold eval` left in a checkpoint (its report); None where it was never run."""
    try:
        found = measured["draft"]
        tables = tuple(tuple(float(p) for p in depth) for depth in found["rank_frequencies"])
        tokens = int(found["tokens"])
    except (KeyError, TypeError, ValueError):
        return None
    if not tables or not all(tables) or not all(0 <= p <= 1 for table in tables for p in table):
        return None
    return MeasuredRanks(tables[0], 1.0, f"rank statistics measured on {tokens} held-out tokens", tables)


PRIOR_WEIGHT = 200
"""Checks of a user's own that weigh as much as the statistics that came with the model."""


def learned_ranks(prior: RankStatistics, counts: Sequence[Sequence[int]]) -> RankStatistics:
    """`prior` corrected by what was counted: by depth − 1, counts of each rank and, last, of everything behind them."""
    if not any(sum(depth) for depth in counts):
        return prior
    tables = []
    for depth, counted in enumerate(counts, 1):
        total = sum(counted) + PRIOR_WEIGHT
        tables.append(
            tuple((n + PRIOR_WEIGHT * prior.probability(depth, rank)) / total for rank, n in enumerate(counted[:-1]))
        )
    checks = sum(counts[0])
    return MeasuredRanks(tables[0], 1.0, f"{prior.by}, corrected by {checks} checks here", tuple(tables))


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


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree without its tokens, level by level. Row 0 is the text's last token; node i (from 0) is row i + 1.

    Attributes:
        parents: the row that each node continues. ranks: which of its parent's guesses it is (0 = the likeliest).
        probabilities: how often a check is expected to reach each node.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    probabilities: tuple[float, ...]

    @property
    def nodes(self) -> int:
        return len(self.parents)

    @property
    def tokens(self) -> float:
        """What a check is expected to give."""
        return 1.0 + sum(self.probabilities)

    @property
    def depths(self) -> tuple[int, ...]:
        """Of each row, row 0 included."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Draft passes that it takes."""
        return self.depths[-1]

    def above(self, depth: int) -> TreeShape:
        """The same tree without what is deeper than `depth`: where the context has no room for more."""
        kept = sum(one <= depth for one in self.depths[1:])
        return TreeShape(self.parents[:kept], self.ranks[:kept], self.probabilities[:kept])


_Path = tuple[int, ...]
"""The ranks from the root to a node."""


def _best_paths(statistics: RankStatistics, nodes: int, max_depth: int, max_ranks: int) -> dict[_Path, float]:
    """The chosen nodes with their probabilities: the greedy chain down to `max_depth` (0: none), then best-first."""
    chosen: dict[_Path, float] = {}
    heap: list[tuple[float, int, _Path]] = []
    limit, n_ranks = max_depth or MAX_DEPTH, min(len(statistics.ranks), max_ranks)

    def choose(path: _Path, probability: float) -> None:
        chosen[path] = probability
        push_children(path, probability)

    def push_children(path: _Path, probability: float) -> None:
        depth = len(path) + 1
        if depth <= limit:
            for rank in range(n_ranks):
                heapq.heappush(heap, (-probability * statistics.probability(depth, rank), depth, (*path, rank)))

    push_children((), 1.0)
    path: _Path = ()
    while len(path) < min(max_depth, nodes):
        before, path = path, (*path, 0)
        choose(path, chosen.get(before, 1.0) * statistics.probability(len(path), 0))
    while heap and len(chosen) < nodes:
        negative, _depth, path = heapq.heappop(heap)
        if path not in chosen:
            choose(path, -negative)
    return chosen


def tree_shape(statistics: RankStatistics, nodes: int, depth: int, max_ranks: int = 1 << 30) -> TreeShape:
    """The tree of up to `nodes` nodes whose greedy chain is `depth` long (0: as deep as the statistics say).

    No node has more than `max_ranks` children (the vocabulary, where that is tiny).
    """
    chosen = _best_paths(statistics, nodes, depth, max_ranks)
    order = sorted(chosen, key=lambda path: (len(path), path))
    rows = {path: row for row, path in enumerate([(), *order])}
    return TreeShape(
        parents=tuple(rows[path[:-1]] for path in order),
        ranks=tuple(path[-1] for path in order),
        probabilities=tuple(chosen[path] for path in order),
    )


def tree_tokens(statistics: RankStatistics, nodes: int, depth: int) -> tuple[float, int]:
    """Expected tokens per check of `tree_shape`'s tree, and the draft passes that it takes."""
    shape = tree_shape(statistics, nodes, depth)
    return shape.tokens, shape.depth


def chain_tokens(statistics: RankStatistics, length: int) -> float:
    """Expected tokens per check of a chain of `length` nodes."""
    return tree_shape(statistics, length, length).tokens
