"""Before a model is opened: is the memory for the plan there? What is not there is refused, unless the user insists."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.planner.machine import HostBudget
    from twofold.planner.plan import Plan
    from twofold.profiles.model_spec import ModelSpec


def refuse_unless_fits(
    spec: ModelSpec, plan: Plan, available_bytes: int | None, *, is_forced: bool, model: str | None = None
) -> None:
    """Stop where the likely need of `plan` exceeds the free RAM, before weights are read or made.

    Unknown memory refuses nothing. With `is_forced` a warning is all; so it is where only the margin is missing.

    Raises:
        NotEnoughSpace: with the largest context that fits, or a smaller model, as the hint.
    """
    from twofold.cli.output import err
    from twofold.cli.own import own_runs_here
    from twofold.planner.evaluate import needs
    from twofold.planner.knobs import Knobs
    from twofold.planner.machine import HostBudget
    from twofold.planner.request import DEFAULT_MARGIN_MIB
    from twofold.profiles.errors import NotEnoughSpace
    from twofold.profiles.figures import measured, unknown
    from twofold.profiles.units import MIB

    if available_bytes is None or plan.device != "cpu":
        return
    free = measured(available_bytes / MIB, "MiB", "memory that is free now")
    host = HostBudget(
        free, unknown("GB/s", "not asked"), plan.cpu_isa, unknown("cores", "not asked"), own=own_runs_here()
    )
    found = needs(spec, Knobs.of(plan), None, host, DEFAULT_MARGIN_MIB)
    if found.verdict not in ("tight", "does_not_fit"):
        return
    device = found.devices[0]
    if found.verdict == "tight" or is_forced:
        err().warning(f"{spec.name} {'is tight' if found.verdict == 'tight' else 'does not fit'}: {device.reason}")
        return
    raise NotEnoughSpace(
        f"{spec.name} does not fit the free memory at a context of {plan.context_tokens}",
        found=f"{free.number:,.0f} MiB free",
        needed=f"{found.ram.total / MIB:,.0f} MiB ({found.ram.low / MIB:,.0f} to {found.ram.high / MIB:,.0f})",
        hint=_way_out(spec, plan, host, model or spec.name),
    )


def _way_out(spec: ModelSpec, plan: Plan, host: HostBudget, model: str) -> str:
    """The largest context that fits as an option, and how to load anyway."""
    from twofold.planner.knobs import Knobs
    from twofold.planner.machine import MachineBudget
    from twofold.planner.nearest import largest_context
    from twofold.planner.request import DEFAULT_MARGIN_MIB

    machine = MachineBudget("this machine", "this machine", (), host)
    most = largest_context(spec, Knobs.of(plan), None, machine, DEFAULT_MARGIN_MIB)
    anyway = "--force loads it anyway, from disk where memory is short"
    if most >= min(256, plan.context_tokens):
        return f"--ctx {most} fits; {anyway}"
    return f"twofold fit {shlex.quote(model)} says what would; {anyway}"
