"""What int8 activations would bring, in words, and where an older checkpoint keeps them from bringing it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from twofold.engine.checkpoint.config import CheckpointConfig
    from twofold.planner.rounding import RoundingGain
    from twofold.profiles.activations import Activations
    from twofold.profiles.figures import Figure


def rounding_line(gain: RoundingGain, model: str | None) -> str:
    """The flag first, which is then never broken, what would be faster beside the plan's own, and both KLs.

    Args:
        model: as one names it on the command line; None where this version does not run it.
    """
    pairs = []
    if gain.is_decode_faster:
        pairs.append(f"decode {_pair(gain.speed.decode_tok_s, gain.own.decode_tok_s)}")
    if gain.is_prompt_faster:
        pairs.append(f"first token after 1K {_pair(gain.speed.ttft_1k_s, gain.own.ttft_1k_s)}")
    return f"{gain.options} would likely be faster: {'; '.join(pairs)}; {kl_words(gain, model)}; {gain.by}"


def _pair(other: Figure, own: Figure) -> str:
    from twofold.cli.fit_view import shown

    digits = 1 if min(other.number, own.number) >= 10 else 2
    return f"{shown(other, digits)} instead of {shown(own, digits)}"


def kl_words(gain: RoundingGain, model: str | None) -> str:
    """What it costs, or how to find out."""
    from twofold.cli.fit_view import shown

    own = shown(gain.own_kl) if gain.own_kl.is_known else None
    if gain.kl.is_known:
        return f"KL {shown(gain.kl)} instead of {own or 'an unknown one'}"
    ask = f": `twofold eval {shlex.quote(model)} {gain.options}` measures it" if model is not None else ""
    return f"KL unknown{ask}" + (f"; the plan's is {own}" if own else "")


def slow_base_words(command: str) -> str:
    """Why int8 activations bring little with a checkpoint here, and the command that makes it anew."""
    return (
        "int8 activations bring little with this checkpoint here: the levels of its base lie so far apart that, "
        f"without VNNI, their products are widened one by one; quantised again it has near ones: {command}"
    )


def quantise_again(model: str, made: CheckpointConfig, *, is_in_place: bool) -> str:
    """The command that makes the checkpoint of `model` anew: in its place, or beside one that was named itself."""
    bits = f"--residual-bits {made.residual_bits}"
    if is_in_place:
        return f"twofold quantize {shlex.quote(model)} {bits} --force"
    return f"twofold quantize {source_words(made)} -o DIR {bits}"


def source_words(made: CheckpointConfig) -> str:
    """The source's name where it is one that can be typed again, as a Hub id or alias is."""
    from twofold.profiles.sources.aliases import ALIASES

    name = made.source.get("name")
    is_typed = isinstance(name, str) and (name in ALIASES or name.count("/") == 1)
    return shlex.quote(str(name)) if is_typed else "SOURCE"


def is_slow_here(activations: Activations, made: CheckpointConfig) -> bool:
    """Whether this process's native kernels multiply a checkpoint's base the slow way. Where they are missing: no."""
    from twofold.kernels.cpu import missing_reason, native
    from twofold.profiles.activations import is_slow_base

    if missing_reason() is not None:
        return False
    try:
        isa = str(native().isa())
    except ValueError:  # TWOFOLD_CPU_ISA names none that is here: whoever runs a kernel says so
        return False
    has_avx_vnni = bool(native().cpu_features()["flags"]["avx_vnni"])
    return is_slow_base(activations, made.base_levels, isa, has_avx_vnni=has_avx_vnni)


def warn_of_slow_base(model: str, path: Path, made: CheckpointConfig, activations: Activations) -> None:
    """Say once, when a model is opened, that its base will be multiplied the slow way.

    Args:
        model: as it was named. path: its checkpoint, which is made anew in its place unless it was named itself.
    """
    from twofold.cli.output import err
    from twofold.profiles.settings import checkpoints_dir
    from twofold.profiles.sources import resolve

    if not is_slow_here(activations, made):
        return
    is_in_place = path.parent == checkpoints_dir() and resolve(model).kind != "checkpoint"
    err().warning(slow_base_words(quantise_again(model, made, is_in_place=is_in_place)))
