"""What would fit: the largest context, and the nearest plans (a smaller cache, fewer bits, a shorter context)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twofold.planner.command import FitCommand
from twofold.planner.evaluate import Evaluation, evaluate, needs
from twofold.planner.knobs import Knobs
from twofold.planner.machine import CardBudget, MachineBudget
from twofold.planner.plan import KvType
from twofold.planner.propose import place_on_card
from twofold.planner.quality import RANK, QualityClass, plan_class
from twofold.planner.request import QualityFloor, Request
from twofold.profiles.figures import Figure, reasoned, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

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
    """A plan near the request that fits, and the options that ask for it. `quality` is None at or above the floor."""

    change: str
    options: str
    evaluation: Evaluation
    quality: QualityClass | None = None

    def to_json(self, model: str, command: FitCommand) -> dict[str, object]:
        plan = self.evaluation.knobs.to_plan(model, self.evaluation.ram_mib, self.evaluation.vram_mib)
        return {
            "change": self.change,
            "options": self.options,
            "command": command.changed(self.options).text,
            "below_floor": self.quality is not None,
            "verdict": self.evaluation.verdict,
            "vram_mib": round(self.evaluation.vram_mib, 2),
            "ram_mib": round(self.evaluation.ram_mib, 2),
            "plan": plan.model_dump(mode="json"),
        }


@dataclass(frozen=True, slots=True)
class _Variant:
    """Knobs with some changes; `quality` is the class to ask for where it is below the floor."""

    changes: tuple[str, ...]
    options: tuple[str, ...]
    knobs: Knobs
    quality: QualityClass | None = None


class _Near:
    """Variants of one request, and which of them fit."""

    def __init__(
        self, spec: ModelSpec, knobs: Knobs, card: CardBudget | None, machine: MachineBudget, request: Request
    ) -> None:
        self.spec, self.knobs, self.card, self.machine, self.request = spec, knobs, card, machine, request

    def _bits(self, one: _Variant, bits: int) -> _Variant:
        change = f"{bits} residual bits instead of {self.knobs.residual_bits}"
        options = (*one.options, f"--residual-bits {bits}")
        return replace(one, changes=(*one.changes, change), options=options, knobs=one.knobs.with_(residual_bits=bits))

    def _kv(self, one: _Variant, kind: KvType) -> _Variant:
        change = f"{kind} cache instead of {self.knobs.k_type}"
        knobs = one.knobs.with_(k_type=kind, v_type=kind)
        return replace(one, changes=(*one.changes, change), options=(*one.options, f"--kv {kind}"), knobs=knobs)

    def _fits(self, one: _Variant) -> bool:
        return _fits(self.spec, one.knobs, self.card, self.machine, self.request.margin_mib)

    def shortened(self, one: _Variant) -> _Variant | None:
        """`one` with the largest context that fits; None where that is none, or no shorter than asked."""
        most = largest_context(self.spec, one.knobs, self.card, self.machine, self.request.margin_mib)
        if not 0 < most < one.knobs.context_tokens:
            return None
        chunk = min(one.knobs.prefill_chunk, most)
        return replace(
            one,
            changes=(*one.changes, f"context of {most} instead of {self.knobs.context_tokens}"),
            options=(*one.options, f"--ctx {most}"),
            knobs=one.knobs.with_(context_tokens=most, prefill_chunk=chunk),
        )

    def smaller(self) -> tuple[list[_Variant], list[_Variant], list[_Variant]]:
        """A smaller cache; fewer bits; both, at or above the floor: the smallest change of each kind first."""
        floor, plain = self.request.quality, _Variant((), (), self.knobs)
        kinds = floor.kv_types
        later = kinds[kinds.index(self.knobs.k_type) + 1 :] if self.knobs.k_type in kinds else ()
        fewer = range(self.knobs.residual_bits - 1, floor.min_residual_bits - 1, -1)
        widths = list(fewer) if self.request.fixed_bits is None else []
        return (
            [self._kv(plain, kind) for kind in later],
            [self._bits(plain, bits) for bits in widths],
            [self._kv(self._bits(plain, bits), kind) for bits in widths for kind in later],
        )

    def above_floor(self) -> list[_Variant]:
        """What fits without lower quality than asked for: one thing changed, both where one is not enough, and the
        longest context with each; every further change must buy context.
        """
        caches, widths, both = self.smaller()
        first = [next((one for one in group if self._fits(one)), None) for group in (caches, widths)]
        found = [one for one in first if one is not None]
        found = found or [one for one in both if self._fits(one)][:1]
        longest = 0
        for one in (_Variant((), (), self.knobs), *caches, *widths, *both):
            shorter = self.shortened(one)
            if shorter is not None and shorter.knobs.context_tokens > longest:
                longest = shorter.knobs.context_tokens
                found.append(shorter)
        return found

    def below_floor(self) -> _Variant | None:
        """The best quality below the floor at which the whole request fits: the width stays where it need not fall."""
        asked, own = self.request, self.knobs
        floor = RANK[plan_class(asked.quality.min_residual_bits, "f16", asked.quality.kv_types[-1])]
        for quality in (one for one in _CLASSES if RANK[one] < floor):
            least = QualityFloor.parse(quality)
            fewer = range(own.residual_bits, least.min_residual_bits - 1, -1)
            for bits in [own.residual_bits] if asked.fixed_bits is not None else fewer:
                for kind in least.kv_types[least.kv_types.index(own.k_type) :]:
                    one = self._at(quality, bits, kind)
                    if plan_class(bits, kind, kind) == quality and self._fits(one):
                        return one
        return None

    def _at(self, quality: QualityClass, bits: int, kind: KvType) -> _Variant:
        one = _Variant((), (f"--min-quality {quality}",), self.knobs, quality)
        if bits < self.knobs.residual_bits:
            one = self._bits(one, bits)
        elif self.request.fixed_bits is None:
            one = replace(one, options=(*one.options, f"--residual-bits {bits}"))
        return one if kind == self.knobs.k_type else self._kv(one, kind)


_CLASSES: tuple[QualityClass, ...] = ("q6", "q4")


def _smaller_margin(evaluation: Evaluation, request: Request) -> tuple[str, str] | None:
    """Where the upper estimate fits and only the margin does not: the margin that is left, as a change and options."""
    left = [
        device.free_mib.number - device.memory.high / MIB
        for device in evaluation.devices
        if device.free_mib is not None and device.free_mib.is_known
    ]
    margin = int(min(left, default=-1.0))
    if evaluation.verdict != "tight" or not 0 <= margin < request.margin_mib:
        return None
    return f"{margin} MiB kept back instead of {request.margin_mib:g}", f"--margin {margin}"


def nearest_plans(
    spec: ModelSpec, evaluation: Evaluation, card: CardBudget | None, machine: MachineBudget, request: Request
) -> tuple[NearPlan, ...]:
    """Plans that fit where the requested one does not: those at or above the quality floor, then one below it."""
    if evaluation.verdict in ("fits", "unknown"):
        return ()
    near = _Near(spec, evaluation.knobs, card, machine, request)
    found = near.above_floor()
    below = near.below_floor()
    plans: list[NearPlan] = []
    for one in [*found, *([below] if below else [])]:
        placed = place_on_card(spec, one.knobs, card, request.margin_mib) if card else one.knobs
        change = ", ".join((*one.changes, *_moved(evaluation.knobs, placed)))
        judged = evaluate(spec, placed, card, machine.host, request.margin_mib)
        plans.append(NearPlan(change, " ".join(one.options), judged, one.quality))
    margin = _smaller_margin(evaluation, request)
    if margin is not None:
        left = float(margin[1].split()[1])
        judged = evaluate(spec, evaluation.knobs, card, machine.host, left)
        plans.insert(0, NearPlan(*margin, judged))
    return tuple(plans)


def _moved(before: Knobs, after: Knobs) -> tuple[str, ...]:
    """What moving residuals to RAM buys is said, since it costs speed."""
    if len(after.resident) >= len(before.resident):
        return ()
    return (f"{len(after.resident)} residuals in VRAM instead of {len(before.resident)}",)
