"""Ways to draft on a card, compared: none, short chains, the base in eight levels, a small head, and the head checked
by the base (staged). Each has its own tokens per check, its own cost, and its own residents in VRAM.

Tokens: the base's from its rank statistics. A head's and the staged draft's are those reported for Gemma 4 31B with its
maker's drafter (chain of 8: 3.61; staged, at most 16 nodes: 5.14 where the base's tree of 16 gave 5.23, with 1.43 base
passes a check). A head's cost is its bytes where the model says its size; else what was reported of the staged draft:
a fifth of eight base passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twofold.planner import codecs
from twofold.planner.acceptance import DEFAULT_STATISTICS, SPREAD, RankStatistics, tree_tokens
from twofold.planner.knobs import Knobs
from twofold.planner.latency import FRESH_TOKENS
from twofold.planner.machine import CardBudget, HostBudget, card_problem
from twofold.planner.memory import residual_sizes
from twofold.planner.passes import Work
from twofold.planner.propose import place_on_card
from twofold.planner.rates import Rates, case_figure, rates
from twofold.profiles.figures import Figure, reasoned, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

HEAD_STATISTICS = RankStatistics(
    (0.812, 0.095, 0.0215, 0.0215, 0.005, 0.005, 0.005, 0.005),
    0.94319,
    "rank statistics reported for Gemma 4 31B's own drafter",
)
"""Recall at 1, 2, 4, 8 of 0.812, 0.907, 0.950, 0.970; the loss with depth is fitted to its chain of 8."""
STAGED_SHARE = 5.14 / 5.23
"""Tokens of the staged draft over those of the base's tree of as many nodes."""
STAGED_BASE_PASSES = 1.43
STAGED_NODES, STAGED_DEPTH = 16, 8
# The head's first chain, and what it drafts anew from the base's token (0.43 times a check, most of a chain).
STAGED_HEAD_STEPS = 8 + 0.43 * 6
# Eight base passes over the staged draft's cost, for a head of unknown size: (slow, likely, fast).
STAGED_CHEAPER = (4.0, 5.0, 6.0)
HEAD_BITS = 8.5
HEAD_LAYERS = 2
"""Layers' worth of launches in a step of a head: its block, and the LM head."""

BASE_SHAPES = (
    ("no draft", 0, 0),
    ("chain of 2 by the base", 2, 2),
    ("chain of 4 by the base", 4, 4),
    ("chain of 8 by the base, 8 levels", 8, 8),
    ("tree of 16 by the base, 8 levels", 16, 8),
)
HEAD_CHAIN = 3


@dataclass(frozen=True, slots=True)
class DraftWay:
    """One way: what it costs and brings. `host_residual_mib` stays in RAM, where `head_mib` takes room for a head."""

    name: str
    nodes: int
    depth: int
    base_passes: float
    head_steps: float
    tokens: Figure
    draft_ms: Figure
    check_ms: Figure
    tok_s: Figure
    host_residual_mib: float
    head_mib: float
    is_run_here: bool

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "nodes": self.nodes,
            "depth": self.depth,
            "base_passes": self.base_passes,
            "head_steps": self.head_steps,
            "tokens_per_check": self.tokens.to_json(),
            "draft_ms": self.draft_ms.to_json(),
            "check_ms": self.check_ms.to_json(),
            "tok_s": self.tok_s.to_json(),
            "host_residual_mib": round(self.host_residual_mib, 1),
            "head_mib": round(self.head_mib, 1),
            "this_version_drafts_so": self.is_run_here,
        }


@dataclass(frozen=True, slots=True)
class DraftComparison:
    """All ways with the plan's other knobs, and which is likely the fastest. `host` says on whose RAM; `head` what is
    known of a draft head.
    """

    ways: tuple[DraftWay, ...]
    host: str
    head: str

    @property
    def best(self) -> DraftWay | None:
        known = [way for way in self.ways if way.tok_s.is_known]
        return max(known, key=lambda way: way.tok_s.number, default=None)

    def of(self, nodes: int, depth: int) -> DraftWay | None:
        """The base's draft of this shape."""
        return next((way for way in self.ways if way.is_run_here and (way.nodes, way.depth) == (nodes, depth)), None)

    def to_json(self) -> dict[str, object]:
        best = self.best
        return {
            "compared": self.host,
            "head": self.head,
            "fastest": best.name if best else None,
            "ways": [way.to_json() for way in self.ways],
        }


@dataclass(frozen=True, slots=True)
class _Head:
    """A draft head beside the model: its MiB with its cache (0: size not known), and the bytes of a step."""

    mib: float
    step_bytes: float

    @classmethod
    def of(cls, spec: ModelSpec, context_tokens: int) -> _Head:
        if not spec.draft_head_weights:
            return cls(0.0, 0.0)
        stored = spec.draft_head_weights * HEAD_BITS / 8
        cache = context_tokens * 2 * max((layer.kv_values_per_token for layer in spec.layers), default=0)
        last = [member for group in spec.layers[-1].groups for member in group.members]
        used = sum(one.n_weights * one.share_read(1) for one in last) / max(1, sum(one.n_weights for one in last))
        return cls((stored + cache) / MIB, stored * used + codecs.base_bytes(spec.head))

    def seconds(self, steps: float, base_pass: float, rate: Rates, case: int) -> float | None:
        """`steps` steps one after the other."""
        if rate.gpu_bytes_s is None:
            return None
        if self.step_bytes:
            return steps * (self.step_bytes / rate.gpu_bytes_s + HEAD_LAYERS * rate.layer_s)
        share = 8 / STAGED_CHEAPER[case] - STAGED_BASE_PASSES
        return max(share, 0.05) * base_pass * steps / STAGED_HEAD_STEPS


def _figure(compute: Callable[[int], float | None], scale: float, unit: str, by: str, why: str) -> Figure:
    """The slow, likely and fast case as one figure."""
    found = case_figure([compute(case) for case in range(3)], unit, by, scale=scale, digits=3)
    return found or unknown(unit, why)


class _Comparer:
    """The plan's knobs on one card and host; each way gets the residents that it leaves room for."""

    def __init__(self, spec: ModelSpec, knobs: Knobs, card: CardBudget, host: HostBudget, margin_mib: float) -> None:
        self.spec, self.knobs, self.card, self.margin_mib = spec, knobs, card, margin_mib
        self.cases = rates(card, host)
        self.head = _Head.of(spec, knobs.context_tokens)

    def way(
        self, name: str, nodes: int, depth: int, passes: float, steps: float, tokens: float, by: str, is_run_here: bool
    ) -> DraftWay:
        head_mib = self.head.mib if steps else 0.0
        shaped = self.knobs.with_(draft_nodes=nodes, draft_depth=depth)
        placed = place_on_card(self.spec, shaped, self.card, self.margin_mib + head_mib)
        work = Work.of(self.spec, placed, FRESH_TOKENS)

        def draft(case: int) -> float | None:
            rate = self.cases[case]
            base = work.draft_seconds(work.kv_fresh, rate)
            if base is None:
                return None
            head = self.head.seconds(steps, base, rate, case) if steps else 0.0
            return None if head is None else passes * base + head

        def check(case: int) -> float | None:
            return work.verify_seconds(work.kv_fresh, self.cases[case])

        def speed(case: int) -> float | None:
            drafted, checked = draft(case), check(case)
            spread = (1 - SPREAD, 1.0, 1 + SPREAD)[case]
            return None if drafted is None or checked is None else (1 + (tokens - 1) * spread) / (drafted + checked)

        sizes, why = residual_sizes(self.spec, placed.residual_bits), "a bandwidth is unknown"
        extra, resident = (tokens - 1) * SPREAD, frozenset(placed.resident)
        return DraftWay(
            name=name,
            nodes=nodes,
            depth=depth,
            base_passes=passes,
            head_steps=steps,
            tokens=reasoned(
                round(tokens, 3), "tokens", by, low=round(tokens - extra, 3), high=round(tokens + extra, 3)
            ),
            draft_ms=_figure(draft, 1e3, "ms", f"{passes:g} base passes and {steps:g} steps of a head", why),
            check_ms=_figure(check, 1e3, "ms", "sum over fused Linears of the slower side", why),
            tok_s=_figure(speed, 1.0, "tok/s", "tokens per check / (draft + check), little context", why),
            host_residual_mib=sum(size for name, size in sizes.items() if name not in resident) / MIB,
            head_mib=head_mib,
            is_run_here=is_run_here,
        )


def compare_drafts(
    spec: ModelSpec, knobs: Knobs, card: CardBudget | None, host: HostBudget, margin_mib: float, host_words: str
) -> DraftComparison | None:
    """Every way to draft with the plan's context, bits and cache; None without a card whose memory is known.

    Args:
        host: the host whose RAM the checks read; `host_words` says which that is.
    """
    if card is None or knobs.device != "cuda" or card_problem(card) is not None:
        return None
    comparer = _Comparer(spec, knobs, card, host, margin_mib)
    shapes = list(BASE_SHAPES)
    own = (knobs.draft_nodes, knobs.draft_depth)
    if own not in [(nodes, depth) for _, nodes, depth in shapes]:
        kind = "chain" if own[0] == own[1] else "tree"
        shapes.append((f"{kind} of {own[0]} by the base, {own[1]} levels: the plan's", *own))
    ways = []
    for name, nodes, depth in shapes:
        tokens, levels = tree_tokens(DEFAULT_STATISTICS, nodes, depth)
        ways.append(comparer.way(name, nodes, depth, levels, 0.0, tokens, DEFAULT_STATISTICS.by, True))
    tokens, _ = tree_tokens(HEAD_STATISTICS, HEAD_CHAIN, HEAD_CHAIN)
    name = f"chain of {HEAD_CHAIN} by a draft head"
    ways.append(comparer.way(name, HEAD_CHAIN, HEAD_CHAIN, 0.0, HEAD_CHAIN, tokens, HEAD_STATISTICS.by, False))
    tokens = STAGED_SHARE * tree_tokens(DEFAULT_STATISTICS, STAGED_NODES, STAGED_DEPTH)[0]
    by = "the base's tree of 16 × 0.98, reported for a 31B"
    staged = ("staged: draft head, then base", STAGED_NODES, STAGED_DEPTH, STAGED_BASE_PASSES, STAGED_HEAD_STEPS)
    ways.append(comparer.way(*staged, tokens, by, False))
    return DraftComparison(tuple(ways), host_words, _head_words(spec, comparer.head))


def _head_words(spec: ModelSpec, head: _Head) -> str:
    if head.step_bytes:
        return (
            f"the model's own draft head takes {head.mib:,.0f} MiB at {HEAD_BITS:g} bits, its cache included; how "
            "often it guesses right was reported for another model's"
        )
    return f"no draft head is known for {spec.name}: its cost is what was reported for one, its size is not counted"
