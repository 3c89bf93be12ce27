"""What would fit: the largest context, and the nearest plans that change one thing."""

from __future__ import annotations

from dataclasses import dataclass

from twofold.planner.evaluate import Evaluation, evaluate, needs
from twofold.planner.knobs import Knobs
from twofold.planner.machine import CardBudget, MachineBudget
from twofold.planner.propose import place_on_card
from twofold.planner.request import Request
from twofold.profiles.figures import Figure, reasoned, unknown
from twofold.profiles.model_spec import ModelSpec

CONTEXT_STEP = 256


def _fits(spec: ModelSpec, knobs: Knobs, card: CardBudget | None, machine: MachineBudget, margin_mib: float) -> bool:
    placed = place_on_card(spec, knobs, card, margin_mib) if card else knobs
    return needs(spec, placed, card, machine.host, margin_mib).verdict == "fits"


def largest_context(
    spec: ModelSpec, knobs: Knobs, card: CardBudget | None, machine: MachineBudget, margin_mib: float
) -> int:
    """The most tokens, in steps of 256, with which the other knobs fit; 0 when none do. Memory grows with context."""

    def fits(steps: int) -> bool:
        context = min(steps * CONTEXT_STEP, spec.context_length)
        chunk = min(knobs.prefill_chunk, context)
        return _fits(spec, knobs.with_(context_tokens=context, prefill_chunk=chunk), card, machine, margin_mib)

    top = -(-spec.context_length // CONTEXT_STEP)
    if fits(top):
        return spec.context_length
    low, high = 0, top
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * CONTEXT_STEP


def context_figure(
    spec: ModelSpec, evaluation: Evaluation, card: CardBudget | None, machine: MachineBudget, margin_mib: float
) -> Figure:
    """The largest context that fits as a figure; unknown where the verdict is."""
    if evaluation.verdict == "unknown":
        return unknown("tokens", "the free memory is unknown")
    most = largest_context(spec, evaluation.knobs, card, machine, margin_mib)
    by = (
        "the model's own maximum"
        if most == spec.context_length
        else "largest context whose upper estimate leaves the margin"
    )
    return reasoned(most, "tokens", by)


@dataclass(frozen=True, slots=True)
class NearPlan:
    """A plan one change away from the request that fits, and the options that ask for it."""

    change: str
    options: str
    evaluation: Evaluation

    def to_json(self, model: str) -> dict[str, object]:
        plan = self.evaluation.knobs.to_plan(model, self.evaluation.ram_mib, self.evaluation.vram_mib)
        return {
            "change": self.change,
            "options": self.options,
            "verdict": self.evaluation.verdict,
            "vram_mib": round(self.evaluation.vram_mib, 2),
            "ram_mib": round(self.evaluation.ram_mib, 2),
            "plan": plan.model_dump(mode="json"),
        }


def _variants(request: Request, knobs: Knobs, largest: int) -> list[tuple[str, str, Knobs]]:
    """Knobs one change away, nearest to the request first: change, options, knobs."""
    found: list[tuple[str, str, Knobs]] = []
    allowed = request.quality.kv_types
    smaller = allowed[allowed.index(knobs.k_type) + 1 :] if knobs.k_type in allowed else ()
    for kind in smaller:
        found.append((f"{kind} cache instead of {knobs.k_type}", f"--kv {kind}", knobs.with_(k_type=kind, v_type=kind)))
    if request.fixed_bits is None:
        for bits in range(knobs.residual_bits - 1, request.quality.min_residual_bits - 1, -1):
            found.append((f"{bits} residual bits instead of {knobs.residual_bits}", f"--residual-bits {bits}",
                          knobs.with_(residual_bits=bits)))  # fmt: skip
    if 0 < largest < knobs.context_tokens:
        chunk = min(knobs.prefill_chunk, largest)
        found.append((f"context of {largest} instead of {knobs.context_tokens}", f"--ctx {largest}",
                      knobs.with_(context_tokens=largest, prefill_chunk=chunk)))  # fmt: skip
    return found


def nearest_plans(
    spec: ModelSpec,
    evaluation: Evaluation,
    card: CardBudget | None,
    machine: MachineBudget,
    request: Request,
    largest: int,
) -> tuple[NearPlan, ...]:
    """Plans that fit where the requested one does not, every one at or above the quality floor."""
    if evaluation.verdict in ("fits", "unknown"):
        return ()
    margin = request.margin_mib
    plans: list[NearPlan] = []
    variants = _variants(request, evaluation.knobs, largest)
    for kind in request.quality.kv_types:
        if kind != evaluation.knobs.k_type:
            changed = evaluation.knobs.with_(k_type=kind, v_type=kind)
            most = min(largest_context(spec, changed, card, machine, margin), changed.context_tokens)
            if largest < most < changed.context_tokens:
                chunk = min(changed.prefill_chunk, most)
                variants.append((f"context of {most} with a {kind} cache", f"--ctx {most} --kv {kind}",
                                 changed.with_(context_tokens=most, prefill_chunk=chunk)))  # fmt: skip
    for change, options, knobs in variants:
        if _fits(spec, knobs, card, machine, margin):
            placed = place_on_card(spec, knobs, card, margin) if card else knobs
            plans.append(NearPlan(change, options, evaluate(spec, placed, card, machine.host, margin)))
    return tuple(plans)
