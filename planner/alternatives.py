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
from twofold.planner.quality import RANK, known_kl, plan_class, quant_class
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
    that is no slower and no worse, and better in one of the two.
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


def _needs_no_split(choice: Choice) -> bool:
    return choice.whole_on_card and choice.quality == "q8"


def _speed(choice: Choice) -> float:
    return choice.compared.number if choice.compared.is_known else 0.0


def _grade(choice: Choice) -> int:
    return RANK[choice.quality] if choice.quality is not None else -1


def _beats(other: Choice, one: Choice) -> bool:
    if other.serves is False or other.quality is None or one.quality is None or not other.compared.is_known:
        return False
    if not one.compared.is_known:
        return False
    no_worse = _grade(other) >= _grade(one) and _speed(other) >= _speed(one)
    return no_worse and (_grade(other) > _grade(one) or _speed(other) > ENOUGH_FASTER * _speed(one))


def ranked(choices: Sequence[Choice], request: Request) -> tuple[Choice, ...]:
    """What serves first, then what is at or above the quality floor, then the faster, then the better.

    A Q8_0 file that the card holds wholly goes before all else at its floor: splitting what fits unsplit buys nothing,
    and its speed is counted without a draft, which llama.cpp can add.
    """
    floor = plan_class(request.quality.min_residual_bits, "f16", "f16")

    def order(one: Choice) -> tuple[int, bool, bool, float, int]:
        severity = {True: 0, None: 1, False: 2}[one.serves]
        is_below = one.quality is not None and _grade(one) < RANK[floor]
        return severity, is_below, not _needs_no_split(one), -_speed(one), -_grade(one)

    marked = []
    for one in choices:
        better = next((other for other in choices if other is not one and _beats(other, one)), None)
        marked.append(replace(one, beaten_by=name_of(better) if better else None))
    return tuple(sorted(marked, key=order))


def name_of(choice: Choice) -> str:
    return choice.what if choice.engine == "llama.cpp" else f"twofold, {choice.what}"


def _span(figure: Figure) -> str:
    if not figure.is_known:
        return "unknown"
    low, high = figure.low or figure.number, figure.high or figure.number
    return f"{low:.3g} to {high:.3g} tok/s"


def advice(card: CardBudget | None, choices: Sequence[Choice], request: Request) -> str | None:
    """What to use, said plainly also where it is not twofold; `choices` as `ranked` gave them."""
    whole = next((one for one in choices if one.engine == "llama.cpp" and one.whole_on_card and one.quality), None)
    q8 = next((one for one in choices if _needs_no_split(one)), None)
    if card is not None and q8 is not None:
        return f"Q8_0 fits this card: use llama.cpp: {q8.command}"
    own = next((one for one in choices if one.engine == "twofold"), None)
    if own is None:
        return None
    original = next((one for one in choices if one.engine == "llama.cpp" and one.quality is None and one.serves), None)
    if original is not None and _speed(original) > ENOUGH_FASTER * _speed(own):
        return (
            f"use llama.cpp: the file as it is loses nothing, and is likely faster, {_span(original.compared)} against "
            f"{_span(own.compared)}: {original.command}"
        )
    grade = min(_grade(own), RANK[plan_class(request.quality.min_residual_bits, "f16", "f16")])
    rivals = [one for one in choices if one.engine == "llama.cpp" and one.serves is not False and _grade(one) >= grade]
    rival = max(rivals, key=_speed, default=None)
    if own.serves is False:
        good = None
        if rival is not None and rival.serves:
            good = f"use llama.cpp: {rival.what}, {rival.place}, {_span(rival.compared)}: {rival.command}"
        if good is None and whole is not None:
            return f"{whole.what} fits this card wholly, at lower quality than Q8_0: {whole.command}"
        return good
    if rival is not None and own.compared.is_known and _speed(rival) > ENOUGH_FASTER * _speed(own):
        return (
            f"use llama.cpp: {rival.what} is likely faster at this quality, {_span(rival.compared)} against "
            f"{_span(own.compared)}: {rival.command}"
        )
    if whole is not None and whole.beaten_by is None:
        return (
            f"{whole.what} fits this card wholly, at lower quality than Q8_0 ({_span(whole.compared)} against "
            f"{_span(own.compared)}): {whole.command}"
        )
    return None
