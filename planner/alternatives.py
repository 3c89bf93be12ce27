"""What else would serve: twofold's plan beside llama.cpp's files, ranked by speed and quality, and the honest advice.

Speeds of different ways are compared on one host: the one that was stated, or `NOMINAL_HOST` where none was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from twofold.planner.evaluate import Evaluation
from twofold.planner.latency import estimate_speed
from twofold.planner.llama_cpp import Alternative
from twofold.planner.machine import CardBudget, HostBudget
from twofold.planner.plan import KvType
from twofold.planner.propose import NOMINAL_HOST
from twofold.planner.quality import RANK, QualityClass, known_kl, plan_class, quant_class
from twofold.planner.quality_floor import meets
from twofold.planner.request import Request
from twofold.profiles.figures import Figure
from twofold.profiles.model_spec import ModelSpec

ENOUGH_FASTER = 1.05
"""Likely speeds nearer than that are called equal: every one of them has a far wider range."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to have the model answer.

    `serves`: whether the memory for it is there (None: unknown). `quality` is None for a file whose types are its own.
    `compared` is the speed by which it was ranked, on the host that is known or a nominal one. `beaten_by` names a way
    that runs, is likely no slower and of no worse a class, and better in one of the two: `beaten_how`. `make`: how to
    make a file that nothing says exists. `meets_floor`: whether it meets the quality floor (None: nobody measured it).
    """

    engine: Literal["twofold", "llama.cpp"]
    what: str
    quality: str | None
    kl: Figure
    serves: bool | None
    runnable: bool
    place: str
    vram_mib: Figure | None
    ram_mib: Figure
    tok_s: Figure
    compared: Figure
    command: str
    whole_on_card: bool = False
    beaten_by: str | None = None
    beaten_how: str | None = None
    make: str | None = None
    meets_floor: bool | None = True

    @property
    def is_assumed(self) -> bool:
        """Whether `compared` is of a nominal host, since this one's speed is not known."""
        return self.compared.is_known and not self.tok_s.is_known

    @property
    def floor_words(self) -> str | None:
        """What is to be said of the quality floor where it is not known to be met."""
        judged = {True: None, None: "not judged against", False: "below"}[self.meets_floor]
        return f"{judged} the quality floor" if judged is not None else None

    def to_json(self) -> dict[str, object]:
        return {
            "engine": self.engine,
            "what": self.what,
            "quality": self.quality,
            "kl": self.kl.to_json(),
            "serves": self.serves,
            "runnable": self.runnable,
            "place": self.place,
            "vram_mib": self.vram_mib.to_json() if self.vram_mib else None,
            "ram_mib": self.ram_mib.to_json(),
            "tok_s": self.tok_s.to_json(),
            "compared_tok_s": self.compared.to_json(),
            "command": self.command,
            "beaten_by": self.beaten_by,
            "beaten_how": self.beaten_how,
            "make_first": self.make,
            "meets_floor": self.meets_floor,
        }


def own_choice(
    spec: ModelSpec,
    evaluation: Evaluation,
    card: CardBudget | None,
    host: HostBudget | None,
    kl: Figure,
    runnable: bool,
    command: str,
) -> Choice:
    """twofold's own plan as one of the ways."""
    knobs = evaluation.knobs
    compared = estimate_speed(spec, knobs, card, comparison_host(host)).decode_tok_s
    place = "on the CPU"
    if knobs.device == "cuda":
        place = f"base and {len(knobs.resident)} of {len(spec.groups)} residuals in VRAM, the rest in RAM"
    return Choice(
        engine="twofold",
        what=f"2-bit base + {knobs.residual_bits}-bit residual",
        quality=plan_class(knobs.residual_bits, knobs.k_type, knobs.v_type),
        kl=kl,
        serves={"fits": True, "tight": True, "does_not_fit": False}.get(evaluation.verdict),
        runnable=runnable,
        place=place,
        vram_mib=evaluation.vram.total_figure if evaluation.vram else None,
        ram_mib=evaluation.ram.total_figure,
        tok_s=evaluation.speed.decode_tok_s,
        compared=compared if compared.is_known else evaluation.speed.decode_tok_s,
        command=command,
    )


def llama_choice(spec: ModelSpec, one: Alternative, nominal: Alternative, kind: KvType) -> Choice:
    """A file with llama.cpp as one of the ways; `nominal` is the same on the host that speeds are compared on."""
    serves = one.fits_ram if not one.fits_card else True
    return Choice(
        engine="llama.cpp",
        what=one.quant,
        quality=quant_class(one.quant, kind),
        kl=known_kl(spec.name, one.quant, kind, kind),
        serves=serves,
        runnable=True,
        place=one.note,
        vram_mib=one.vram_mib if one.layers_on_card is not None else None,
        ram_mib=one.ram_mib,
        tok_s=one.tok_s,
        compared=one.tok_s if one.tok_s.is_known else nominal.tok_s,
        command=one.command,
        whole_on_card=bool(one.fits_card),
        make=one.make,
    )


def comparison_host(host: HostBudget | None) -> HostBudget:
    """`host` where its RAM's speed is known; else with the nominal speed, and the nominal host where there is none."""
    if host is None:
        return NOMINAL_HOST
    if host.ram_read_gb_s.is_known:
        return host
    cores = host.cores if host.cores.is_known else NOMINAL_HOST.cores
    isa = host.isa_tier or NOMINAL_HOST.isa_tier
    return replace(host, ram_read_gb_s=NOMINAL_HOST.ram_read_gb_s, cores=cores, isa_tier=isa)


def nominal_words(host: HostBudget | None) -> str:
    """What speeds on `comparison_host` assume, and how to say better."""
    speed = NOMINAL_HOST.ram_read_gb_s.number
    if host is None or host.is_partial:
        return f"with a host of 8 cores, AVX-512 and {speed:g} GB/s; --ram-gb-s and --cpu state yours"
    return f"were the RAM to read {speed:g} GB/s; twofold probe measures it, --ram-gb-s states it"


ORDER = (
    "what this version or llama.cpp runs today, what surely fits, what meets the quality floor, what a card holds "
    "whole at Q8_0 or as it is, then the likely faster; below the floor also the likely faster; last what does not fit"
)
"""The rule of `ranked`, for people."""


def _needs_no_split(choice: Choice) -> bool:
    """Splitting what fits unsplit buys nothing, and llama.cpp's speed is counted without a draft, which it can add."""
    return choice.whole_on_card and choice.quality in ("q8", None)


def _speed(choice: Choice) -> float:
    return choice.compared.number if choice.compared.is_known else 0.0


def _grade(choice: Choice) -> int:
    return RANK[choice.quality] if choice.quality is not None else -1


def _below(choice: Choice) -> int:
    """What meets the floor before what was not judged, Q8_0's class first, and that before what does not."""
    if choice.meets_floor is None:
        return 1 if _grade(choice) == RANK["q8"] else 2
    return 0 if choice.meets_floor else 3


def _severity(choice: Choice) -> int:
    return {True: 0, None: 1, False: 2}[choice.serves]


def _beats(other: Choice, one: Choice) -> bool:
    if other.quality is None or one.quality is None or not other.compared.is_known or not one.compared.is_known:
        return False
    if not other.runnable or other.serves is False or _severity(other) > _severity(one):
        return False
    if _below(other) > _below(one):
        return False
    if _needs_no_split(one) and not _needs_no_split(other):
        return False
    no_worse = _grade(other) >= _grade(one) and _speed(other) >= _speed(one)
    return no_worse and (_grade(other) > _grade(one) or _speed(other) > ENOUGH_FASTER * _speed(one))


def _how(other: Choice, one: Choice) -> str:
    """What makes `other` the better way, by class; surely only where the ranges of the speeds do not meet."""
    of_class = "a better class" if _grade(other) > _grade(one) else "the same class"
    slowest, fastest = other.compared.low or _speed(other), one.compared.high or _speed(one)
    faster = "faster" if slowest > fastest else "likely faster"
    return f"of {of_class} and {faster if _speed(other) > ENOUGH_FASTER * _speed(one) else 'likely no slower'}"


def ranked(choices: Sequence[Choice], request: Request) -> tuple[Choice, ...]:
    """The best way first, by `ORDER`; what is beaten stands below what beats it."""
    choices = [replace(one, meets_floor=_meets_floor(one, request)) for one in choices]

    def order(one: Choice) -> tuple[bool, bool, int, int, bool, float, int]:
        rank = one.serves is False, not one.runnable, _severity(one), _below(one), not _needs_no_split(one)
        return *rank, -_speed(one), -_grade(one)

    marked = []
    for one in choices:
        better = next((other for other in choices if other is not one and _beats(other, one)), None)
        by, how = (name_of(better) if better else None), (_how(better, one) if better else None)
        marked.append(replace(one, beaten_by=by, beaten_how=how))
    return tuple(sorted(marked, key=order))


def _meets_floor(one: Choice, request: Request) -> bool | None:
    if request.quality.kl is None:
        return one.quality is None or _grade(one) >= RANK[floor_class(request)]
    return meets(request.quality, one.kl, one.quality is None)


def floor_class(request: Request) -> QualityClass:
    """The least class that the request accepts."""
    return plan_class(request.quality.min_residual_bits, "f16", "f16")


def name_of(choice: Choice) -> str:
    return choice.what if choice.engine == "llama.cpp" else f"twofold, {choice.what}"


def _span(choice: Choice) -> str:
    """Its speed, with the table's mark where the host's was assumed."""
    figure = choice.compared
    if not figure.is_known:
        return "unknown"
    low, high = figure.low or figure.number, figure.high or figure.number
    return f"{low:.3g} to {high:.3g} tok/s{'*' if choice.is_assumed else ''}"


def _use(choice: Choice) -> str:
    """The command, and that its file has to be made where nothing says that it exists."""
    return f"{' (make its file first)' if choice.make else ''}: {choice.command}"


def advice(card: CardBudget | None, choices: Sequence[Choice], request: Request) -> str | None:
    """What to use, said plainly also where it is not twofold; `choices` as `ranked` gave them."""
    unsplit = next((one for one in choices if _needs_no_split(one) and one.meets_floor is not False), None)
    if card is not None and unsplit is not None:
        what = unsplit.what if unsplit.quality is not None else "the file as it is"
        return f"{what} fits this card: use llama.cpp{_use(unsplit)}"
    own = next((one for one in choices if one.engine == "twofold"), None)
    if own is None:
        return None
    others = [one for one in choices if one.engine == "llama.cpp"]
    if request.quality.kl is not None:
        others = [one for one in others if one.meets_floor is not False]
    original = next((one for one in others if one.quality is None and one.serves), None)
    if original is not None and _speed(original) > ENOUGH_FASTER * _speed(own):
        return (
            f"use llama.cpp: the file as it is loses nothing, and is likely faster, {_span(original)} against "
            f"{_span(own)} of twofold's plan{_use(original)}"
        )
    whole = next((one for one in others if one.whole_on_card and one.quality), None)
    grade = min(_grade(own), RANK[floor_class(request)])
    rival = max((one for one in others if one.serves is not False and _grade(one) >= grade), key=_speed, default=None)
    if own.serves is False:
        if rival is not None and rival.serves:
            return f"use llama.cpp: {rival.what}, {rival.place}, {_span(rival)}{_use(rival)}"
        return f"{whole.what} fits this card wholly, at lower quality than Q8_0{_use(whole)}" if whole else None
    if rival is not None and own.compared.is_known and _speed(rival) > ENOUGH_FASTER * _speed(own):
        return (
            f"use llama.cpp: {rival.what} is likely faster at this quality, {_span(rival)} against "
            f"{_span(own)} of twofold's plan{_use(rival)}"
        )
    if whole is not None and whole.beaten_by is None:
        first = choices[0]
        at_floor = "" if first is whole else f"; first in the order is {name_of(first)}, {_span(first)}"
        return (
            f"{whole.what} fits this card wholly, at lower quality than Q8_0 ({_span(whole)} against "
            f"{_span(own)} of twofold's plan{at_floor}){_use(whole)}"
        )
    if not own.runnable and rival is not None and rival.serves:
        return (
            f"use llama.cpp: this version does not run twofold's plan; {rival.what}, {rival.place}, "
            f"{_span(rival)}{_use(rival)}"
        )
    return None
