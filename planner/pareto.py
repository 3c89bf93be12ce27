"""`fit --pareto`: plans that fit, none of which another one beats in speed, quality and context at once.

Quality is compared by class, and within one knob by knob (no fewer residual bits, no smaller cache type), since nothing
turns bits into one number before a model was measured. Speed is decode behind a full cache: what the context costs once
it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twofold.planner.acceptance import DEFAULT_STATISTICS
from twofold.planner.alternatives import comparison_host, nominal_words
from twofold.planner.curves import decode_behind
from twofold.planner.evaluate import Evaluation, evaluate, needs
from twofold.planner.knobs import Knobs
from twofold.planner.latency import SpeedModel
from twofold.planner.machine import CardBudget, MachineBudget
from twofold.planner.propose import CUDA_SHAPES, place_on_card
from twofold.planner.quality import RANK, QualityClass, known_kl, plan_class
from twofold.planner.request import KV_TYPES, QualityFloor, Request
from twofold.profiles.figures import Figure
from twofold.profiles.model_spec import ModelSpec

FIRST_CONTEXT = 2048
N_CONTEXTS = 7
WIDEST = 8
_KV_RANK = {kind: -index for index, kind in enumerate(KV_TYPES)}


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A plan that fits. `tok_s` is the speed behind a full cache on `Pareto.host`; the rest is as evaluated."""

    evaluation: Evaluation
    quality: QualityClass
    kl: Figure
    tok_s: Figure
    is_below_floor: bool

    def to_json(self, model: str) -> dict[str, object]:
        found = self.evaluation
        return {
            "context_tokens": found.knobs.context_tokens,
            "residual_bits": found.knobs.residual_bits,
            "kv": found.knobs.k_type,
            "quality": self.quality,
            "kl": self.kl.to_json(),
            "is_below_floor": self.is_below_floor,
            "decode_full_tok_s": self.tok_s.to_json(),
            "ttft_1k_s": found.speed.ttft_1k_s.to_json(),
            "vram_mib": found.vram.total_figure.to_json() if found.vram else None,
            "ram_mib": found.ram.total_figure.to_json(),
            "plan": found.knobs.to_plan(model, found.ram_mib, found.vram_mib).model_dump(mode="json"),
        }


@dataclass(frozen=True, slots=True)
class Pareto:
    """The front, by quality (best first), then context; and how many plans were looked at. `note`: whose host."""

    points: tuple[ParetoPoint, ...]
    n_tried: int
    n_fitting: int
    note: str | None


def contexts_to_try(spec: ModelSpec, request: Request) -> tuple[int, ...]:
    """Powers of two up to the model's maximum, the requested one among them, ascending; at most `N_CONTEXTS` + 1."""
    found = [FIRST_CONTEXT]
    while found[-1] * 2 < spec.context_length:
        found.append(found[-1] * 2)
    found = [tokens for tokens in found if tokens < spec.context_length] + [spec.context_length]
    found = found[-N_CONTEXTS:]
    if request.context_tokens is not None:
        found.append(min(request.context_tokens, spec.context_length))
    return tuple(sorted(set(found)))


def _shapes(chosen: Knobs) -> tuple[tuple[int, int], ...]:
    if chosen.device == "cpu":
        return ((chosen.draft_nodes, chosen.draft_depth),)
    return tuple(dict.fromkeys([(chosen.draft_nodes, chosen.draft_depth), *CUDA_SHAPES]))


class _Front:
    """The search for one model and machine."""

    def __init__(self, spec: ModelSpec, machine: MachineBudget, card: CardBudget | None, request: Request) -> None:
        self.spec, self.machine, self.card, self.request = spec, machine, card, request
        self.host = comparison_host(machine.host)
        self.statistics = request.statistics or DEFAULT_STATISTICS
        self.n_tried = 0

    def fitting(self, knobs: Knobs) -> Knobs | None:
        """The likely fastest draft shape with which `knobs` fit, residuals placed; None where none fits."""
        best: tuple[float, Knobs] | None = None
        margin = self.request.margin_mib
        for nodes, depth in _shapes(knobs):
            one = knobs.with_(draft_nodes=nodes, draft_depth=depth)
            if self.card is not None:
                one = place_on_card(self.spec, one, self.card, margin)
            self.n_tried += 1
            if needs(self.spec, one, self.card, self.machine.host, margin).verdict != "fits":
                continue
            speed = SpeedModel(self.spec, one, self.card, self.host, self.statistics).likely_tok_s() or 0.0
            if best is None or speed > best[0]:
                best = speed, one
        return best[1] if best else None

    def candidates(self, chosen: Knobs, floor: QualityFloor) -> Iterator[Knobs]:
        fixed = self.request.residual_bits or self.request.fixed_bits
        widths = (fixed,) if fixed else range(WIDEST, floor.min_residual_bits - 1, -1)
        kinds = [self.request.kv_type] if self.request.kv_type else [k for k in KV_TYPES if k in floor.kv_types]
        for bits in widths:
            for kind in kinds:
                for tokens in contexts_to_try(self.spec, self.request):
                    knobs = chosen.with_(
                        residual_bits=bits,
                        k_type=kind,
                        v_type=kind,
                        context_tokens=tokens,
                        prefill_chunk=min(chosen.prefill_chunk, tokens),
                        resident=(),
                    )
                    fitting = self.fitting(knobs)
                    if fitting is None:
                        break  # memory grows with the context
                    yield fitting

    def point(self, knobs: Knobs) -> ParetoPoint:
        spec, host = self.spec, self.machine.host
        quality = plan_class(knobs.residual_bits, knobs.k_type, knobs.v_type)
        model = SpeedModel(spec, knobs, self.card, self.host, self.statistics)
        floor = plan_class(self.request.quality.min_residual_bits, "f16", self.request.quality.kv_types[-1])
        return ParetoPoint(
            evaluation=evaluate(spec, knobs, self.card, host, self.request.margin_mib, self.statistics),
            quality=quality,
            kl=known_kl(spec.name, knobs.residual_bits, knobs.k_type, knobs.v_type, knobs.activations),
            tok_s=decode_behind(spec, model, knobs.context_tokens),
            is_below_floor=RANK[quality] < RANK[floor],
        )


def _is_no_worse(a: ParetoPoint, b: ParetoPoint) -> bool:
    """A better class, or the same one with no fewer bits and no smaller cache type: nothing else is comparable."""
    if a.quality != b.quality:
        return RANK[a.quality] > RANK[b.quality]
    one, other = a.evaluation.knobs, b.evaluation.knobs
    return one.residual_bits >= other.residual_bits and _KV_RANK[one.k_type] >= _KV_RANK[other.k_type]


def beats(a: ParetoPoint, b: ParetoPoint) -> bool:
    """Whether `a` is no worse, no shorter and no slower than `b`, and better in one of the three."""
    tokens = a.evaluation.knobs.context_tokens, b.evaluation.knobs.context_tokens
    if not _is_no_worse(a, b) or tokens[0] < tokens[1] or a.tok_s.number < b.tok_s.number:
        return False
    return tokens[0] > tokens[1] or a.tok_s.number > b.tok_s.number or not _is_no_worse(b, a)


def pareto_front(
    spec: ModelSpec,
    machine: MachineBudget,
    card: CardBudget | None,
    request: Request,
    chosen: Knobs,
    floor: QualityFloor,
) -> Pareto:
    """The front around `chosen` (its device, threads, prefill chunk), down to `floor`.

    Points below the request's own floor are marked. Where the host's speed is unknown, speeds are those of a nominal
    host, and `note` says so.
    """
    front = _Front(spec, machine, card, request)
    host = machine.host
    if card is None and (host is None or (host.kernels is None and not host.ram_read_gb_s.is_known)):
        return Pareto((), 0, 0, "the RAM bandwidth is unknown, so plans cannot be compared: twofold probe measures it")
    points = [front.point(knobs) for knobs in front.candidates(chosen, floor)]
    known = [point for point in points if point.tok_s.is_known]
    kept = [one for one in known if not any(beats(other, one) for other in known if other is not one)]
    order = sorted(
        kept,
        key=lambda one: (
            -one.evaluation.knobs.residual_bits,
            -_KV_RANK[one.evaluation.knobs.k_type],
            one.evaluation.knobs.context_tokens,
        ),
    )
    has_own = front.host is host or (card is None and host is not None and host.kernels is not None)
    note = None if has_own else f"speeds {nominal_words(host)}"
    return Pareto(tuple(order), front.n_tried, len(points), note)
