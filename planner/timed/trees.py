"""For each depth and number of nodes the best-first tree: the tokens that it is expected to give, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twofold.planner.acceptance import SPREAD, RankStatistics, tree_shape
from twofold.planner.timed.passes import TimedPasses
from twofold.profiles.figures import Figure, reasoned

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
DEPTHS = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class TreeCost:
    """One tree. `gain` is its tokens per second over those without a draft."""

    nodes: int
    depth: int
    tokens: Figure
    step_ms: Figure
    gain: float

    def to_json(self) -> dict[str, object]:
        return {
            "nodes": self.nodes,
            "depth": self.depth,
            "tokens_per_check": self.tokens.to_json(),
            "step_ms": self.step_ms.to_json(),
            "gain": round(self.gain, 4),
        }


def tree_costs(
    passes: TimedPasses,
    statistics: RankStatistics,
    context: int,
    source: str,
    nodes: Sequence[int] = NODES,
    depths: Sequence[int] = DEPTHS,
) -> list[TreeCost]:
    """Every budget with every depth that it allows, behind `context` committed positions; none first."""
    plain = passes.step(tree_shape(statistics, 0, 0), context).likely
    found = []
    for n, depth in _shapes(nodes, depths):
        shape = tree_shape(statistics, n, depth, passes.spec.vocab_size)
        step, extra = passes.step(shape, context), shape.tokens - 1
        tokens = reasoned(
            round(shape.tokens, 4),
            "tokens",
            f"best-first tree: {statistics.by}",
            low=round(1 + extra * (1 - SPREAD), 4),
            high=round(1 + extra * (1 + SPREAD), 4),
        )
        low, likely, high = (round(one * 1e3, 4) for one in (step.low, step.likely, step.high))
        by = f"{shape.depth} draft passes and a check of {n + 1} rows behind {context} tokens: {source}"
        milliseconds = reasoned(likely, "ms", by, low=low, high=high)
        found.append(TreeCost(n, depth, tokens, milliseconds, shape.tokens / step.likely * plain))
    return found


def _shapes(nodes: Sequence[int], depths: Sequence[int]) -> Iterator[tuple[int, int]]:
    yield 0, 0
    for n in nodes:
        for depth in depths:
            if depth <= n:
                yield n, depth
