"""The plan's terms under the names by which the engine counts what it reserved."""

from __future__ import annotations

from twofold.planner.knobs import Knobs
from twofold.planner.memory import cpu_memory
from twofold.planner.plan import Plan
from twofold.planner.terms import DeviceMemory, Term, exact
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

COMPONENTS: dict[str, tuple[str, ...]] = {"kv_cache": ("kv", "kv_sliding", "kv_pass")}
"""Component of the engine → terms of the plan, where one array serves several terms."""


def by_component(memory: DeviceMemory) -> dict[str, Term]:
    """The terms, those that share an array added up."""
    of = {term: component for component, terms in COMPONENTS.items() for term in terms}
    found: dict[str, Term] = {}
    for term in memory.terms:
        name = of.get(term.name, term.name)
        known = found.get(name)
        found[name] = term if known is None else _sum(name, known, term)
    return found


def _sum(name: str, a: Term, b: Term) -> Term:
    return Term(name, a.device, a.bytes + b.bytes, a.low + b.low, a.high + b.high, f"{a.by}; {b.by}")


def planned(spec: ModelSpec, plan: Plan) -> dict[str, Term]:
    """What a plan of the CPU engine counts for each component.

    The process is what is left of the plan's own total, since a plan keeps what it was made with.
    """
    found = by_component(cpu_memory(spec, Knobs.of(plan)))
    rest = int(plan.expected_ram_mib * MIB) - sum(term.bytes for name, term in found.items() if name != "process")
    if rest > 0:
        found["process"] = exact("process", "ram", rest, "the plan's total without the other components")
    return found
