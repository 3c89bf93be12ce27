"""A quality floor that is a KL divergence, held against the KLs that somebody measured of the model.

A KL is of one residual width and one kind of activations, with an f16 cache. Where none is known the floor is not
judged, and that is said: it never looks met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from twofold.planner.quality import known_kl
from twofold.planner.request import QualityFloor, Request
from twofold.profiles.activations import USUAL, Activations
from twofold.profiles.figures import Figure

FloorState = Literal["met", "not_met", "not_judged"]
MeasuredKl = Mapping[tuple[int, Activations], Figure]
"""What `twofold eval` measured of the model's checkpoints here, by residual width and activations."""
WIDTHS = range(4, 9)


@dataclass(frozen=True, slots=True)
class FloorJudgement:
    """Whether a plan meets the floor called `name`; `words` say why, None where the floor is a class."""

    name: str
    state: FloorState
    words: str | None = None

    @property
    def clause(self) -> str | None:
        """What a verdict on memory must not be said without."""
        return {"met": None, "not_met": "below the quality floor", "not_judged": "quality floor not judged"}[self.state]


def _known(model: str, bits: int, activations: Activations, measured: MeasuredKl) -> Figure:
    return measured.get((bits, activations)) or known_kl(model, bits, "f16", "f16", activations)


def _least_width(model: str, floor: float, activations: Activations, measured: MeasuredKl) -> int | None:
    """The fewest bits that are known to meet the floor."""
    known = ((bits, _known(model, bits, activations, measured)) for bits in WIDTHS)
    return next((bits for bits, kl in known if kl.is_known and kl.number <= floor), None)


def with_known_kl(request: Request, model: str, measured: MeasuredKl) -> Request:
    """`request` whose KL floor allows what is known to meet it: the fewest residual bits, and activations at them.

    A width that was asked for, or that the checkpoint has, is refused only where its KL is known and above the floor.
    """
    floor = request.quality
    if floor.kl is None:
        return request
    asked = request.activations or request.fixed_activations or USUAL
    widths = {one: _least_width(model, floor.kl, one, measured) for one in get_args(Activations)}
    least, note = widths[asked], floor.note
    bits = floor.min_residual_bits if least is None else least
    kl = _known(model, bits, asked, measured)
    if least is None and kl.is_known:
        note = f"no residual width is known to have a KL of at most {floor.kl:g}; planned with {bits} bits, the most"
    elif least is not None:
        note = f"{least} bits are the fewest whose KL is known to be at most {floor.kl:g}: {kl.number:.3g} ({kl.by})"
    stated = request.residual_bits or request.fixed_bits
    if stated is not None and not _known(model, stated, asked, measured).is_known:
        bits, note = min(bits, stated), None
    allowed = tuple(one for one, width in widths.items() if width is not None and width <= (stated or bits))
    activations = tuple(one for one in get_args(Activations) if one == USUAL or one in allowed)
    return replace(request, quality=replace(floor, min_residual_bits=bits, note=note, activations=activations))


def judge_floor(floor: QualityFloor, bits: int, kl: Figure, how: str | None = None) -> FloorJudgement:
    """Whether a plan of `bits` and this KL meets the floor.

    Args:
        how: the commands that measure the KL; None where this version cannot.
    """
    if floor.kl is None:
        return FloorJudgement(floor.name, "met")
    if not kl.is_known:
        measures = f"{how} measures it" if how is not None else "and this version cannot measure it"
        return FloorJudgement(floor.name, "not_judged", f"no KL of {bits} bits is known for this model; {measures}")
    words = f"{kl.number:.3g} nats with {bits} bits: {kl.by}"
    return FloorJudgement(floor.name, "met" if kl.number <= floor.kl else "not_met", words)


def meets(floor: QualityFloor, kl: Figure, is_original: bool) -> bool | None:
    """Whether a way to run the model meets a KL floor, the file as it is always; None: its KL is not known."""
    if floor.kl is None or is_original:
        return True
    return kl.number <= floor.kl if kl.is_known else None
