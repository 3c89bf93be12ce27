"""The options of `fit`: numbers, the machine that is planned for, the request."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from twofold.profiles.errors import InvalidOption

if TYPE_CHECKING:
    from twofold.planner.machine import MachineBudget
    from twofold.planner.plan import KvType
    from twofold.planner.request import Request
    from twofold.profiles.sources import ModelRef

MAX_GIB = 1 << 16
MAX_GB_S = 1e5
_EXAMPLES = {
    "--ram": "32",
    "--ram-gb-s": "50",
    "--vram": "12000",
    "--margin": "512",
    "--residual-bits": "6",
    "--weights-mib": "16386",
    "--mmproj-mib": "928",
    "--draft-mtp": "2",
    "--slots": "1",
    "--trials": "100",
}


def number(text: str | None, option: str, low: float, high: float, *, suffix: str = "") -> float | None:
    """An option's number between `low` and `high`; `suffix` letters after it are allowed (`64G`).

    Raises:
        InvalidOption: for anything else, NaN and infinity included.
    """
    if text is None:
        return None
    try:
        value = float(text.strip().rstrip(suffix) if suffix else text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise InvalidOption(
            f"{option} cannot be used",
            found=repr(text),
            needed=f"a number from {low:,.10g} to {high:,.10g}",
            hint=f"{option} {_EXAMPLES[option]}",
        )
    return value


def whole_number(text: str | None, option: str, low: int, high: int) -> int | None:
    """The same for a whole number.

    Raises:
        InvalidOption: for anything else.
    """
    value = number(text, option, low, high)
    if value is not None and value != int(value):
        raise InvalidOption(
            f"{option} is no whole number",
            found=str(text),
            needed=f"{low:,} to {high:,}",
            hint=f"{option} {_EXAMPLES[option]}",
        )
    return None if value is None else int(value)


def kv_kind(text: str | None, option: str) -> KvType | None:
    """A cache type by name.

    Raises:
        InvalidOption: for what is none.
    """
    from twofold.planner.request import KV_TYPES

    kind = next((one for one in KV_TYPES if one == text), None)
    if kind is None and text is not None:
        needed = "f16, q8_0 or q4_0"
        raise InvalidOption(f"{option} is not known", found=repr(text), needed=needed, hint=f"{option} f16")
    return kind


def build_request(
    ctx: str | None,
    kv: str | None,
    min_quality: str | None,
    margin: str | None,
    residual_bits: str | None,
    kv_v: str | None = None,
    activations: str | None = None,
) -> tuple[Request, bool]:
    """The request, settings filled in, and whether the context came from the command line."""
    from twofold.cli.launch_options import parse_activations, parse_context
    from twofold.planner.request import QualityFloor, Request
    from twofold.profiles.settings import get_settings

    settings = get_settings()
    floor = min_quality if min_quality is not None else settings.min_quality or "q8"
    bits = whole_number(residual_bits, "--residual-bits", 4, 8)
    asked = number(margin, "--margin", 0, 1 << 20)
    context = parse_context(ctx)
    request = Request(
        context_tokens=context if context is not None else settings.ctx,
        kv_type=kv_kind(kv if kv is not None else settings.kv, "--kv"),
        v_type=kv_kind(kv_v, "--kv-v"),
        activations=parse_activations(activations) or settings.activations,
        quality=QualityFloor.parse(str(floor)),
        residual_bits=bits,
        margin_mib=float(settings.margin_mib if asked is None else asked),
    )
    if request.quality.kl is None:  # else it takes what is known of the model
        request.bits()
        request.rounding()
    request.kv_choices()
    return request, context is not None


DEFAULT_TRIALS = 100


def build_trials(text: str | None) -> int:
    """How many plans to try.

    Raises:
        InvalidOption: not a number from 0 to 10,000.
    """
    value = whole_number(text, "--trials", 0, 10_000)
    return DEFAULT_TRIALS if value is None else value


def build_machine(
    card: str | None,
    profile: str | None,
    ram: str | None,
    ram_gb_s: str | None,
    cpu: str | None,
    vram: str | None,
    margin: str | None = None,
    *,
    is_forced: bool = False,
) -> MachineBudget:
    """Whose machine is planned for: a card's, a profile's, or this one. `margin` is checked against what is free;
    with `is_forced` a stated memory is taken even where the card is known to have less.

    Raises:
        InvalidOption: contradictory or impossible options, an unknown card. InvalidProfile: a bad profile.
    """
    from dataclasses import replace

    from twofold.cli.own import advice_notes
    from twofold.planner.machine import from_card, from_profile, refuse_margin, with_host, with_vram
    from twofold.profiles.cards import find_card
    from twofold.profiles.store import find_profile

    if card is not None and profile is not None:
        raise InvalidOption(
            "--card and --profile name two different machines",
            found=f"--card {card} --profile {profile}",
            needed="one of the two",
            hint="leave out one of them",
        )
    ram_gib = number(ram, "--ram", 0.1, MAX_GIB, suffix="gGiIbB")
    bandwidth = number(ram_gb_s, "--ram-gb-s", 0.1, MAX_GB_S)
    free = number(vram, "--vram", 1, MAX_GIB * 1024.0)
    if card is not None:
        machine = from_card(find_card(card), vram_mib=free, is_forced=is_forced)
    elif profile is not None:
        found = find_profile(profile)
        machine = from_profile(found, label=f"profile {profile}", is_this_machine=False)
        machine = replace(machine, notes=(*machine.notes, *advice_notes(found)))
    else:
        machine = local_machine()
    if free is not None and card is None:
        if not machine.cards:
            raise InvalidOption("--vram needs a card", found="no card", hint="name one: --card NAME")
        machine = with_vram(machine, free, is_forced=is_forced)
    machine = with_host(machine, ram_mib=ram_gib * 1024 if ram_gib else None, ram_gb_s=bandwidth, isa=cpu)
    left_free = number(margin, "--margin", 0, 1 << 20)
    if left_free is not None:
        refuse_margin(machine, left_free)
    return machine


def local_machine() -> MachineBudget:
    """This machine: memory and cards as they are now, bandwidths as the last `twofold probe` measured them, and the
    kernels' times that `twofold bench MODEL --kernels` left; of its kernel tiers the one that `TWOFOLD_CPU_ISA` forces.

    Raises:
        InvalidOption: that names no tier of this machine.
    """
    from dataclasses import replace

    from twofold.cli.own import key_of, own_runs, stale_notes
    from twofold.planner.machine import from_profile
    from twofold.probes import probe
    from twofold.profiles.errors import InvalidProfile
    from twofold.profiles.kernel_store import own_timings
    from twofold.profiles.store import load_own

    now = probe(bandwidth=False).model_copy(update={"kernels": own_timings()})
    try:
        last = load_own()
    except InvalidProfile:
        last = None
    notes = stale_notes(last, now)
    if last is not None and key_of(last) != key_of(now):
        last = None
    if last is not None:
        speeds = {
            "read_gb_s_one_thread": last.ram.read_gb_s_one_thread,
            "read_gb_s_all_cores": last.ram.read_gb_s_all_cores,
        }
        same = [gpu.name for gpu in last.gpus] == [gpu.name for gpu in now.gpus]
        links = [gpu.pcie for gpu in last.gpus] if same else [gpu.pcie for gpu in now.gpus]
        gpus = tuple(gpu.model_copy(update={"pcie": pcie}) for gpu, pcie in zip(now.gpus, links, strict=True))
        now = now.model_copy(update={"ram": now.ram.model_copy(update=speeds), "gpus": gpus, "complete": last.complete})
    machine = from_profile(now, label="this machine", is_this_machine=True)
    assert machine.host is not None
    host = replace(machine.host, own=own_runs(now))
    forced = forced_tier()
    if forced is not None:
        host = replace(host, isa_tier=forced)
    return replace(machine, host=host, notes=(*machine.notes, *notes))


def forced_tier() -> str | None:
    """The kernel tier that `TWOFOLD_CPU_ISA` forces here; None where it is not set, or there is no native module.

    Raises:
        InvalidOption: it names none, or one that this machine lacks.
    """
    import os

    from twofold.kernels.cpu import missing_reason, native

    wanted = os.environ.get("TWOFOLD_CPU_ISA")
    if not wanted or missing_reason() is not None:
        return None
    try:
        return str(native().active_tier())
    except ValueError as error:
        raise InvalidOption(
            f"the CPU kernels cannot run as asked: {error}",
            found=wanted,
            needed=" or ".join(native().available_tiers()),
            hint="unset TWOFOLD_CPU_ISA",
        ) from None


def gguf_flag(ref: ModelRef) -> str | None:
    """The option with which llama-server opens the GGUF file that `ref` is; None when it is no GGUF file."""
    from twofold.profiles.sources.aliases import ALIASES

    if ref.alias is not None:
        wheel = ALIASES[ref.alias]
        return f"--hf-repo {wheel.hub_repo} --hf-file {wheel.file_name}"
    if ref.kind == "gguf" and ref.path is not None:
        return f"-m {shlex.quote(str(ref.path))}"
    if ref.file is not None:
        return f"--hf-repo {ref.repo} --hf-file {ref.file}"
    return None
