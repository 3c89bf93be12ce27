"""Cores, NUMA nodes and caches from sysfs.

A physical core is one distinct set of hardware threads. Kinds of cores come from the hybrid PMUs that Intel machines
have (`cpu_core`, `cpu_atom`) or from the kernel's `cpu_capacity`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from twofold.probes.texts import cpu_list, fields, names, read_int, read_text
from twofold.profiles.figures import Figure, reported, unknown
from twofold.profiles.hardware import Cache

_CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Clusters of one design at different clocks differ by less than this in capacity; little cores are below it.
_EFFICIENCY_BELOW = 0.6


@dataclass(frozen=True, slots=True)
class Cores:
    """Online logical CPUs, each with the lowest CPU number of its physical core."""

    core_of: dict[int, int]
    by: str

    @property
    def logical(self) -> list[int]:
        return sorted(self.core_of)

    @property
    def physical(self) -> list[int]:
        """One logical CPU of each physical core."""
        return sorted(set(self.core_of.values()))

    def physical_among(self, cpus: list[int]) -> list[int]:
        """One CPU of each physical core of which any thread is in `cpus`, and which is itself in `cpus`."""
        chosen: dict[int, int] = {}
        for cpu in sorted(cpus):
            chosen.setdefault(self.core_of.get(cpu, cpu), cpu)
        return sorted(chosen.values())


def _from_sysfs(root: Path) -> Cores | None:
    core_of: dict[int, int] = {}
    for cpu in cpu_list(read_text(root, f"{_CPUS}/online")):
        topology = f"{_CPUS}/cpu{cpu}/topology"
        text = read_text(root, f"{topology}/core_cpus_list") or read_text(root, f"{topology}/thread_siblings_list")
        siblings = cpu_list(text)
        if cpu not in siblings:
            return None
        core_of[cpu] = siblings[0]
    return Cores(core_of, "sysfs") if core_of else None


def _from_cpuinfo(root: Path) -> Cores | None:
    first: dict[tuple[str, str], int] = {}
    core_of: dict[int, int] = {}
    for block in (read_text(root, "proc/cpuinfo") or "").split("\n\n"):
        found = fields(block)
        if not found.get("processor", "").isdigit():
            continue
        cpu = int(found["processor"])
        place = (found.get("physical id"), found.get("core id"))
        core_of[cpu] = cpu
        if place[0] is not None and place[1] is not None:
            core_of[cpu] = first.setdefault((place[0], place[1]), cpu)
    return Cores(core_of, "procfs cpuinfo") if core_of else None


def read_cores(root: Path) -> Cores | None:
    """Online CPUs and their cores from sysfs, else from /proc/cpuinfo; None where neither says."""
    return _from_sysfs(root) or _from_cpuinfo(root)


def core_kinds(root: Path, cores: Cores) -> tuple[Figure, Figure]:
    """(performance, efficiency) physical cores."""
    performance = set(cpu_list(read_text(root, "sys/devices/cpu_core/cpus")))
    efficiency = set(cpu_list(read_text(root, "sys/devices/cpu_atom/cpus")))
    by = "sysfs cpu_core/cpu_atom"
    if not performance and not efficiency:
        capacities = {cpu: read_int(root, f"{_CPUS}/cpu{cpu}/cpu_capacity") for cpu in cores.physical}
        known = {cpu: capacity for cpu, capacity in capacities.items() if capacity}
        by = "sysfs cpu_capacity"
        if not known:
            by = f"{cores.by}: one kind of core"
        elif len(known) < len(capacities):
            reason = "sysfs cpu_capacity is missing for some CPUs"
            return unknown("cores", reason), unknown("cores", reason)
        floor = _EFFICIENCY_BELOW * max(known.values(), default=0)
        efficiency = {cpu for cpu, capacity in known.items() if capacity < floor}
    few = sum(core in efficiency for core in cores.physical)
    return reported(len(cores.physical) - few, "cores", by), reported(few, "cores", by)


def numa_nodes(root: Path) -> Figure:
    """Online NUMA nodes that have memory."""
    with_memory = cpu_list(read_text(root, f"{_NODES}/has_memory")) or cpu_list(read_text(root, f"{_NODES}/online"))
    if not with_memory:
        return unknown("nodes", "sysfs shows no NUMA nodes")
    return reported(len(with_memory), "nodes", "sysfs")


def _size_bytes(text: str | None) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text or "")
    return int(match.group(1)) * _UNITS[match.group(2)] if match else 0


def read_caches(root: Path, cores: Cores) -> tuple[Cache, ...]:
    """Caches grouped by level, kind and size (hybrids have two sizes of a level). Empty where sysfs has none."""
    seen: dict[tuple[int, str, str], int] = {}
    for cpu in cores.physical:  # the threads of a core share its caches
        folder = f"{_CPUS}/cpu{cpu}/cache"
        for index in names(root, folder):
            place = f"{folder}/{index}"
            level = read_int(root, f"{place}/level") or 0
            kind = _KINDS.get(read_text(root, f"{place}/type") or "", "")
            cache = (level, kind, read_text(root, f"{place}/shared_cpu_list") or str(cpu))
            if kind and 1 <= level <= 4 and cache not in seen:
                seen[cache] = _size_bytes(read_text(root, f"{place}/size"))
    counts = Counter((level, kind, size) for (level, kind, _), size in seen.items() if 0 < size <= 1 << 34)
    return tuple(
        Cache.model_validate({"level": level, "kind": kind, "size_bytes": size, "instances": count})
        for (level, kind, size), count in sorted(counts.items())[:16]
    )


def last_level(caches: tuple[Cache, ...]) -> tuple[Cache, ...]:
    """The caches of the highest level; empty where no cache is known."""
    highest = max((cache.level for cache in caches), default=0)
    return tuple(cache for cache in caches if cache.level == highest)
