"""What own sessions and measurements say to `doctor`: how many there are, how old, and how the last session fared."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from twofold.cli.doctor_checks import Check
from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.profiles.session_store import SessionRecord

OLD_DAYS = 90
"""Kernel timings of another season: drivers, firmware and neighbours change."""


def check_sessions() -> Check:
    """How many sessions the next plan can learn from, and what the last one took against its plan."""
    from twofold.profiles.session_store import read_sessions

    sessions = read_sessions()
    if not sessions:
        return Check("sessions", "ok", f"none observed yet{'' if _are_kept() else '; the setting sessions is off'}")
    last = sessions[-1]
    n_here = sum((one.build, one.version) == _here() for one in sessions)
    found = f"{len(sessions)} observed, {n_here} by this build; the last: {_line(last)}"
    if last.peak_mib is not None and last.planned_mib and last.peak_mib > last.planned_mib * 1.1 + 64:
        return Check("sessions", "warn", found, "plan again: twofold fit counts with what was observed")
    return Check("sessions", "ok", found)


def _are_kept() -> bool:
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.settings import get_settings

    try:
        return get_settings().sessions
    except TwofoldError:  # `check_settings` says which
        return True


def _here() -> tuple[str, str]:
    from twofold.cli.version import commit, package_version

    return commit(), package_version()


def _line(one: SessionRecord) -> str:
    parts = [f"{one.command} of {one.model} on {one.day}"]
    parts += [f"{one.decode.tok_s:.1f} tok/s"] if one.decode else []
    parts += [f"peak {one.peak_mib:,.0f} of {one.planned_mib:,.0f} MiB planned"] if one.peak_mib is not None else []
    return ", ".join(parts)


def check_rereads() -> Check:
    """Whether the last session had to read weights from disk again, because memory was short."""
    from twofold.profiles.session_store import read_sessions

    sessions = [one for one in read_sessions() if one.major_faults is not None]
    if not sessions:
        return Check("weights reread", "ok", "no session has counted yet")
    last = sessions[-1]
    n = last.major_faults or 0
    found = f"{n} page{'s' if n != 1 else ''} waited for the disk in the last session"
    if last.reread_steps:
        found += f", {last.reread_steps} of {last.checks} checks read weights again"
        return Check("weights reread", "warn", found, "close other programs, or choose a smaller model or context")
    return Check("weights reread", "ok", found)


def check_timings() -> Check:
    """How many kernel timings there are of this build, and when they were measured."""
    from twofold.cli.own import kernel_timings
    from twofold.profiles.kernel_store import kernels_dir

    n = len(kernel_timings())
    if not n:
        remedy = "seconds are estimated from bandwidths until: twofold bench MODEL --kernels"
        return Check("kernel timings", "ok", f"none of this build; {remedy}")
    newest = max(path.stat().st_mtime for path in kernels_dir().glob("*.json"))
    days = (datetime.date.today() - datetime.date.fromtimestamp(newest)).days
    found = f"{n}, the newest {'of today' if days <= 0 else f'{days} days old'}"
    if days > OLD_DAYS:
        return Check("kernel timings", "warn", found, "measure again: twofold bench MODEL --kernels")
    return Check("kernel timings", "ok", found)


def _last() -> SessionRecord | None:
    """The last session that noted what was planned and what was reserved."""
    from twofold.profiles.session_store import read_sessions

    return next((one for one in reversed(read_sessions()) if one.planned and one.allocated), None)


def last_allocations() -> list[tuple[str, str, str, str]]:
    """Plan against allocator in the last session; empty where there was none."""
    from twofold.cli.repl.memory_view import allocation_rows

    one = _last()
    if one is None:
        return []
    process = None if one.process_mib is None else int(one.process_mib * MIB)
    return allocation_rows(one.planned, one.allocated, process)


def last_title() -> str:
    """Which session `last_allocations` is of."""
    one = _last()
    what = f"{one.model}, context {one.context_tokens}, KV {one.k_type} and {one.v_type}" if one else "none"
    return f"Memory of the last session: {what}"


def last_document() -> dict[str, object] | None:
    """The same as figures; None where there was no session."""
    one = _last()
    if one is None:
        return None
    return {
        "model": one.model,
        "context_tokens": one.context_tokens,
        "planned_bytes": one.planned,
        "reserved_bytes": one.allocated,
        "process_mib": one.process_mib,
        "peak_mib": one.peak_mib,
        "planned_mib": one.planned_mib,
    }
