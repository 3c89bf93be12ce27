"""`fit`: does this model fit that machine, what then, and what else would serve."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from twofold.planner.acceptance import DEFAULT_STATISTICS
from twofold.planner.alternatives import (
    Choice,
    advice,
    comparison_host,
    llama_choice,
    nominal_words,
    own_choice,
    ranked,
)
from twofold.planner.command import FitCommand, chat_command
from twofold.planner.drafts import DraftComparison, compare_drafts
from twofold.planner.evaluate import Evaluation
from twofold.planner.host_needs import host_needs
from twofold.planner.llama_cpp import Alternative, alternatives, as_it_is
from twofold.planner.machine import CardBudget, HostBudget, MachineBudget, card_problem
from twofold.planner.memory import checkpoint_bytes
from twofold.planner.nearest import context_figure, nearest_plans
from twofold.planner.own_runs import unused_sessions
from twofold.planner.plan import Plan
from twofold.planner.propose import NO_CPU_DRAFT, choose, propose_evaluations
from twofold.planner.quality import known_kl
from twofold.planner.quality_floor import MeasuredKl, judge_floor, with_known_kl
from twofold.planner.report import FitReport
from twofold.planner.request import Request
from twofold.planner.rounding import OTHER, RoundingGain, is_wide, rounding_gain
from twofold.planner.scopes import bits_per_weight, codecs_for
from twofold.planner.search.study import SearchResult
from twofold.planner.search.turn import ANSWER_TOKENS, PROMPT_TOKENS, search_on_card
from twofold.planner.speed_terms import speed_terms
from twofold.profiles.activations import USUAL
from twofold.profiles.card_names import candidates
from twofold.profiles.cards import match_driver
from twofold.profiles.errors import InvalidOption
from twofold.profiles.figures import Figure, reasoned, reported, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

NO_GPU_ENGINE = "this version's engine runs on the CPU only; the figures for the card are a plan"


def runnable(spec: ModelSpec, plan: Plan, card: CardBudget | None) -> tuple[bool, str | None]:
    """Whether this version can run the plan, and why not. Fitting is another question."""
    reasons = [spec.runnable_reason] if spec.runnable_reason is not None else []
    if plan.device == "cuda":
        if card is not None and card.engine_reason is not None:
            reasons.append(card.engine_reason)
        is_split = len(plan.resident_linears) < len(spec.groups)
        where = "splits the model between a card and the CPU" if is_split else "keeps the whole model on the card"
        reasons.append(f"the plan {where}, and {NO_GPU_ENGINE}")
    return not reasons, "; ".join(reasons) or None


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The GGUF file that the model is: the option that opens it, its size, its tensors where the header was read."""

    flag: str
    file_bytes: int
    tensors: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Ways:
    """All ways to have the model answer, ranked; llama.cpp's among them in that order; the file as it is."""

    choices: tuple[Choice, ...]
    alternatives: tuple[Alternative, ...]
    as_is: Alternative | None


def _ways(
    spec: ModelSpec,
    evaluation: Evaluation,
    card: CardBudget | None,
    machine: MachineBudget,
    request: Request,
    gguf_repo: str | None,
    file: GgufFile | None,
    kl: Figure,
    can_run: bool,
    chat: str,
) -> Ways:
    context, kind, margin = evaluation.knobs.context_tokens, evaluation.knobs.k_type, request.margin_mib

    def on(host: HostBudget | None) -> tuple[list[Alternative], Alternative | None]:
        found = list(alternatives(spec, context, kind, card, host, margin, gguf_repo, file.flag if file else None))
        if file is None:
            return found, None
        facts = (spec, file.file_bytes, file.flag, context, kind, card, host, margin)
        return found, as_it_is(*facts, file.tensors)

    found, as_is = on(machine.host)
    compared = comparison_host(machine.host)
    twins, as_is_twin = (found, as_is) if compared is machine.host else on(compared)
    pairs = list(zip(found, twins, strict=True))
    if as_is is not None and as_is_twin is not None:
        pairs.append((as_is, as_is_twin))
    own = own_choice(spec, evaluation, card, machine.host, kl, can_run, chat)
    choices = ranked([own, *(llama_choice(spec, one, twin, kind) for one, twin in pairs)], request)
    order = {choice.command: rank for rank, choice in enumerate(choices)}
    return Ways(choices, tuple(sorted(found, key=lambda one: order[one.command])), as_is)


def download_estimate(spec: ModelSpec) -> Figure:
    """Size of the source weights: known, or two bytes a weight."""
    if spec.weights_bytes is not None:
        return reported(round(spec.weights_bytes / MIB, 1), "MiB", "size of the weight files")
    n_weights = spec.n_parameters + spec.draft_head_weights
    mib = n_weights * 2 / MIB
    return reasoned(round(mib, 1), "MiB", "16-bit weights", low=round(mib, 1), high=round(mib * 1.1, 1))


def _disk(spec: ModelSpec, bits: int, download_mib: Figure) -> Figure:
    result = checkpoint_bytes(spec, bits) / MIB
    if not download_mib.is_known:
        return unknown("MiB", f"{result:,.0f} MiB for the checkpoint, and the download: {download_mib.by}")
    return reasoned(round(result + download_mib.number, 1), "MiB", "download + quantised checkpoint")


def _knows_host(machine: MachineBudget) -> bool:
    host = machine.host
    return host is not None and host.available_mib.is_known and host.ram_read_gb_s.is_known


def _is_timed(machine: MachineBudget, evaluation: Evaluation) -> bool:
    """Whether the machine's kernels were timed as the plan runs them."""
    source, knobs = machine.host.kernels if machine.host else None, evaluation.knobs
    return source is not None and source.kernels_of(knobs) is not None


def _expert_notes(spec: ModelSpec) -> list[str]:
    """How experts were counted: memory holds all of them, a pass reads those that its tokens choose."""
    experts = [group.members[0] for group in spec.groups if group.members[0].copies > 1]
    if not experts:
        return []
    if experts[0].used_copies is None:
        return ["times count every expert as read, so real ones are shorter; memory holds all experts"]
    used = spec.n_used_weights / 1e9
    first = experts[0]
    note = f"memory holds all {first.copies} experts of a layer; a token uses {first.used_copies} of them ({used:.1f} "
    return [note + "billion weights with the rest), and a pass reads those that its tokens choose, each for itself"]


def _unused_card(card: CardBudget) -> str:
    """How to ask for a plan with a card: by its name, where the table of cards has it; else what is missing."""
    is_named = len(candidates(card.name)) == 1
    facts = None if is_named else match_driver(card.name, card.total_mib.number if card.total_mib.is_known else None)
    if is_named or facts is not None:
        name = card.name if facts is None else facts.name
        return f"{card.name} is not used by this version; for a plan with it: --card {shlex.quote(name)}"
    reason = card_problem(card) or f"its memory bandwidth is unknown ({card.bandwidth_gb_s.by})"
    if card_problem(card) is None and card.bandwidth_gb_s.is_known:
        reason = "the table of cards has whole cards only"
    return f"{card.name} is not used by this version, and there is no plan with it: {reason}"


def _notes(spec: ModelSpec, machine: MachineBudget, request: Request, evaluation: Evaluation) -> tuple[str, ...]:
    notes = list(machine.notes)
    if request.quality.note:
        notes.append(request.quality.note)
    if machine.host is None or not machine.host.judges_ram:
        notes.append("the host's RAM is unknown and not judged: the verdict is about the card alone")
    if evaluation.knobs.device == "cpu":
        if not _is_timed(machine, evaluation):
            notes.append(NO_CPU_DRAFT)
        for card in machine.cards:
            notes.append(_unused_card(card))
    elif not evaluation.speed.decode_tok_s.is_known:
        notes.append(
            "the draft's shape was chosen for a host of 8 cores with AVX-512 and 50 GB/s; state yours for another"
        )
    notes.extend(_expert_notes(spec))
    unused = unused_sessions(spec, evaluation.knobs, machine.host.own) if machine.host else None
    notes += [unused] if unused else []
    if spec.draft_head_weights:
        notes.append("the model's own draft head is not used and not counted")
    if spec.unverified:
        notes.append("facts not seen in a file: " + "; ".join(spec.unverified))
    return tuple(notes)


def _search_notes(found: SearchResult) -> tuple[str, ...]:
    first, best = found.baseline_outcome.seconds, found.outcome.seconds
    if found.best == found.baseline or best is None:
        return (f"{found.n_trials} plans tried: none is faster than the analytic default",)
    turn = f"a prompt of up to {PROMPT_TOKENS} tokens and an answer of up to {ANSWER_TOKENS}"
    default = f"{first:.1f} s" if first is not None else "does not fit"
    return (f"{found.n_trials} plans tried: {turn} in {best:.1f} s, the analytic default {default}",)


def fit(
    spec: ModelSpec,
    machine: MachineBudget,
    request: Request,
    *,
    download_mib: Figure | None = None,
    gguf_flag: str | None = None,
    gguf_repo: str | None = None,
    gguf_tensors: Mapping[str, int] | None = None,
    measured_kl: MeasuredKl = MappingProxyType({}),
    base_levels: Sequence[int] | None = None,
    command: FitCommand | None = None,
    n_trials: int = 0,
    storage_url: str | None = None,
    on_trial: Callable[[int], None] = lambda _: None,
) -> FitReport:
    """Plan `spec` for `machine` and judge the plan at the requested context.

    Args:
        download_mib: what would have to be fetched, where known better than from the spec.
        gguf_flag: the model is a GGUF file that llama-server opens with this option; it is then also answered as it is.
        gguf_repo: a Hub repository of GGUF files for the commands, where one is known.
        gguf_tensors: bytes of each tensor of the GGUF file, where its header was read.
        measured_kl: what was measured of checkpoints of the model. base_levels: of the base of the one that the plan
            would run.
        command: the command that asks for this, for the commands that ask for something near.
        n_trials: how many plans for a card to try beside the analytic default; 0 for that alone.
        storage_url: an Optuna storage that keeps the trials and shares them with other machines; None: none.
        on_trial: is given how many plans were tried, after each.

    Raises:
        InvalidOption: contradictory options, a context beyond the model's, a card plan without a card.
        UnsupportedModel: when the model's layers are not known.
    """
    request = with_known_kl(request, spec.name, measured_kl)
    evaluations = propose_evaluations(spec, machine, request)
    if not evaluations:
        raise InvalidOption("a plan for a card needs a card", found="no card", hint="twofold fit MODEL --card NAME")
    card, evaluation = choose(evaluations)
    found = None
    if n_trials > 0 and card is not None:
        evaluation, found = search_on_card(spec, evaluation, machine, card, request, n_trials, storage_url, on_trial)
    knobs = evaluation.knobs
    plan = knobs.to_plan(spec.name, evaluation.ram_mib, evaluation.vram_mib)
    can_run, why_not = runnable(spec, plan, card)
    kl, int8_kl = (measured_kl.get((knobs.residual_bits, one)) for one in (knobs.activations, OTHER))
    kl = kl or known_kl(spec.name, knobs.residual_bits, knobs.k_type, knobs.v_type, knobs.activations)
    command = command or FitCommand(spec.name)
    how = _measuring(spec, command, knobs.residual_bits, request)
    floor = judge_floor(request.quality, knobs.residual_bits, kl, how)
    file = GgufFile(gguf_flag, spec.weights_bytes, gguf_tensors) if gguf_flag and spec.weights_bytes else None
    chat = chat_command(command.model or spec.name, plan, spec.context_length)
    ways = _ways(spec, evaluation, card, machine, request, gguf_repo, file, kl, can_run, chat)
    download = download_mib or download_estimate(spec)
    rounding = _rounding(spec, evaluation, card, machine.host, request, kl, int8_kl, base_levels)
    return FitReport(
        model=spec.name,
        facts_source=spec.facts_source,
        unverified=spec.unverified,
        machine=machine,
        card=card,
        evaluation=evaluation,
        others=tuple((other.name, found) for other, found in evaluations if other is not None and other is not card),
        plan=plan,
        kl=kl,
        floor=floor,
        runnable=can_run,
        runnable_reason=why_not,
        largest_context=context_figure(spec, evaluation, card, machine, request.margin_mib),
        nearest=nearest_plans(spec, evaluation, card, machine, request),
        choices=ways.choices,
        alternatives=ways.alternatives,
        advice=advice(card, ways.choices, request),
        as_is=ways.as_is,
        host_needs=host_needs(spec, evaluation, card, request.margin_mib)
        if card is not None and not _knows_host(machine)
        else None,
        download_mib=download,
        disk_mib=_disk(spec, knobs.residual_bits, download),
        notes=(*_notes(spec, machine, request, evaluation), *(_search_notes(found) if found else ())),
        command=command,
        speed_terms=speed_terms(spec, knobs, card, machine.host, request.statistics or DEFAULT_STATISTICS),
        search=found,
        rounding=rounding,
        drafts=_drafts(spec, evaluation, card, machine.host, request),
        scopes=tuple((codec, bits_per_weight(spec, codec, knobs.residual_bits)) for codec in codecs_for(spec)),
    )


def _measuring(spec: ModelSpec, command: FitCommand, bits: int, request: Request) -> str | None:
    """The commands that measure the KL of this width; None where this version cannot quantise the model."""
    if spec.runnable_reason is not None:
        return None
    words = f"twofold eval {shlex.quote(command.model or spec.name)}"
    words += "" if request.fixed_bits is not None else f" --residual-bits {bits}"
    return words if request.rounding() == USUAL else f"{words} --activations {request.rounding()}"


def _rounding(
    spec: ModelSpec,
    evaluation: Evaluation,
    card: CardBudget | None,
    host: HostBudget | None,
    request: Request,
    kl: Figure,
    int8_kl: Figure | None,
    base_levels: Sequence[int] | None,
) -> RoundingGain | None:
    """What int8 activations would bring where nobody asked for a rounding, and the checkpoint lets them."""
    if request.activations is not None or is_wide(evaluation.knobs, host, base_levels, OTHER):
        return None
    statistics = request.statistics or DEFAULT_STATISTICS
    facts = (spec, evaluation, card, host, request.quality, request.margin_mib, statistics)
    return rounding_gain(*facts, kl, int8_kl)


def _drafts(
    spec: ModelSpec, evaluation: Evaluation, card: CardBudget | None, host: HostBudget | None, request: Request
) -> DraftComparison | None:
    """The ways to draft, on the host that is known or a nominal one."""
    if card is None or evaluation.verdict in ("unknown", "does_not_fit"):
        return None
    words = nominal_words(host) if host is None or not host.ram_read_gb_s.is_known else "with the host's RAM as it is"
    return compare_drafts(spec, evaluation.knobs, card, comparison_host(host), request.margin_mib, words)
