"""Plan against allocator: each component as planned, as reserved, and what of it is in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.engine.engine import Engine

COLUMNS = ("component", "plan, MiB", "reserved, MiB", "difference")


def difference(planned: int, reserved: int) -> str:
    """`exact`, or by how much more or less was reserved."""
    over = reserved - planned
    return "exact" if over == 0 else f"{over / MIB:+,.2f} MiB"


def allocation_rows(
    planned: Mapping[str, int], reserved: Mapping[str, int], process: int | None = None
) -> list[tuple[str, str, str, str]]:
    """One row a component and the total of those that both count.

    Scratch that grows is compared when it has grown. `process` is what is resident beside weights and arrays: measured,
    so it is never exactly the plan's.
    """
    rows = []
    for name in [*planned, *(name for name in reserved if name not in planned)]:
        plan, has = planned.get(name), reserved.get(name, process if name == "process" else None)
        how = "not counted" if has is None or plan is None else difference(plan, has)
        if name == "product_scratch" and has is not None and plan is not None and has < plan:
            how = "grows with use"
        if name == "process" and has is not None:
            how += ", measured"
        rows.append((name, _mib(plan), _mib(has), how))
    both = [name for name in planned if name in reserved]
    total = sum(planned[name] for name in both), sum(reserved[name] for name in both)
    rows.append(("all reserved", _mib(total[0]), _mib(total[1]), difference(*total)))
    return rows


def _mib(n_bytes: int | None) -> str:
    return "-" if n_bytes is None else f"{n_bytes / MIB:,.2f}"


def show_allocations(engine: Engine) -> None:
    """The table on stderr, and the process's memory as the kernel counts it."""
    from twofold.cli.output import err
    from twofold.engine.allocations import allocated, resident
    from twofold.planner.components import planned
    from twofold.probes.process import process_memory

    counted = {name: term.bytes for name, term in planned(engine.spec, engine.plan).items()}
    memory, held = process_memory(), resident(engine)
    rest = None if memory is None or held is None else int(memory.resident_mib * MIB) - held.total
    sink = err()
    sink.table("memory", COLUMNS, allocation_rows(counted, allocated(engine), rest))
    if memory is None:
        return
    line = f"resident: {memory.resident_mib:,.0f} MiB now, {memory.peak_mib:,.0f} MiB at most, "
    line += f"{engine.plan.expected_ram_mib:,.0f} MiB planned"
    if held is not None:
        line += f"; of it weights {held.weights / MIB:,.0f}, cache and buffers {held.arrays / MIB:,.0f}"
    sink.prose(line)
