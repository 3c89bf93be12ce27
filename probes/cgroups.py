"""What the control groups of this process allow: memory and CPU time, cgroup v1 and v2.

A limit may sit on any ancestor, so every group from the process's own up to the mounted root is asked, and the tightest
answer counts. Sources: the kernel's cgroup-v1 and cgroup-v2 documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from twofold.probes.texts import fields, read_int, read_text

# cgroup v1 writes "no limit" as the largest page-aligned 63-bit number; nothing near it is a limit.
_V1_NO_LIMIT = 1 << 60
_MOST_CPUS = 65536


@dataclass(frozen=True, slots=True)
class Group:
    """One control group's folder, relative to the root, and the version of its interface."""

    folder: str
    version: int


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """One group's limit and what of it is used and cannot be reclaimed by dropping clean page cache."""

    group: Group
    limit_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    controllers: frozenset[str]
    subtree: str
    point: str


def _mounts(root: Path) -> list[_Mount]:
    found = []
    for line in (read_text(root, "proc/self/mountinfo") or "").splitlines():
        left, mark, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if not mark or len(place) < 5 or not kind:
            continue
        if kind[0] == "cgroup2":
            found.append(_Mount(2, frozenset(), place[3], place[4]))
        elif kind[0] == "cgroup":
            options = frozenset(kind[-1].split(","))
            found.append(_Mount(1, options, place[3], place[4]))
    return found


def _own_paths(root: Path) -> list[tuple[frozenset[str], str]]:
    """(controllers, path) of this process's groups; no controllers means the v2 hierarchy."""
    found = []
    for line in (read_text(root, "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            controllers = frozenset(parts[1].split(",")) if parts[1] else frozenset()
            found.append((controllers, parts[2]))
    return found


def _below(mount: _Mount, path: str) -> PurePosixPath:
    """`path` relative to what is mounted; the mount itself where the path lies outside of it (a foreign namespace)."""
    try:
        relative = PurePosixPath(path).relative_to(mount.subtree)
    except ValueError:
        return PurePosixPath(".")
    return PurePosixPath(".") if ".." in relative.parts else relative


def ancestors(root: Path, controller: str) -> list[Group]:
    """The process's group for `controller`, then its parents up to the mount, in both versions' hierarchies."""
    groups: list[Group] = []
    for controllers, path in _own_paths(root):
        for mount in _mounts(root):
            is_v2 = not controllers and mount.version == 2
            is_v1 = controller in controllers and mount.version == 1 and controller in mount.controllers
            if not (is_v1 or is_v2):
                continue
            relative = _below(mount, path)
            steps = [relative, *relative.parents] if relative.parts else [relative]
            folders = [str(PurePosixPath(mount.point) / step) for step in steps]
            groups += [Group(folder, mount.version) for folder in folders]
    return list(dict.fromkeys(groups))


def _stat(root: Path, group: Group, *keys: str) -> int | None:
    stat = fields(read_text(root, f"{group.folder}/memory.stat") or "", " ")
    for key in keys:
        if stat.get(key, "").isdigit():
            return int(stat[key])
    return None


def _limit_v2(root: Path, group: Group) -> MemoryLimit | None:
    # Above memory.high the kernel stalls the process instead of killing it, which is no place to run a model either.
    limits = [read_int(root, f"{group.folder}/memory.{name}") for name in ("max", "high")]
    known = [limit for limit in limits if limit is not None]
    current = read_int(root, f"{group.folder}/memory.current")
    if not known or current is None:
        return None
    cached = _stat(root, group, "inactive_file") or 0
    return MemoryLimit(group, min(known), max(0, current - cached))


def _limit_v1(root: Path, group: Group) -> MemoryLimit | None:
    # The hierarchical limit includes ancestors that a container cannot see.
    limits = (
        read_int(root, f"{group.folder}/memory.limit_in_bytes"),
        _stat(root, group, "hierarchical_memory_limit"),
    )
    known = [limit for limit in limits if limit is not None and 0 <= limit < _V1_NO_LIMIT]
    current = read_int(root, f"{group.folder}/memory.usage_in_bytes")
    if not known or current is None:
        return None
    cached = _stat(root, group, "total_inactive_file", "inactive_file") or 0
    return MemoryLimit(group, min(known), max(0, current - cached))


def memory_limits(root: Path) -> list[MemoryLimit]:
    """Every memory limit that applies to this process, the own group's first; empty where there is none."""
    readers: dict[int, Callable[[Path, Group], MemoryLimit | None]] = {1: _limit_v1, 2: _limit_v2}
    found = (readers[group.version](root, group) for group in ancestors(root, "memory"))
    return [limit for limit in found if limit is not None]


def _quotas(root: Path) -> Iterator[float]:
    for group in ancestors(root, "cpu"):
        if group.version == 2:
            quota, _, period = (read_text(root, f"{group.folder}/cpu.max") or "").partition(" ")
        else:
            quota = read_text(root, f"{group.folder}/cpu.cfs_quota_us") or ""
            period = read_text(root, f"{group.folder}/cpu.cfs_period_us") or ""
        # "max" (v2) and -1 (v1) are no limit, and neither is all digits.
        if quota.isdigit() and period.strip().isdigit() and int(quota) > 0 and int(period) > 0:
            cpus = int(quota) / int(period)
            if cpus <= _MOST_CPUS:
                yield cpus


def cpu_quota(root: Path) -> float | None:
    """CPUs' worth of time that this process may use, the least over its groups; None where there is no quota."""
    return min(_quotas(root), default=None)
