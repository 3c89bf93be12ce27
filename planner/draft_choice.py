"""Whether drafting pays on the CPU, and with which tree: measured pass times against rank statistics.

A step costs one draft pass per level of the tree, as wide as that level has rows with children, and one verify pass
over all rows; it gives what the statistics expect of the tree. Base and residual share the processor there, so only
measured times can say which is faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from twofold.planner import lookup
from twofold.planner.acceptance import RankStatistics, TreeShape, tree_shape
from twofold.planner.lookup import NO_LOOKUP, LookupChoice

SHAPES = (
    *((nodes, nodes) for nodes in (1, 2, 3, 4, 5, 6, 8)),
    *((4, 2), (6, 3), (8, 4), (8, 5), (12, 5), (16, 5), (16, 8), (24, 8), (32, 8)),
)
"""Draft nodes and passes that are compared: chains, then trees."""
LEAST_GAIN = 1.03
"""A draft has to promise this much more: expectations are off by a few percent, and no draft is simpler."""


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Measured seconds of a pass by its rows, head and choice of tokens included; at least one row each."""

    verify: Mapping[int, float]
    draft: Mapping[int, float]

    def __post_init__(self) -> None:
        for times in (self.verify, self.draft):
            if 1 not in times or not all(rows >= 1 and seconds > 0 for rows, seconds in times.items()):
                raise ValueError(f"pass times start at one row and are positive, got {dict(times)}")

    def step(self, shape: TreeShape) -> float:
        """Seconds of one step with this tree."""
        depths = shape.depths
        widths = Counter(depths[row] for row in set(shape.parents))
        return _at(self.verify, shape.nodes + 1) + sum(_at(self.draft, rows) for rows in widths.values())


def _at(times: Mapping[int, float], rows: int) -> float:
    """Interpolated between measured widths, and carried on beyond the widest by the last slope (never downwards)."""
    if rows in times:
        return times[rows]
    known = sorted(times)
    if len(known) == 1:
        return times[known[0]] * rows
    above = next((width for width in known if width > rows), known[-1])
    below = known[known.index(above) - 1]
    slope = (times[above] - times[below]) / (above - below)
    return times[below] + (slope if rows < above else max(slope, 0.0)) * (rows - below)


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """The plan's draft knobs, and what the tree is expected to bring: tokens per second over no draft's."""

    nodes: int
    depth: int
    gain: float
    lookup: LookupChoice = NO_LOOKUP

    def changes(self) -> dict[str, object]:
        """The knobs by their names in `Knobs` and `Plan`."""
        return {
            "draft_nodes": self.nodes,
            "draft_depth": self.depth,
            "lookup_nodes": self.lookup.nodes,
            "lookup_least": round(self.lookup.least_probability, 3),
        }


def choose_draft(statistics: RankStatistics, times: PassSeconds) -> DraftChoice:
    """The shape with the most tokens per second; none where no shape is at least `LEAST_GAIN` faster.

    Beside it, how much of a draft a step may look up in the text itself.
    """
    plain = 1.0 / _at(times.verify, 1)
    best = DraftChoice(0, 0, 1.0)
    for nodes, depth in SHAPES:
        shape = tree_shape(statistics, nodes, depth)
        gain = shape.tokens / times.step(shape) / plain
        if gain > max(best.gain, LEAST_GAIN):
            best = DraftChoice(nodes, depth, gain)
    checks = {rows: _at(times.verify, rows) for rows in (1, *(nodes + 1 for nodes in lookup.SHAPES))}
    return replace(best, lookup=lookup.choose_lookup(checks, best.gain))
