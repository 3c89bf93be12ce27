"""This machine's own sessions, and what others shared from identical hardware, for the planner."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.planner.own_runs import OwnRuns
    from twofold.profiles.figures import Figure
    from twofold.profiles.hardware import HardwareProfile, KernelTiming, ObservedRun


STALE_DAYS = 90
"""After so many days a measurement is said to be old: drivers, firmware and neighbours change."""


def key_of(profile: HardwareProfile) -> str:
    """The hardware's key, equal for equal machines."""
    from twofold.profiles.session_store import machine_key

    return machine_key(profile.cpu.model, profile.cpu.logical_cores, profile.ram.total_mib)


def own_runs(here: HardwareProfile) -> OwnRuns:
    """The sessions that were held on hardware like `here`, and runs in imported profiles of such hardware."""
    return _runs_on(key_of(here), here.ram.total_mib)


def own_runs_here() -> OwnRuns:
    """The same for this machine, without a whole probe."""
    from twofold.probes.cpu import read_cpu
    from twofold.probes.memory import read_memory
    from twofold.profiles.session_store import machine_key

    cpu = read_cpu(ask_native=False)
    total = read_memory().total_mib
    return _runs_on(machine_key(cpu.model, cpu.logical_cores, total), total)


def _runs_on(key: str, ram_total_mib: Figure) -> OwnRuns:
    from twofold.cli.version import commit, package_version
    from twofold.planner.own_runs import OwnRuns
    from twofold.profiles.session_store import is_possible, read_sessions

    return OwnRuns(
        tuple(one for one in read_sessions() if one.machine == key and is_possible(one, ram_total_mib)),
        commit(),
        package_version(),
        os.environ.get("TWOFOLD_CPU_ISA") or None,
        tuple(_shared(key)),
    )


def _shared(key: str) -> list[tuple[str, ObservedRun]]:
    from twofold.profiles.store import OWN, profiles_dir, stored_profiles

    if not profiles_dir().is_dir():
        return []
    found = []
    for stored in stored_profiles():
        if stored.name != OWN and stored.profile is not None and key_of(stored.profile) == key:
            found += [(stored.name, run) for run in stored.profile.observed]
    return found


def _age(day: datetime.date) -> str:
    days = (datetime.date.today() - day).days
    if days < 0:
        return "a day that is still to come"
    return "today" if days == 0 else f"{days} day{'s' if days > 1 else ''} ago"


def advice_notes(profile: HardwareProfile) -> list[str]:
    """How old a profile is and which build made it. Planning for it changes nothing of what was measured here."""
    from twofold.cli.version import package_version
    from twofold.profiles.text import one_line

    made_by = one_line(profile.tool.version, 60)
    notes = [f"the profile was captured on {profile.captured_on} ({_age(profile.captured_on)}) by twofold {made_by}"]
    if made_by != package_version():
        notes.append(f"this is twofold {package_version()}: timings of another build are advice only")
    if (datetime.date.today() - profile.captured_on).days > STALE_DAYS:
        notes.append(f"the profile is more than {STALE_DAYS} days old: ask for a fresh one (twofold profile export)")
    return notes


def stale_notes(last: HardwareProfile | None, now: HardwareProfile) -> list[str]:
    """What is wrong with the last probe of this machine, as far as its bandwidths are used."""
    if last is None:
        return []
    if key_of(last) != key_of(now):
        return ["the last probe was of other hardware and is not used: twofold probe measures this machine"]
    if (datetime.date.today() - last.captured_on).days > STALE_DAYS:
        return [f"bandwidths were measured {_age(last.captured_on)}: twofold probe measures them anew"]
    return []


def kernel_timings() -> tuple[KernelTiming, ...]:
    """What was timed on this machine with this build."""
    from twofold.profiles.kernel_store import own_timings

    return own_timings()
