"""The space that a search walks: what may be chosen, and one choice.

Quality knobs (residual bits, KV type) are listed only at or above the user's floor; a search never goes below it.
How many residuals live in VRAM is a share of what the card has left once everything else is placed, so that the other
knobs keep their meaning when it changes: 1 fills the card, and more than that is a point that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from twofold.planner.knobs import Knobs
from twofold.planner.plan import KvType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from optuna.trial import Trial

SHARE_STEPS = 20
DRAFT_NODES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PREFILL_CHUNKS = (32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class Point:
    """One choice; a tree is no deeper than its nodes.

    `resident_steps` twentieths of the card's remaining memory hold residuals (0 without a card).
    """

    residual_bits: int
    kv_type: KvType
    draft_nodes: int
    draft_depth: int
    prefill_chunk: int
    threads: int
    resident_steps: int = 0

    @classmethod
    def of(cls, knobs: Knobs, resident_steps: int = 0) -> Point:
        """The point that given knobs stand at."""
        return cls(
            residual_bits=knobs.residual_bits,
            kv_type=knobs.k_type,
            draft_nodes=knobs.draft_nodes,
            draft_depth=max(1, knobs.draft_depth),
            prefill_chunk=knobs.prefill_chunk,
            threads=knobs.threads,
            resident_steps=resident_steps,
        )


@dataclass(frozen=True, slots=True)
class Space:
    """What a search may choose from; each tuple is ascending and not empty."""

    residual_bits: tuple[int, ...]
    kv_types: tuple[KvType, ...]
    draft_nodes: tuple[int, ...]
    max_depth: int
    prefill_chunks: tuple[int, ...]
    threads: tuple[int, ...]
    resident_steps: tuple[int, ...] = (0,)

    def suggest(self, trial: Trial) -> Point:
        """Ask a trial for a point."""
        kind = trial.suggest_categorical("kv_type", self.kv_types)
        nodes = _ordered(trial, "draft_nodes", self.draft_nodes)
        return Point(
            residual_bits=_ordered(trial, "residual_bits", self.residual_bits),
            kv_type=kind,
            draft_nodes=nodes,
            draft_depth=min(trial.suggest_int("draft_depth", 1, self.max_depth), max(1, nodes)),
            prefill_chunk=_ordered(trial, "prefill_chunk", self.prefill_chunks),
            threads=_ordered(trial, "threads", self.threads),
            resident_steps=_ordered(trial, "resident_steps", self.resident_steps),
        )

    def enqueued(self, point: Point) -> dict[str, int | str]:
        """The parameters under which `suggest` returns `point`.

        Raises:
            ValueError: when the point is not in the space.
        """
        found: dict[str, int | str] = {}
        for name, values in self._choices().items():
            value = getattr(point, name)
            if value not in values:
                raise ValueError(f"not in the space: {name} = {value}, one of {values}")
            found[name] = value if name in ("kv_type", "draft_depth") else values.index(value)
        return found

    def point_of(self, params: Mapping[str, Any]) -> Point | None:
        """The point of a trial's parameters, which may come from anywhere; None where they name none of this space."""
        found: dict[str, Any] = {}
        for name, values in self._choices().items():
            given = params.get(name)
            if name not in ("kv_type", "draft_depth"):
                is_index = isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(values)
                given = values[given] if is_index and given is not None else None
            if given not in values:
                return None
            found[name] = given
        point = Point(**found)
        return replace(point, draft_depth=min(point.draft_depth, max(1, point.draft_nodes)))

    @property
    def signature(self) -> str:
        """All choices, in one line: what two studies must have in common to share trials."""
        return "; ".join(f"{name} {list(values)}" for name, values in sorted(self._choices().items()))

    def lines(self, point: Point) -> Iterator[Point]:
        """Points that differ in one knob, by however much: a better place may lie behind a worse one (cores of another
        kind, a tree that pays only when it is large).
        """
        for name, values in self._choices().items():
            yield from (replace(point, **{name: value}) for value in values if value != getattr(point, name))

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Points that differ in one knob by one step, or in size and depth of the tree by one step each."""
        choices = self._choices()
        for name in choices:
            yield from (replace(point, **{name: value}) for value in self._beside(point, name))
        for nodes in self._beside(point, "draft_nodes"):
            for depth in self._beside(point, "draft_depth"):
                yield replace(point, draft_nodes=nodes, draft_depth=min(depth, max(1, nodes)))

    def _beside(self, point: Point, name: str) -> Iterator[Any]:
        values = self._choices()[name]
        index = values.index(getattr(point, name))
        return (values[other] for other in (index + 1, index - 1) if 0 <= other < len(values))

    def _choices(self) -> dict[str, tuple[Any, ...]]:
        return {
            "draft_nodes": self.draft_nodes,
            "draft_depth": tuple(range(1, self.max_depth + 1)),
            "prefill_chunk": self.prefill_chunks,
            "resident_steps": self.resident_steps,
            "threads": self.threads,
            "residual_bits": self.residual_bits,
            "kv_type": self.kv_types,
        }

    def points(self) -> Iterator[Point]:
        """All of them: for brute force, where the space is small enough. No tree is deeper than its nodes."""
        depths = range(1, self.max_depth + 1)
        for bits, kind, nodes, depth, chunk, threads, steps in product(
            self.residual_bits,
            self.kv_types,
            self.draft_nodes,
            depths,
            self.prefill_chunks,
            self.threads,
            self.resident_steps,
        ):
            if depth <= max(1, nodes):
                yield Point(bits, kind, nodes, depth, chunk, threads, steps)


def _ordered(trial: Trial, name: str, values: tuple[int, ...]) -> int:
    """One of ascending values, by index: neighbours are near each other for the sampler, whatever their distance."""
    index: int = trial.suggest_int(name, 0, len(values) - 1)
    return values[index]
