"""`bench --kernels`: what passes are made of, as `KernelTiming` rows from which the planner adds up its seconds.

Four sweeps, each in interleaved rounds: the checkpoint's own passes in parts, for every width of a verify and a draft
pass; attention by context and type of cache; Linears with other residual widths; what a step takes beside its kernels.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twofold.engine.backend import Backend
from twofold.engine.bench.beside import time_beside
from twofold.engine.bench.parts import Clock, Part, PassParts, Sample, layers_to_time
from twofold.engine.bench.widths import with_width
from twofold.engine.checkpoint import Checkpoint
from twofold.kernels.naive.kv_blocks import KvType
from twofold.kernels.naive.packing import RESIDUAL_BITS
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.planner.plan import Plan
from twofold.planner.timed import names
from twofold.profiles.activations import Activations
from twofold.profiles.hardware import KernelTiming
from twofold.profiles.series import Series

Key = tuple[str, str, int, int]
"""Operation, shape, bits, rows."""
Tell = Callable[[str, float], None]
Wanted = TypeVar("Wanted")
MOST_HEAD_ROWS = 33
"""A wider pass is a prompt's, which needs no head."""
OVERHEAD_ROWS = 3
"""Narrow passes tell what cutting costs: it does not grow with rows, and there it is the largest share."""
BY = "processor time of the calling thread, in passes over the model's own weights in their order"


@dataclass(frozen=True, slots=True)
class Grid:
    """What is timed. `long_rows` are the widest passes timed behind more than `short` positions."""

    verify_rows: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 25, 33, 64)
    draft_rows: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12)
    attention_rows: tuple[int, ...] = (1, 3, 5, 9, 17, 64)
    contexts: tuple[int, ...] = (64, 512, 4096)
    short: int = 512
    long_rows: int = 17
    width_rows: tuple[int, ...] = (1, 2, 3, 5, 9, 17, 33)
    widths: tuple[int, ...] = RESIDUAL_BITS
    own_context: int = 128
    rounds: int = 7
    least_rounds: int = 3
    seconds: float = 45.0
    """Of a sweep: no round is begun later, once there are `least_rounds`."""

    def within(self, context_length: int) -> tuple[int, ...]:
        """Contexts that the model has room for, beside the widest pass."""
        room = max(1, context_length - max(self.verify_rows))
        found = {one for one in self.contexts if one <= room}
        return tuple(sorted(found if len(found) > 1 else found | {room}))


@dataclass(slots=True)
class Collected:
    """Microseconds a call by key, and what ended each."""

    samples: dict[Key, list[float]] = field(default_factory=dict)
    ended: dict[Key, str] = field(default_factory=dict)

    def add(self, key: Key, seconds: float, ended_by: str) -> None:
        self.samples.setdefault(key, []).append(max(seconds, 1e-9) * 1e6)
        self.ended[key] = ended_by

    def timings(self, isa: str, threads: int, activations: Activations) -> list[KernelTiming]:
        return [
            KernelTiming(
                op=key[0],
                shape=key[1],
                bits=key[2],
                rows=key[3],
                isa=isa,
                threads=threads,
                latency_us=Series(tuple(found), self.ended[key]).figure("us", BY),
                activations=activations,
            )
            for key, found in self.samples.items()
        ]


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows, and by (rows, with residual) how whole passes compared with the sum of their parts, which were scaled
    to it.
    """

    timings: tuple[KernelTiming, ...]
    agreement: dict[tuple[int, bool], float]

    def to_json(self) -> dict[str, Any]:
        rows = [one.model_dump(mode="json", exclude={"latency_us"}) for one in self.timings]
        return {
            "timings": [
                row | {"latency_us": one.latency_us.to_json()} for row, one in zip(rows, self.timings, strict=True)
            ],
            "whole_over_parts": [
                {"rows": rows, "residual": residual, "ratio": round(ratio, 4)}
                for (rows, residual), ratio in self.agreement.items()
            ],
        }


class TimingBench:
    """Times one checkpoint on one backend.

    Args:
        plan: of the engine whose steps are timed (its threads, context and activations).
        least_bytes: of base codes that the timed layers hold together: several times the caches.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        backend: Backend,
        plan: Plan,
        least_bytes: int,
        grid: Grid | None = None,
        tell: Tell = lambda *_: None,
        clock: Clock = time.thread_time,
    ) -> None:
        self._checkpoint, self._backend, self._plan = checkpoint.under(plan.activations), backend, plan
        self._grid, self._tell, self._clock = grid or Grid(), tell, clock
        self._n_layers = layers_to_time(checkpoint.spec, checkpoint.weights(), least_bytes)
        self._found = Collected()
        self._overhead = 0.0
        self._agreement: dict[tuple[int, bool], float] = {}

    def run(self, isa: str) -> Measured:
        """All sweeps.

        Raises:
            EngineUnavailable: without the native kernels.
        """
        self._own_passes()
        self._attention()
        self._other_widths()
        self._tell("steps", 0)
        for key, seconds in time_beside(self._checkpoint, self._plan, self._grid.draft_rows, self._clock):
            self._found.add(key, seconds, "rounds asked for")
        timings = self._found.timings(isa, self._plan.threads, self._plan.activations)
        return Measured(tuple(timings), self._agreement)

    def _sweep(self, stage: str, wanted: Sequence[Wanted], take: Callable[[Wanted], None]) -> str:
        """Rounds over all that is wanted, every other one in reverse; returns what ended them."""
        grid, started, done = self._grid, time.perf_counter(), 0
        while True:
            self._tell(stage, done / grid.rounds)
            if done >= grid.rounds:
                return "rounds asked for"
            if done >= grid.least_rounds and time.perf_counter() - started >= grid.seconds:
                return "time limit"
            for one in wanted[:: 1 if done % 2 == 0 else -1]:
                take(one)
            done += 1

    def _parts(self, context: int, kind: KvType, groups: Mapping[str, SplitWeights] | None = None) -> PassParts:
        widest = max(*self._grid.verify_rows, *self._grid.attention_rows)
        return PassParts(
            self._checkpoint, self._backend, self._n_layers, context, widest, kind, groups, clock=self._clock
        )

    def _own_passes(self) -> None:
        grid = self._grid
        context = min(grid.own_context, max(grid.within(self._checkpoint.spec.context_length)))
        passes = self._parts(context, "f16")
        wanted = [(n, True) for n in grid.verify_rows] + [(n, False) for n in grid.draft_rows]
        samples: dict[tuple[int, bool], list[Sample]] = {one: [] for one in wanted}
        heads: dict[tuple[int, bool], list[float]] = {one: [] for one in wanted}
        for rows, residual in wanted:  # pages, tapes, scratch
            passes.sample(rows, context, residual)

        def take(one: tuple[int, bool]) -> None:
            samples[one].append(passes.sample(one[0], context, one[1]))
            if one[0] <= MOST_HEAD_ROWS:
                heads[one].append(passes.head(*one))

        ended_by = self._sweep("passes in parts", wanted, take)
        self._overhead = _overhead(samples)
        self._agreement = {one: _agreement(found, self._overhead) for one, found in samples.items()}
        for (rows, residual), found in samples.items():
            for sample in found:
                self._add_parts(sample.parts, rows, context, ended_by, self._agreement[rows, residual])
            self._add_heads(rows, residual, heads[rows, residual], ended_by)

    def _add_heads(self, rows: int, residual: bool, seconds: Sequence[float], ended_by: str) -> None:
        head = self._checkpoint.spec.head
        bits = self._checkpoint.config.bits_of(head.name) if residual else names.BASE_BITS
        key = (names.HEAD if residual else names.HEAD_BASE, names.linear_shape(head), bits, rows)
        for one in seconds:
            self._found.add(key, one, ended_by)

    def _add_parts(
        self, parts: Mapping[Part, tuple[float, int]], rows: int, context: int, ended_by: str, scale: float = 1.0
    ) -> None:
        """Keep what a call took, less what cutting costs; `scale` makes the parts of a pass add up to the whole."""
        for part, (seconds, n) in parts.items():
            shape, calls = part.shape, n
            if part.op == names.ATTENTION:
                visible = context if part.window is None else min(context, part.window)
                shape = names.attention_shape(part.shape, visible)
            elif part.op == names.LAYER_ROWS:
                calls = self._n_layers
            one = scale * (seconds - n * self._overhead) / calls
            self._found.add((part.op, shape, part.bits, rows), one, ended_by)

    def _attention(self) -> None:
        """By type of cache and context, in draft passes: the cheapest that find their caches as a pass does."""
        grid = self._grid
        contexts = grid.within(self._checkpoint.spec.context_length)
        passes = {kind: self._parts(max(contexts), kind) for kind in names.KV_BITS}
        wanted = [
            (kind, context, rows)
            for kind in passes
            for context in contexts
            for rows in grid.attention_rows
            if rows <= grid.long_rows or context <= grid.short
        ]
        for kind, context, rows in wanted:
            passes[kind].parts(min(rows, grid.long_rows), context, False)
        taken: list[tuple[dict[Part, tuple[float, int]], int, int]] = []

        def take(one: tuple[KvType, int, int]) -> None:
            kind, context, rows = one
            parts = passes[kind].parts(rows, context, False)
            taken.append(({part: n for part, n in parts.items() if part.op != names.LINEAR_BASE}, rows, context))

        ended_by = self._sweep("attention", wanted, take)
        for parts, rows, context in taken:
            self._add_parts(parts, rows, context, ended_by)

    def _other_widths(self) -> None:
        """Linears and head whose residuals have other widths than the checkpoint's."""
        grid = self._grid
        weights = self._checkpoint.weights()
        timed = {group.name for layer in self._checkpoint.spec.layers[: self._n_layers] for group in layer.groups}
        wanted = {name: one for name, one in weights.items() if name in timed}
        context = min(grid.own_context, max(grid.within(self._checkpoint.spec.context_length)))
        for bits in grid.widths:
            if bits == self._checkpoint.config.residual_bits:
                continue
            with with_width(wanted, bits) as groups:
                self._width(bits, {**weights, **groups}, context)

    def _width(self, bits: int, groups: Mapping[str, SplitWeights], context: int) -> None:
        passes = self._parts(context, "f16", groups)
        passes.parts(1, context, True)
        taken: list[tuple[int, dict[Part, tuple[float, int]]]] = []
        rows_wanted = self._grid.width_rows

        def take(rows: int) -> None:
            taken.append((rows, passes.parts(rows, context, True)))

        ended_by = self._sweep(f"{bits}-bit residual", rows_wanted, take)
        for rows, parts in taken:
            kept = {part: one for part, one in parts.items() if part.op == names.LINEAR}
            self._add_parts(kept, rows, context, ended_by, self._agreement.get((rows, True), 1.0))


def _overhead(samples: Mapping[tuple[int, bool], Sequence[Sample]]) -> float:
    """Seconds that cutting a pass costs for each piece: the parts' sum less the whole, in narrow passes."""
    found = [
        (one.seconds - one.whole) / one.n_pieces
        for (rows, _), series in samples.items()
        if rows <= OVERHEAD_ROWS
        for one in series
    ]
    return max(0.0, statistics.median(found)) if found else 0.0


def _agreement(samples: Sequence[Sample], overhead: float) -> float:
    """Whole passes over the sum of their parts, medians."""
    parts = statistics.median(one.seconds - one.n_pieces * overhead for one in samples)
    return statistics.median(one.whole for one in samples) / parts
