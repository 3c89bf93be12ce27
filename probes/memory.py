"""Memory that this process may use: the kernel's figures, or a control group's limit where that is less."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from twofold.probes.cgroups import MemoryLimit, memory_limits
from twofold.probes.texts import SYSTEM_ROOT, fields, read_text
from twofold.profiles.bounds import MAX_MIB
from twofold.profiles.figures import NONE, Figure, reported, unknown
from twofold.profiles.hardware import Ram
from twofold.profiles.units import MIB

_BY = "procfs meminfo"
NOT_MEASURED = "not measured: only `twofold probe` without --no-bandwidth measures it"


@dataclass(frozen=True, slots=True)
class Meminfo:
    """/proc/meminfo in bytes; None where the line is missing."""

    total_bytes: int | None
    available_bytes: int | None


def parse_meminfo(text: str) -> Meminfo:
    """Total and available bytes; where there is no MemAvailable, free + inactive file cache + reclaimable slab."""
    found: dict[str, int] = {}
    for key, value in fields(text).items():
        amount = re.fullmatch(r"(\d+) kB", value)
        if amount:
            found[key] = int(amount.group(1)) << 10
    available = found.get("MemAvailable")
    if available is None and "MemFree" in found:
        available = found["MemFree"] + found.get("Inactive(file)", 0) + found.get("SReclaimable", 0)
    return Meminfo(found.get("MemTotal"), available)


def _mib(value_bytes: int, by: str) -> Figure:
    return reported(value_bytes // MIB, "MiB", by)


def _available(machine: Figure, limits: list[MemoryLimit]) -> Figure:
    if not limits:
        return machine
    tightest = min(limits, key=lambda limit: limit.left_bytes)
    left = tightest.left_bytes // MIB
    if machine.is_known and machine.number <= left:
        return machine
    return reported(left, "MiB", f"cgroup v{tightest.group.version}: limit − (current − inactive file cache)")


def _limit(limits: list[MemoryLimit]) -> Figure:
    if not limits:
        return reported(NONE, "MiB", "no control group limits the memory")
    lowest = min(limits, key=lambda limit: limit.limit_bytes)
    return _mib(lowest.limit_bytes, f"cgroup v{lowest.group.version}")


def _from_psutil() -> tuple[Figure, Figure]:
    import psutil

    memory = psutil.virtual_memory()
    return _mib(int(memory.total), "psutil"), _mib(int(memory.available), "psutil")


def _from_proc(root: Path) -> tuple[Figure, Figure] | None:
    text = read_text(root, "proc/meminfo")
    if text is None:
        return None
    info = parse_meminfo(text)
    total, available = info.total_bytes, info.available_bytes
    return (
        unknown("MiB", "no MemTotal in procfs meminfo") if total is None else _mib(total, _BY),
        unknown("MiB", "no MemAvailable in procfs meminfo") if available is None else _mib(available, _BY),
    )


def read_memory(root: Path = SYSTEM_ROOT) -> Ram:
    """RAM as this process may use it. Nothing is measured: the bandwidths are unknown.

    `available_mib` is the least of the kernel's MemAvailable and, over every control group that applies,
    limit − (current − inactive file cache); `limit_mib` is the lowest of those limits.
    """
    pair = _from_proc(root)
    if pair is None:
        pair = _from_psutil() if root == SYSTEM_ROOT else (unknown("MiB", "no procfs meminfo"),) * 2
    total, available = pair
    if total.is_known and available.is_known and available.number > total.number:
        available = unknown("MiB", f"{available.by}: more than there is in all")
    # A limit that the machine itself does not reach limits nothing.
    most = total.number * MIB if total.is_known else MAX_MIB * MIB
    limits = [limit for limit in memory_limits(root) if limit.limit_bytes <= most + MIB]
    return Ram(
        total_mib=total,
        available_mib=_available(available, limits),
        limit_mib=_limit(limits),
        read_gb_s_one_thread=unknown("GB/s", NOT_MEASURED),
        read_gb_s_all_cores=unknown("GB/s", NOT_MEASURED),
    )
