"""What the CPU engine's plans are tuned by: seconds of a turn, from two measured pieces.

A turn is a prompt read and an answer written, both behind a half-full cache. Its prefill depends on chunk, threads and
cache type, its steps on tree, threads and cache type; so a handful of measured passes serve hundreds of plans. Tokens
per check come from the rank statistics that shape the tree, not from time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twofold.planner.acceptance import RankStatistics, TreeShape, tree_shape
from twofold.planner.evaluate import needs
from twofold.planner.knobs import Knobs
from twofold.planner.latency import SpeedModel
from twofold.planner.machine import HostBudget
from twofold.planner.plan import KvType, Plan
from twofold.planner.request import KV_TYPES
from twofold.planner.search.space import DRAFT_NODES, PREFILL_CHUNKS, Point, Space
from twofold.planner.search.turn import ANSWER_TOKENS, MAX_DEPTH, PROMPT_TOKENS, turn_seconds
from twofold.planner.tuning.meter import Piece
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

Measure = Callable[[Plan, str], float]
"""(a plan, `prefill` or `step`) → seconds of one prefill pass of its chunk, or of one step, really run."""
MOST_NODES = 32
MOST_CHUNK = 512
_THREADS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True, slots=True)
class TurnShape:
    """Tokens of a turn: those in the cache before it, the prompt, the answer."""

    depth: int
    prompt: int
    answer: int

    @classmethod
    def of(cls, context_tokens: int) -> TurnShape:
        """Half of the context is full; prompt and answer share the other half."""
        depth = context_tokens // 2
        prompt = max(1, min(PROMPT_TOKENS, (context_tokens - depth) // 2))
        return cls(depth, prompt, max(1, min(ANSWER_TOKENS, context_tokens - depth - prompt)))


@dataclass(slots=True)
class CpuTurn:
    """The target of tuning for one checkpoint on this machine.

    Attributes:
        default: trial 0, the plan that a session would start with.
        margin_mib: memory to leave free; a plan that needs more than the rest, and more than trial 0, is never run.
        statistics: what shapes the trees, and says what a check gives until it was decoded.
        decoded: tokens per check by draft nodes and depth, where real decoding counted them.
    """

    spec: ModelSpec
    default: Plan
    host: HostBudget | None
    margin_mib: float
    statistics: RankStatistics
    measure: Measure
    decoded: dict[tuple[int, int], float] = field(default_factory=dict, init=False)
    _trees: dict[tuple[int, int], TreeShape] = field(default_factory=dict, init=False)
    _plans: dict[Point, Plan] = field(default_factory=dict, init=False)
    _shortfalls: dict[Point, float] = field(default_factory=dict, init=False)

    @property
    def shape(self) -> TurnShape:
        return TurnShape.of(self.default.context_tokens)

    def knobs(self, point: Point) -> Knobs:
        plan = self.default
        is_own = point.kv_type == plan.k_type
        return Knobs(
            device="cpu",
            context_tokens=plan.context_tokens,
            residual_bits=point.residual_bits,
            k_type=point.kv_type,
            v_type=plan.v_type if is_own else point.kv_type,
            resident=(),
            draft_nodes=point.draft_nodes,
            draft_depth=min(point.draft_depth, point.draft_nodes),
            prefill_chunk=point.prefill_chunk,
            threads=point.threads,
            cpu_isa=plan.cpu_isa,
            activations=plan.activations,
            lookup_nodes=plan.lookup_nodes,
            lookup_least=plan.lookup_least,
        )

    def plan(self, point: Point) -> Plan:
        """The whole plan of a point, its memory recomputed; trial 0's own for trial 0."""
        if point == self.baseline:
            return self.default
        if point not in self._plans:
            knobs = self.knobs(point)
            ram = needs(self.spec, knobs, None, self.host, 0.0).ram
            self._plans[point] = knobs.to_plan(self.default.model, ram.total / MIB, 0.0)
        return self._plans[point]

    @property
    def baseline(self) -> Point:
        return Point.of(Knobs.of(self.default))

    def tree(self, point: Point) -> TreeShape:
        knobs = (point.draft_nodes, min(point.draft_depth, point.draft_nodes))
        if knobs not in self._trees:
            self._trees[knobs] = tree_shape(self.statistics, *knobs, self.spec.vocab_size)
        return self._trees[knobs]

    def tokens(self, point: Point) -> float:
        """Tokens per check: counted, or expected by the statistics."""
        tree = self.tree(point)
        return self.decoded.get((tree.nodes, tree.depth), tree.tokens)

    def shortfall_mib(self, point: Point) -> float:
        """MiB that are missing (≤ 0: it fits): against what is free less the margin, or trial 0's own need where that
        is more already.
        """
        if point not in self._shortfalls:
            self._shortfalls[point] = self.need_mib(self.plan(point)) - self._room()
        return self._shortfalls[point]

    def need_mib(self, plan: Plan) -> float:
        """The upper estimate of a plan's memory."""
        return needs(self.spec, Knobs.of(plan), None, self.host, 0.0).ram.high / MIB

    def _room(self) -> float:
        own = self.need_mib(self.default)
        if self.host is None or not self.host.available_mib.is_known:
            return own
        return max(own, self.host.available_mib.number - self.margin_mib)

    def pieces(self, point: Point) -> tuple[Piece, ...]:
        knobs, tree, shape = self.knobs(point), self.tree(point), self.shape
        common = (knobs.threads, knobs.k_type, knobs.v_type)
        rows = min(knobs.prefill_chunk, shape.prompt)
        return (
            Piece("prefill", ("prefill", rows, *common), shape.prompt / rows),
            Piece("step", ("step", tree.parents, tree.ranks, *common), shape.answer / self.tokens(point)),
        )

    def sample(self, point: Point, piece: Piece) -> float:
        return self.measure(self.plan(point), piece.part)

    def space(self, kv_types: tuple[KvType, ...], threads: tuple[int, ...], most_chunk: int = MOST_CHUNK) -> Space:
        """What may be chosen: speed knobs, and cache types as given. The residual's width is the checkpoint's."""
        plan, shape = self.default, self.shape
        longest = min(most_chunk, shape.prompt)
        return Space(
            residual_bits=(plan.residual_bits,),
            kv_types=tuple(kind for kind in KV_TYPES if kind in {*kv_types, plan.k_type}),
            draft_nodes=tuple(sorted({n for n in DRAFT_NODES if n <= MOST_NODES} | {plan.draft_nodes})),
            max_depth=max(MAX_DEPTH, plan.draft_depth),
            prefill_chunks=tuple(sorted({n for n in PREFILL_CHUNKS if n <= longest} | {plan.prefill_chunk})),
            threads=tuple(sorted({*threads, plan.threads})),
        )


def thread_choices(cores: int) -> tuple[int, ...]:
    """Threads worth trying on that many physical cores: more of them only wait for each other."""
    return tuple(sorted({n for n in _THREADS if n < cores} | {cores}))


def other_widths(turn: CpuTurn, point: Point, least_bits: int) -> Mapping[int, float]:
    """By analytic estimate, what share of the turn other residual widths at or above a floor would save; those that
    save anything. Empty where the memory bandwidth of the host is unknown.
    """
    knobs = turn.knobs(point)
    now = turn_seconds(SpeedModel(turn.spec, knobs, None, turn.host, turn.statistics))
    found: dict[int, float] = {}
    for bits in range(least_bits, 9):
        other = turn_seconds(SpeedModel(turn.spec, knobs.with_(residual_bits=bits), None, turn.host, turn.statistics))
        if now and other and other < now and bits != knobs.residual_bits:
            found[bits] = 1 - other / now
    return found
