"""The analytic default plan: what `chat` launches without tuning, and what a search starts from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twofold.planner.acceptance import DEFAULT_STATISTICS
from twofold.planner.evaluate import SEVERITY, Evaluation, evaluate, needs
from twofold.planner.knobs import Knobs
from twofold.planner.latency import SpeedModel
from twofold.planner.machine import CardBudget, HostBudget, MachineBudget, card_problem
from twofold.planner.memory import vram_memory
from twofold.planner.placement import place
from twofold.planner.plan import KvType, Plan
from twofold.planner.request import Request, resolve_context
from twofold.planner.timed.speed import timed_draft
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.figures import reasoned, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

CPU_PREFILL_CHUNK = 64
CUDA_PREFILL_CHUNK = 512
# Draft shapes compared on a card: none, short chains (nodes, depth) and trees.
CUDA_SHAPES = ((0, 0), (2, 2), (4, 4), (8, 5), (16, 8))
NOMINAL_HOST = HostBudget(
    available_mib=unknown("MiB", "not stated"),
    ram_read_gb_s=reasoned(50.0, "GB/s", "a desktop with two channels of DDR5"),
    isa_tier="avx512",
    cores=reasoned(8, "cores", "a desktop of eight cores"),
)
NO_CPU_DRAFT = (
    "no draft on the CPU by figures alone: base and residual share its memory bandwidth; chat, run and bench time real "
    "passes at their first start, and draft where that is faster; once `twofold bench MODEL --kernels` has timed a "
    "machine's kernels, speeds and drafts follow from them"
)


def cpu_knobs(spec: ModelSpec, machine: MachineBudget, request: Request, kv_type: KvType) -> Knobs:
    """The CPU engine's knobs: one thread per usable physical core, no draft."""
    host = machine.host
    context = resolve_context(request.context_tokens, spec.context_length, spec.name)
    return Knobs(
        device="cpu",
        context_tokens=context,
        residual_bits=request.bits(),
        k_type=kv_type,
        v_type=request.v_type or kv_type,
        resident=(),
        draft_nodes=0,
        draft_depth=0,
        prefill_chunk=min(CPU_PREFILL_CHUNK, context),
        threads=request.threads or (host.threads if host else 1),
        cpu_isa=(host.isa_tier if host else None) or "generic",
        activations=request.rounding(),
    )


def place_on_card(spec: ModelSpec, knobs: Knobs, card: CardBudget, margin_mib: float) -> Knobs:
    """`knobs` with as many resident residuals as the card's free memory holds beside the upper estimate and the
    margin.
    """
    if card_problem(card) is not None:
        return knobs
    needed = vram_memory(spec, knobs.with_(resident=())).high
    budget = int((card.free_mib.number - margin_mib) * MIB) - needed
    return knobs.with_(resident=place(spec, knobs.residual_bits, budget) if budget > 0 else ())


def _card_shapes(
    spec: ModelSpec, machine: MachineBudget, card: CardBudget, request: Request, kv_type: KvType
) -> Iterator[Knobs]:
    """The draft shapes to compare, each with its residuals placed."""
    plain = cpu_knobs(spec, machine, request, kv_type)
    for nodes, depth in CUDA_SHAPES:
        knobs = plain.with_(
            device="cuda",
            draft_nodes=nodes,
            draft_depth=depth,
            prefill_chunk=min(CUDA_PREFILL_CHUNK, plain.context_tokens),
        )
        yield place_on_card(spec, knobs, card, request.margin_mib)


def best_on_card(
    spec: ModelSpec, machine: MachineBudget, card: CardBudget, request: Request, kv_type: KvType
) -> Evaluation:
    """The draft shape that is likely fastest among those with the best verdict.

    Where the host's speed is unknown the shape is chosen for `NOMINAL_HOST`; nothing else of that host is used.
    """
    shapes = list(_card_shapes(spec, machine, card, request, kv_type))
    severities = [SEVERITY[needs(spec, one, card, machine.host, request.margin_mib).verdict] for one in shapes]
    good = [one for one, severity in zip(shapes, severities, strict=True) if severity == min(severities)]

    def likely_speed(knobs: Knobs) -> float:
        known = SpeedModel(spec, knobs, card, machine.host).likely_tok_s()
        return known or SpeedModel(spec, knobs, card, NOMINAL_HOST).likely_tok_s() or 0.0

    best = max(good, key=likely_speed)
    return evaluate(spec, best, card, machine.host, request.margin_mib)


def _best_over_kv(evaluations: Iterable[Evaluation]) -> Evaluation:
    """The first KV type (they come best first) that fits, else the one with the least severe verdict."""
    tried: list[Evaluation] = []
    for evaluation in evaluations:
        tried.append(evaluation)
        if evaluation.verdict == "fits":
            break
    return min(tried, key=lambda one: one.severity)


def _on_cpu(spec: ModelSpec, machine: MachineBudget, request: Request) -> Evaluation:
    """Drafts are chosen where the host's kernels were timed, as a start chooses them; else none is planned."""
    margin, statistics = request.margin_mib, request.statistics or DEFAULT_STATISTICS

    def evaluated(kind: KvType) -> Evaluation:
        knobs = cpu_knobs(spec, machine, request, kind)
        draft = timed_draft(spec, knobs, machine.host.kernels if machine.host else None, statistics)
        if draft is not None:
            knobs = knobs.with_(**draft.changes())
        return evaluate(spec, knobs, None, machine.host, margin, statistics)

    return _best_over_kv(evaluated(kind) for kind in request.kv_choices())


def uses_card(machine: MachineBudget, request: Request) -> bool:
    """Whether the plan may be for a card. Without a preference: where there is one that twofold's kernels are for."""
    if request.device != "auto":
        return request.device == "cuda"
    own = [card for card in machine.cards if not card.unified]
    return machine.origin == "a card" or any(card.engine_reason is None for card in own)


def propose_evaluations(
    spec: ModelSpec, machine: MachineBudget, request: Request
) -> list[tuple[CardBudget | None, Evaluation]]:
    """The best evaluation for each card (each alone), or the CPU's.

    On this very machine the answer is what this version launches: where its CPU engine runs the model and RAM holds
    it, the CPU plan is preferred to one for a card.

    Raises:
        InvalidOption: for a context beyond the model's maximum, or knobs below the quality floor.
        UnsupportedModel: when the model's layers are not known.
    """
    if not spec.layers:
        raise UnsupportedModel(
            f"cannot estimate {spec.name}: its layers are not known", found=f"architecture {spec.architecture}"
        )
    kinds = request.kv_choices()
    if not uses_card(machine, request):
        return [(None, _on_cpu(spec, machine, request))]
    if request.device == "auto" and machine.origin == "this machine" and spec.runnable_reason is None:
        on_cpu = _on_cpu(spec, machine, request)
        if on_cpu.verdict in ("fits", "tight"):
            return [(None, on_cpu)]
    # A device that shares the CPU's memory is judged only where nothing else is: its pool is never added to a card's.
    cards = [card for card in machine.cards if not card.unified] or machine.cards
    return [(card, _best_over_kv(best_on_card(spec, machine, card, request, kind) for kind in kinds)) for card in cards]


def choose(evaluations: list[tuple[CardBudget | None, Evaluation]]) -> tuple[CardBudget | None, Evaluation]:
    """The card with the best verdict, then the fastest."""

    def order(pair: tuple[CardBudget | None, Evaluation]) -> tuple[int, float]:
        speed = pair[1].speed.decode_tok_s
        return pair[1].severity, -speed.number if speed.is_known else 0.0

    return min(evaluations, key=order)


def propose(spec: ModelSpec, machine: MachineBudget, request: Request) -> Plan:
    """The plan to run: for the CPU engine, or for the best card of the machine.

    Raises:
        InvalidOption: for a context beyond the model's maximum, or knobs below the quality floor.
        UnsupportedModel: when the model's layers are not known, or a card is wanted and there is none.
    """
    evaluations = propose_evaluations(spec, machine, request)
    if not evaluations:
        raise UnsupportedModel("a plan for a card needs a card", found="none", hint="twofold fit MODEL --card NAME")
    _card, best = choose(evaluations)
    return best.knobs.to_plan(spec.name, best.ram_mib, best.vram_mib)
