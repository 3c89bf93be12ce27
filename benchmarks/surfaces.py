"""Machines that are not there: random surfaces of turn times over the tuner's space, with noise on every sample.

A surface is a machine (cores of two kinds, a memory wall, a multiplier, dispatch costs, a cache that large chunks
overflow, a memory limit) and a model on it (bytes, work, how often its draft is right). Trial 0 is what a default would
choose: all cores, chunks of 64, no draft or a guessed one. What a sample says is off by a normal factor.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from twofold.planner.acceptance import RankStatistics, TreeShape, tree_shape
from twofold.planner.search.space import Point, Space
from twofold.planner.tuning.meter import Piece

FAMILIES = ("memory wall", "multiplier", "two kinds of cores", "dispatch", "tight memory", "flat")
Reading = Literal["pieces", "turns"]
"""What one sample is of: a piece of a turn, as the engine is measured, or a whole turn of one plan, as a stranger's
black box would give it.
"""
PROMPT, ANSWER = 1024, 256
_NODES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_CHUNKS = (32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates in seconds: of reading all weights once on one core, of one row's products on one core, and so on."""

    fast_cores: int
    slow_cores: int
    slow_speed: float
    bandwidth_cores: float
    weights_s: float
    base_share: float
    row_s: float
    dispatch_s: float
    barrier_s: float
    kv_row_s: float
    kv_gain: float
    cache_rows: int
    cache_loss: float

    @property
    def cores(self) -> int:
        return self.fast_cores + self.slow_cores

    def _power(self, threads: int) -> float:
        """Cores' worth of arithmetic: every share of a split is equal, so the slowest core sets the pace."""
        if threads <= self.fast_cores:
            return float(threads)
        return max(threads * self.slow_speed, self.fast_cores * 0.6)

    def pass_seconds(self, rows: int, threads: int, kv_type: str, share: float = 1.0) -> float:
        """A pass that reads `share` of the weights."""
        power = self._power(threads)
        bandwidth = min(power, self.bandwidth_cores)
        kv = self.kv_row_s * (self.kv_gain if kv_type != "f16" else 1.0)
        loss = 1 + self.cache_loss * max(0.0, math.log2(rows / self.cache_rows)) if rows > self.cache_rows else 1.0
        work = max(share * self.weights_s / bandwidth, share * rows * self.row_s * loss / power)
        return work + rows * kv / power + self.dispatch_s + self.barrier_s * threads


class Surface:
    """One family, one seed. `true_seconds` is what nobody can measure; `sample` is what the tuner gets."""

    def __init__(self, family: str, seed: int, *, noise: float = 0.03, reading: Reading = "pieces") -> None:
        draw = random.Random(f"{family} {seed}")
        self.family, self.noise, self.reading = family, noise, reading
        self.machine = _machine(family, draw)
        self.statistics = RankStatistics(_ranks(draw), draw.uniform(0.9, 0.995), "drawn")
        self._trees: dict[tuple[int, int], TreeShape] = {}
        self._limit_rows = draw.choice((96, 160, 300)) if family == "tight memory" else 1 << 30
        cores = self.machine.cores
        self.space = Space(
            residual_bits=(6,),
            kv_types=("f16", "q8_0") if draw.random() < 0.3 else ("f16",),
            draft_nodes=_NODES,
            max_depth=8,
            prefill_chunks=_CHUNKS,
            threads=(*(n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n < cores), cores),
        )
        self.baseline = self._default(draw)
        self._noise = random.Random(f"noise of {family} {seed}")
        self.n_samples = 0

    def shortfall_mib(self, point: Point) -> float:
        return float(point.prefill_chunk + 4 * point.draft_nodes - self._limit_rows)

    def pieces(self, point: Point) -> tuple[Piece, ...]:
        if self.reading == "turns":
            return (Piece("turn", point, 1.0),)
        tree = self._tree(point)
        common = (point.threads, point.kv_type)
        return (
            Piece("prefill", ("prefill", point.prefill_chunk, *common), PROMPT / point.prefill_chunk),
            Piece("step", ("step", tree.parents, tree.ranks, *common), ANSWER / tree.tokens),
        )

    def sample(self, point: Point, piece: Piece) -> float:
        if self.shortfall_mib(point) > 0:
            raise AssertionError("a point that does not fit was run")
        self.n_samples += 1
        true = {"prefill": self._prefill, "step": self._step, "turn": self.true_seconds}[piece.part](point)
        return true * max(0.2, self._noise.gauss(1.0, self.noise))

    def true_seconds(self, point: Point) -> float:
        """Of a whole turn."""
        return PROMPT / point.prefill_chunk * self._prefill(point) + ANSWER / self._tree(point).tokens * self._step(
            point
        )

    def best(self) -> float:
        """The least seconds of all points that fit, by looking at each."""
        return min(self.true_seconds(point) for point in self.feasible())

    def feasible(self) -> Iterator[Point]:
        return (point for point in self.space.points() if self.shortfall_mib(point) <= 0)

    def _tree(self, point: Point) -> TreeShape:
        knobs = (point.draft_nodes, min(point.draft_depth, point.draft_nodes))
        if knobs not in self._trees:
            self._trees[knobs] = tree_shape(self.statistics, *knobs)
        return self._trees[knobs]

    def _prefill(self, point: Point) -> float:
        return self.machine.pass_seconds(point.prefill_chunk, point.threads, point.kv_type)

    def _step(self, point: Point) -> float:
        tree, machine = self._tree(point), self.machine
        depths = tree.depths
        widths = Counter(depths[row] for row in set(tree.parents))
        draft = sum(machine.pass_seconds(n, point.threads, point.kv_type, machine.base_share) for n in widths.values())
        return machine.pass_seconds(tree.nodes + 1, point.threads, point.kv_type) + draft

    def _default(self, draw: random.Random) -> Point:
        nodes, depth = draw.choice(((0, 1), (0, 1), (4, 4), (8, 4), (16, 8)))
        if self.family == "flat":
            return min(self.feasible(), key=self.true_seconds)
        if 64 + 4 * nodes > self._limit_rows:
            nodes, depth = 0, 1
        return Point(6, "f16", nodes, depth, 64, self.space.threads[-1])


def _ranks(draw: random.Random) -> tuple[float, ...]:
    first = draw.uniform(0.55, 0.88)
    fall = draw.uniform(0.25, 0.5)
    ranks = [first]
    while len(ranks) < 8:
        ranks.append((1 - sum(ranks)) * (1 - fall) * 0.6)
    return tuple(ranks)


def _machine(family: str, draw: random.Random) -> Machine:
    weights = draw.uniform(0.02, 0.4)
    fast, slow = draw.choice((2, 4, 6, 8)), 0
    bandwidth, row, dispatch, barrier = draw.uniform(1.5, fast), 0.5, draw.uniform(0.001, 0.01), 0.0005
    if family == "memory wall":
        bandwidth, row = draw.uniform(1.2, 3), draw.uniform(0.02, 0.08)
    elif family == "multiplier":
        bandwidth, row = fast * 2.0, draw.uniform(0.9, 1.5)
    elif family == "two kinds of cores":
        fast, slow = draw.choice((2, 4, 6)), draw.choice((4, 8))
        row = draw.uniform(0.05, 0.6)
    elif family == "dispatch":
        dispatch, row = draw.uniform(0.02, 0.08), draw.uniform(0.05, 0.4)
        barrier = draw.uniform(0.001, 0.005)
    elif family in ("tight memory", "flat"):
        row = draw.uniform(0.03, 0.5)
    return Machine(
        fast_cores=fast,
        slow_cores=slow,
        slow_speed=draw.uniform(0.35, 0.7),
        bandwidth_cores=bandwidth,
        weights_s=weights,
        base_share=draw.uniform(0.25, 0.4),
        row_s=weights * row,
        dispatch_s=dispatch,
        barrier_s=barrier,
        kv_row_s=weights * draw.uniform(0.005, 0.05),
        kv_gain=draw.uniform(0.7, 1.1),
        cache_rows=draw.choice((64, 128, 256)),
        cache_loss=draw.uniform(0.0, 0.2),
    )
