"""Whether a plan can be run on a checkpoint by this version; a plan is followed exactly or refused."""

from __future__ import annotations

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.planner.plan import Plan
from twofold.profiles.errors import EngineUnavailable, InvalidOption
from twofold.profiles.model_spec import ModelSpec

_WITHOUT = "leave out --plan: twofold chat MODEL plans for the CPU"


def check_plan(plan: Plan, spec: ModelSpec, config: CheckpointConfig) -> None:
    """Refuse what cannot be followed.

    Raises:
        EngineUnavailable: another device than the CPU, or residuals in VRAM.
        InvalidOption: a context beyond the model's, or another residual width than the checkpoint's.
    """
    check_knobs(plan, spec)
    if plan.residual_bits != config.residual_bits:
        raise InvalidOption(
            "the plan wants another residual width than the checkpoint has",
            found=f"{config.residual_bits} bits",
            needed=f"{plan.residual_bits} bits",
            hint=f"quantise again: twofold quantize MODEL -o DIR --residual-bits {plan.residual_bits}",
        )


def check_knobs(plan: Plan, spec: ModelSpec) -> None:
    """The same as far as it can be said before there is a checkpoint.

    Raises:
        EngineUnavailable, InvalidOption: as `check_plan`.
    """
    if plan.device != "cpu":
        raise EngineUnavailable(f"this version runs on the CPU only, the plan says {plan.device}", hint=_WITHOUT)
    if plan.resident_linears:
        raise EngineUnavailable(
            "this version keeps no residual in VRAM",
            found=f"{len(plan.resident_linears)} resident Linears",
            needed="an empty list",
            hint=_WITHOUT,
        )
    if plan.context_tokens > spec.context_length:
        raise InvalidOption(
            "the plan's context is longer than the model's",
            found=f"{plan.context_tokens} tokens",
            needed=f"at most {spec.context_length} tokens",
            hint=f"--ctx {spec.context_length}",
        )
