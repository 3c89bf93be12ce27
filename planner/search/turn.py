"""The analytic objective: seconds of one turn on a card, from bytes and rates.

A turn is what a person waits for: a prompt read, and an answer written behind a half-full context. A short prompt in an
empty cache would rank plans by what hardly ever happens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from twofold.planner.evaluate import Evaluation, Needs, evaluate, needs
from twofold.planner.knobs import Knobs
from twofold.planner.latency import SpeedModel
from twofold.planner.machine import CardBudget, HostBudget, MachineBudget, card_problem
from twofold.planner.memory import vram_memory
from twofold.planner.placement import place
from twofold.planner.plan import KvType
from twofold.planner.propose import NOMINAL_HOST
from twofold.planner.request import KV_TYPES, Request
from twofold.planner.search.space import DRAFT_NODES, PREFILL_CHUNKS, SHARE_STEPS, Point, Space
from twofold.planner.search.storage import storage_from_url
from twofold.planner.search.study import Outcome, SearchResult, search
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

PROMPT_TOKENS = 1024
ANSWER_TOKENS = 256
MAX_DEPTH = 12


def turn_seconds(model: SpeedModel) -> float | None:
    """A prompt of up to 1,024 tokens and an answer of up to 256 behind a half-full cache, in the likely case."""
    work, knobs = model.work, model.knobs
    prompt = max(1, min(PROMPT_TOKENS, knobs.context_tokens // 2))
    answer = max(1, min(ANSWER_TOKENS, knobs.context_tokens - prompt))
    if model.timed is not None:
        return model.timed.turn_seconds(prompt, answer, knobs.context_tokens // 2)
    likely = model.cases[1]
    prefill = work.prefill_seconds(prompt, likely)
    step = work.step_seconds(model.levels, (work.kv_fresh + work.kv_full) // 2, likely)
    return None if prefill is None or step is None else prefill + answer * step / model.tokens


@dataclass(frozen=True, slots=True)
class CardTurn:
    """The objective for one card and host. `host` must have a bandwidth: without one nothing can be compared.

    `v_type` is V's where the user wants another than K's.
    """

    spec: ModelSpec
    base: Knobs
    card: CardBudget
    host: HostBudget
    judged_host: HostBudget | None
    margin_mib: float
    v_type: KvType | None = None

    def knobs(self, point: Point) -> Knobs:
        """The knobs that a point stands for, its residuals placed."""
        knobs = self.base.with_(
            residual_bits=point.residual_bits,
            k_type=point.kv_type,
            v_type=self.v_type or point.kv_type,
            draft_nodes=point.draft_nodes,
            draft_depth=min(point.draft_depth, point.draft_nodes),
            prefill_chunk=min(point.prefill_chunk, self.base.context_tokens),
            resident=(),
        )
        left = int((self.card.free_mib.number - self.margin_mib) * MIB) - vram_memory(self.spec, knobs).high
        budget = left * point.resident_steps // SHARE_STEPS
        return knobs.with_(resident=place(self.spec, point.residual_bits, budget) if budget > 0 else ())

    def needs(self, knobs: Knobs) -> Needs:
        return needs(self.spec, knobs, self.card, self.judged_host, self.margin_mib)

    def __call__(self, point: Point) -> Outcome:
        knobs = self.knobs(point)
        missing = []
        for device in self.needs(knobs).devices:
            figure = device.shortfall_mib
            if figure is None:
                return Outcome(None, 1.0)
            headroom = (device.free_mib.number if device.free_mib else 0.0) - device.margin_mib
            missing.append(figure.number if figure.number > 0 else device.memory.high / MIB - headroom)
        shortfall = max(missing, default=0.0)
        if shortfall > 0:
            return Outcome(None, shortfall)
        return Outcome(turn_seconds(SpeedModel(self.spec, knobs, self.card, self.host)), shortfall)

    def evaluation(self, point: Point) -> Evaluation:
        """Everything about a point, for the report."""
        return evaluate(self.spec, self.knobs(point), self.card, self.judged_host, self.margin_mib)

    def point(self, knobs: Knobs) -> Point:
        """The point of given knobs whose residuals fill the card."""
        return Point.of(knobs, SHARE_STEPS)

    def space(self, bits: tuple[int, ...], kv_types: tuple[KvType, ...]) -> Space:
        """All that may be chosen on the card: `bits` and `kv_types` are those above the user's floor."""
        chunks = {min(chunk, self.base.context_tokens) for chunk in PREFILL_CHUNKS}
        return Space(
            residual_bits=bits,
            kv_types=tuple(kind for kind in KV_TYPES if kind in kv_types),
            draft_nodes=tuple(sorted({*DRAFT_NODES, self.base.draft_nodes})),
            max_depth=MAX_DEPTH,
            prefill_chunks=tuple(sorted(chunks | {self.base.prefill_chunk})),
            threads=(self.base.threads,),
            resident_steps=tuple(range(SHARE_STEPS + 1)),
        )


def _study_name(spec: ModelSpec, turn: CardTurn, space: Space) -> str:
    """Model, card and context for the reader; then what else the seconds depend on, so that only machines of one kind
    share a study. What is free differs a little between equal machines: their points are judged again where they are
    used.
    """
    card, host, knobs = turn.card, turn.host, turn.base
    kind: tuple[object, ...] = (spec, space.signature, turn.margin_mib, knobs.cpu_isa, knobs.activations)
    kind += (str(card.bandwidth_gb_s.value),)
    kind += (round(card.free_mib.number / 512), str(card.link_gb_s.value), host.isa_tier, str(host.cores.value))
    kind += (round(host.ram_read_gb_s.number / 5) if host.ram_read_gb_s.is_known else None,)
    digest = hashlib.sha256(repr(kind).encode()).hexdigest()[:12]
    return f"twofold fit {spec.name[:120]} on {card.name[:80]}, {knobs.context_tokens} tokens, {digest}"


def search_on_card(
    spec: ModelSpec,
    default: Evaluation,
    machine: MachineBudget,
    card: CardBudget,
    request: Request,
    n_trials: int,
    storage_url: str | None = None,
    on_trial: Callable[[int], None] = lambda _: None,
) -> tuple[Evaluation, SearchResult | None]:
    """A better plan than the default for one card, or the default; None where nothing can be compared.

    Quality knobs stay at or above the user's floor: the residual no narrower, the cache of an allowed type. Where the
    host's speed is unknown plans are compared on `NOMINAL_HOST`, as the default was.
    """
    if default.vram is None or card_problem(card) is not None or not card.bandwidth_gb_s.is_known:
        return default, None
    host = machine.host if machine.host is not None and machine.host.ram_read_gb_s.is_known else NOMINAL_HOST
    turn = CardTurn(spec, default.knobs, card, host, machine.host, request.margin_mib, request.v_type)
    fixed = request.residual_bits or request.fixed_bits
    bits = (fixed,) if fixed else tuple(range(request.quality.min_residual_bits, 9))
    first = turn.point(default.knobs)
    space = turn.space(bits, request.kv_choices())
    found = search(
        space,
        turn,
        first,
        n_trials=n_trials,
        storage=None if storage_url is None else storage_from_url(storage_url),
        study_name=_study_name(spec, turn, space),
        on_trial=lambda done, _: on_trial(done),
    )
    if found.best == first or not found.outcome.is_feasible:
        return default, found
    return turn.evaluation(found.best), found
