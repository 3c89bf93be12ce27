"""Whether int8 activations would make a plan faster: the same plan with them, both speeds from one source.

They change the text, as a cache type does, so a plan never takes them unasked; what they would bring is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from twofold.planner.acceptance import RankStatistics
from twofold.planner.evaluate import Evaluation, needs
from twofold.planner.knobs import Knobs
from twofold.planner.latency import Speed, estimate_speed
from twofold.planner.machine import CardBudget, HostBudget
from twofold.planner.quality import known_kl
from twofold.planner.request import QualityFloor
from twofold.planner.timed.passes import timed_passes
from twofold.planner.timed.speed import timed_draft
from twofold.profiles.activations import Activations, is_slow_base
from twofold.profiles.figures import Figure
from twofold.profiles.model_spec import ModelSpec

OTHER: Final[Activations] = "int8"
ENOUGH = 1.1
"""A likely gain below a tenth is not worth another text."""
BANDWIDTHS = "from bytes, arithmetic and bandwidths"


@dataclass(frozen=True, slots=True)
class RoundingGain:
    """What `activations` would bring: `speed` beside the plan's `own`, both of one kind, which `by` names.
    `is_decode_faster`, `is_prompt_faster`: by a tenth or more; at least one of them is.
    """

    activations: Activations
    knobs: Knobs
    own: Speed
    speed: Speed
    own_kl: Figure
    kl: Figure
    by: str

    @property
    def is_decode_faster(self) -> bool:
        own, other = self.own.decode_tok_s, self.speed.decode_tok_s
        return own.is_known and other.is_known and other.number >= ENOUGH * own.number

    @property
    def is_prompt_faster(self) -> bool:
        own, other = self.own.ttft_1k_s, self.speed.ttft_1k_s
        return own.is_known and other.is_known and own.number >= ENOUGH * other.number

    @property
    def options(self) -> str:
        return f"--activations {self.activations}"

    def to_json(self) -> dict[str, object]:
        return {
            "activations": self.activations,
            "options": self.options,
            "draft_nodes": self.knobs.draft_nodes,
            "draft_depth": self.knobs.draft_depth,
            "is_decode_faster": self.is_decode_faster,
            "is_prompt_faster": self.is_prompt_faster,
            "decode_tok_s": self.speed.decode_tok_s.to_json(),
            "ttft_1k_s": self.speed.ttft_1k_s.to_json(),
            "kl": self.kl.to_json(),
            "plan_decode_tok_s": self.own.decode_tok_s.to_json(),
            "plan_ttft_1k_s": self.own.ttft_1k_s.to_json(),
            "plan_kl": self.own_kl.to_json(),
            "by": self.by,
        }


def is_wide(knobs: Knobs, host: HostBudget | None, levels: Sequence[int] | None, activations: Activations) -> bool:
    """Whether a checkpoint's base of these levels stays slow on the CPU with `activations`."""
    if levels is None or knobs.device != "cpu" or host is None:
        return False
    return is_slow_base(activations, levels, host.isa_tier, has_avx_vnni=host.has_avx_vnni)


def rounding_gain(
    spec: ModelSpec,
    evaluation: Evaluation,
    card: CardBudget | None,
    host: HostBudget | None,
    floor: QualityFloor | None,
    margin_mib: float,
    statistics: RankStatistics,
    kl: Figure,
    other_kl: Figure | None = None,
) -> RoundingGain | None:
    """What int8 activations would bring to an evaluated plan of a known host; None where that is not a tenth of decode
    or of the first token, where no speed is known, or where they are not allowed.

    Args:
        floor: the least quality that is accepted; None: any.
        kl: of the plan. other_kl: what was measured of its checkpoint with int8 activations.
    """
    knobs = evaluation.knobs
    is_allowed = floor is None or OTHER in floor.activations
    if knobs.activations == OTHER or host is None or not is_allowed or evaluation.verdict == "does_not_fit":
        return None
    plain = knobs.with_(activations=OTHER)
    timed = [_timed_words(spec, one, host) for one in (knobs, plain)]
    compared = host if None not in timed else replace(host, kernels=None)
    if compared.kernels is None and host.isa_tier == "generic":
        return None  # bandwidths count products, and that tier takes about as long for one plane as for two
    other = _with_draft(spec, knobs, plain, compared, statistics)
    if needs(spec, other, card, host, margin_mib).severity > evaluation.severity:
        return None
    found = RoundingGain(
        OTHER,
        other,
        estimate_speed(spec, knobs, card, compared, statistics),
        estimate_speed(spec, other, card, compared, statistics),
        kl,
        other_kl or known_kl(spec.name, knobs.residual_bits, knobs.k_type, knobs.v_type, OTHER),
        _source(timed, knobs.activations),
    )
    return found if found.is_decode_faster or found.is_prompt_faster else None


def _timed_words(spec: ModelSpec, knobs: Knobs, host: HostBudget) -> str | None:
    """Whose timed kernels a plan's seconds are sums of; None where they are not."""
    kernels = None if host.kernels is None else host.kernels.kernels_of(knobs)
    if host.kernels is None or kernels is None or timed_passes(spec, knobs, kernels) is None:
        return None
    return host.kernels.words(kernels)


def _source(timed: Sequence[str | None], own: Activations) -> str:
    """What both speeds come from: a sum of kernels is not compared with an estimate from bandwidths."""
    if timed == [None, None]:
        return BANDWIDTHS
    if timed[0] is not None and timed[1] is not None:
        return timed[1]
    missing = OTHER if timed[1] is None else own
    return f"{BANDWIDTHS}, since kernels with {missing} activations were not timed"


def _with_draft(spec: ModelSpec, own: Knobs, other: Knobs, host: HostBudget, statistics: RankStatistics) -> Knobs:
    """`other` with a draft of its own where timed kernels chose that of `own`; else with the same."""
    shapes = [timed_draft(spec, knobs, host.kernels, statistics) for knobs in (own, other)]
    if shapes[0] is None or shapes[1] is None:
        return other
    if (shapes[0].nodes, shapes[0].depth) != (own.draft_nodes, own.draft_depth):
        return other
    return other.with_(**shapes[1].changes())
