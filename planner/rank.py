"""The known models on one machine: which fit, at what quality, how fast, what has to be fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twofold.planner.alternatives import comparison_host
from twofold.planner.evaluate import SEVERITY, Evaluation, Verdict
from twofold.planner.latency import estimate_speed
from twofold.planner.machine import CardBudget, MachineBudget
from twofold.planner.plan import Plan
from twofold.planner.propose import choose, propose_evaluations
from twofold.planner.quality import known_kl
from twofold.planner.quality_floor import FloorJudgement, judge_floor, with_known_kl
from twofold.planner.report import SCHEMA_VERSION, quality_class
from twofold.planner.request import Request
from twofold.planner.verdict import download_estimate, runnable
from twofold.profiles.figures import Figure
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.shipped import is_chat_model

USABLE_TOK_S = 3.0
CHAT_TOK_S = 5.0
"""A model that writes slower than people read is not recommended for a conversation."""
CHAT_FIRST_TOKEN_S = 60.0
"""Nor one whose first token, after a prompt of 1K, takes longer."""


@dataclass(frozen=True, slots=True)
class RankedModel:
    """One known model on the machine. `compared` is its speed there, or on a nominal host where that is unknown."""

    model: str
    verdict: Verdict
    runnable: bool
    runnable_reason: str | None
    quality: str
    plan: Plan
    evaluation: Evaluation
    compared: Figure
    download_mib: Figure
    n_weights: int
    floor: FloorJudgement

    def to_json(self) -> dict[str, object]:
        speed = self.evaluation.speed
        return {
            "model": self.model,
            "verdict": self.verdict,
            "runnable": self.runnable,
            "runnable_reason": self.runnable_reason,
            "quality": self.quality,
            "quality_floor": self.floor.state,
            "decode_tok_s": speed.decode_tok_s.to_json(),
            "compared_tok_s": self.compared.to_json(),
            "ttft_1k_s": speed.ttft_1k_s.to_json(),
            "ram_mib": self.evaluation.ram.total_figure.to_json(),
            "vram_mib": self.evaluation.vram.total_figure.to_json() if self.evaluation.vram else None,
            "download_mib": self.download_mib.to_json(),
            "plan": self.plan.model_dump(mode="json"),
        }


def _order(row: RankedModel) -> tuple[int, bool, bool, bool, int]:
    """Fitting first, of that last what is known to miss a KL floor; then what this version runs, then usable speeds,
    then the larger model.
    """
    speed = row.compared
    slow = speed.is_known and speed.number < USABLE_TOK_S
    return SEVERITY[row.verdict], row.floor.state == "not_met", not row.runnable, slow, -row.n_weights


def _compared(spec: ModelSpec, evaluation: Evaluation, card: CardBudget | None, machine: MachineBudget) -> Figure:
    """On the CPU only where its speed is known: models would be told apart by nothing that this machine has."""
    own = evaluation.speed.decode_tok_s
    if own.is_known or card is None:
        return own
    return estimate_speed(spec, evaluation.knobs, card, comparison_host(machine.host)).decode_tok_s


def _kl(spec: ModelSpec, plan: Plan) -> Figure:
    return known_kl(spec.name, plan.residual_bits, plan.k_type, plan.v_type, plan.activations)


def rank_models(specs: Sequence[ModelSpec], machine: MachineBudget, request: Request) -> tuple[RankedModel, ...]:
    """Every model judged on `machine`, the best answer first. A context beyond a model's own is cut to it."""
    rows = []
    for spec in specs:
        context = request.context_tokens
        fitted = request if context is None else request.with_context(min(context, spec.context_length))
        fitted = with_known_kl(fitted, spec.name, {})
        card, evaluation = choose(propose_evaluations(spec, machine, fitted))
        plan = evaluation.knobs.to_plan(spec.name, evaluation.ram_mib, evaluation.vram_mib)
        can_run, why_not = runnable(spec, plan, card)
        rows.append(
            RankedModel(
                model=spec.name,
                verdict=evaluation.verdict,
                runnable=can_run,
                runnable_reason=why_not,
                quality=quality_class(plan),
                plan=plan,
                evaluation=evaluation,
                compared=_compared(spec, evaluation, card, machine),
                download_mib=download_estimate(spec),
                n_weights=spec.n_decoder_weights,
                floor=judge_floor(fitted.quality, plan.residual_bits, _kl(spec, plan)),
            )
        )
    return tuple(sorted(rows, key=_order))


def ranking_json(rows: Sequence[RankedModel], machine: MachineBudget) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": machine.to_json(),
        "models": [row.to_json() for row in rows],
        "notes": list(machine.notes),
    }


def recommended(rows: Sequence[RankedModel]) -> RankedModel | None:
    """The best of `rows` to chat with: a model made for conversation that runs, fits, and is known to answer in
    bearable time; None where there is none.
    """
    return next((row for row in rows if _is_good(row) and _is_for_chat(row)), None)


def _is_good(row: RankedModel) -> bool:
    return row.runnable and row.verdict == "fits" and row.floor.state != "not_met"


def _is_for_chat(row: RankedModel) -> bool:
    first = row.evaluation.speed.ttft_1k_s
    is_quick = row.compared.is_known and row.compared.number >= CHAT_TOK_S
    is_prompt = not first.is_known or first.number <= CHAT_FIRST_TOKEN_S
    return is_chat_model(row.model) and is_quick and is_prompt
