"""A saved plan against the model that it is to be run with: for that model, its memory counted from its knobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from twofold.profiles.errors import InvalidOption

if TYPE_CHECKING:
    from twofold.planner.plan import Plan
    from twofold.profiles.model_spec import ModelSpec

DIFFERENCE = 0.05
"""How far a file's figure may be from what its knobs need before it is said."""


def refuse_other_model(plan: Plan, names: Iterable[str], model: str) -> None:
    """Refuse a plan that was made for another model than the one that goes by `names`; `model` is what was typed.

    Names are compared without the folder or owner where one of the two has none, as plans are kept by name.

    Raises:
        InvalidOption: naming both.
    """
    from twofold.profiles.sources.aliases import ALIASES
    from twofold.profiles.text import one_line

    alias = ALIASES.get(plan.model.strip().lower())
    meant = [plan.model] if alias is None else [alias.alias, alias.facts_repo, alias.hub_repo, alias.file_name]
    if any(_is_same(one, other) for one in meant for other in (model, *names)):
        return
    name = one_line(plan.model, 200)
    raise InvalidOption(
        "the plan was made for another model",
        found=f"a plan for {name}",
        needed=f"one for {one_line(model, 200)}",
        hint=f"leave out --plan, or run that model: twofold chat {shlex.quote(name)} --plan FILE",
    )


def _is_same(one: str, other: str) -> bool:
    (owner, name), (other_owner, other_name) = _parts(one), _parts(other)
    return name == other_name and (not owner or not other_owner or owner == other_owner)


def _parts(name: str) -> tuple[str, str]:
    """Owner (none for a path) and name, as spellings of one model have in common."""
    plain = name.strip().casefold().replace("\\", "/").rstrip("/")
    is_path = plain.startswith((".", "~", "/"))
    head, _, last = plain.replace("--", "/").rpartition("/")
    return "" if is_path or "/" in head else head, last.partition("@")[0].removesuffix(".gguf")


def counted(plan: Plan, spec: ModelSpec) -> Plan:
    """`plan` with the memory that its knobs need by this version and what own sessions took."""
    from twofold.cli.own import own_runs_here
    from twofold.planner.evaluate import needs
    from twofold.planner.knobs import Knobs
    from twofold.planner.machine import HostBudget
    from twofold.profiles.figures import unknown
    from twofold.profiles.units import MIB

    host = HostBudget(
        unknown("MiB", "not asked"),
        unknown("GB/s", "not asked"),
        plan.cpu_isa,
        unknown("cores", "not asked"),
        own=own_runs_here(),
    )
    found = needs(spec, Knobs.of(plan), None, host, 0)
    vram = found.vram.total / MIB if found.vram is not None else 0.0
    update = {"expected_ram_mib": round(found.ram.total / MIB, 3), "expected_vram_mib": round(vram, 3)}
    return plan.model_copy(update=update)


def warn_of_figure(stated: Plan, now: Plan) -> None:
    """Say where a plan file expects other memory than its knobs need."""
    from twofold.cli.output import err

    said, need = stated.expected_ram_mib, now.expected_ram_mib
    if abs(said - need) > DIFFERENCE * need:
        err().warning(f"the plan's file expects {said:,.0f} MiB of RAM; what it asks for takes {need:,.0f} MiB")
