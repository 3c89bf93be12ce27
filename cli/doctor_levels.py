"""Checkpoints made here whose base int8 activations multiply the slow way on this processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.cli.doctor_checks import Check

if TYPE_CHECKING:
    from twofold.engine.checkpoint.config import CheckpointConfig

MOST_NAMED = 3


def check_checkpoints() -> Check:
    """A warning where int8 activations are set, or are a checkpoint's own; else that they would bring little."""
    from twofold.cli.rounding import is_slow_here, source_words
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.settings import get_settings

    made = _made_here()
    slow = {name: config for name, config in made.items() if is_slow_here("int8", config)}
    if not slow:
        return Check("checkpoints", "ok", f"{len(made)} made here" if made else "none made here yet")
    try:
        setting = get_settings().activations
    except TwofoldError:  # `check_settings` says which
        setting = None
    is_used = any(is_slow_here(setting or config.activations, config) for config in slow.values())
    names = ", ".join(list(slow)[:MOST_NAMED]) + (
        f" and {len(slow) - MOST_NAMED} more" if len(slow) > MOST_NAMED else ""
    )
    found = f"int8 activations bring little with {names}: base levels far apart, products widened one by one"
    first = next(iter(slow.values()))
    remedy = f"twofold quantize {source_words(first)} --residual-bits {first.residual_bits} --force"
    if not is_used:
        return Check("checkpoints", "ok", f"{found} ({remedy} makes one anew)")
    return Check("checkpoints", "warn", found, remedy)


def _made_here() -> dict[str, CheckpointConfig]:
    """By their folders' names; those that are unfinished or damaged count for nothing."""
    from twofold.cli.fit_report import config_of
    from twofold.profiles.settings import checkpoints_dir

    folders = sorted(checkpoints_dir().iterdir()) if checkpoints_dir().is_dir() else []
    found = ((folder.name, config_of(folder)) for folder in folders)
    return {name: config for name, config in found if config is not None}
