"""The kernel's and the driver's own words, as a test fixture can hold them: for reports of misread machines.

Names and addresses of the machine are cut out: control group paths keep their shape with every unusual name replaced,
identifiers of cards are never read into the text, and per-machine counters are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from twofold.probes.cgroups import ancestors
from twofold.probes.nvml import NoDriver, read_raw
from twofold.probes.texts import SYSTEM_ROOT, cpu_list, names, read_text

_CPU = "sys/devices/system/cpu"
_NODE = "sys/devices/system/node"
_FIXED = (
    "proc/meminfo",
    "proc/self/cgroup",
    "proc/sys/kernel/osrelease",
    "run/systemd/container",
    f"{_CPU}/online",
    f"{_CPU}/smt/control",
    f"{_NODE}/online",
    f"{_NODE}/has_memory",
    "sys/devices/cpu_core/cpus",
    "sys/devices/cpu_atom/cpus",
)
_PER_CPU = ("topology/core_cpus_list", "topology/thread_siblings_list", "cpu_capacity")
_PER_CACHE = ("level", "type", "size", "shared_cpu_list")
_PER_GROUP = (
    "memory.max", "memory.high", "memory.current", "memory.stat", "cpu.max",
    "memory.limit_in_bytes", "memory.usage_in_bytes", "cpu.cfs_quota_us", "cpu.cfs_period_us",
)  # fmt: skip
# Folder names that every machine has; any other part of a control group's path may name a user, a host or a container.
_COMMON = frozenset(
    (
        "sys",
        "fs",
        "cgroup",
        "unified",
        "memory",
        "cpu",
        "cpuacct",
        "cpuset",
        "cpu,cpuacct",
        "system.slice",
        "user.slice",
        "init.scope",
        "docker",
        "kubepods",
        "kubepods.slice",
        "machine.slice",
        "lxc",
    )
)
_CPUINFO_KEYS = (
    "processor", "vendor_id", "model name", "physical id", "core id", "flags",
    "CPU implementer", "CPU part", "Features", "Model",
)  # fmt: skip


def redact_path(path: str) -> str:
    """`path` with every part that is not common to all machines replaced by `group`, and `..` kept."""
    parts = path.split("/")
    return "/".join(part if part in _COMMON or part in ("", "..") else "group" for part in parts)


def _redact_groups(text: str) -> str:
    lines = [line.split(":", 2) for line in text.splitlines()]
    return "\n".join(":".join((*parts[:2], redact_path(parts[2]))) for parts in lines if len(parts) == 3)


def _redact_release(text: str) -> str:
    """Kernel releases can carry a builder's name; the number and the word that marks WSL suffice."""
    number = re.match(r"\d+(?:\.\d+)*", text)
    return (number.group() if number else "") + ("-microsoft" if "microsoft" in text.lower() else "")


def _mounts(text: str) -> str:
    """Only the control groups' mounts, with their roots redacted."""
    kept = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        parts = left.split()
        if right.startswith("cgroup") and len(parts) > 4:
            parts[3] = redact_path(parts[3])
            kept.append(f"{' '.join(parts)} - {right}")
    return "\n".join(kept)


def _cpuinfo(text: str) -> str:
    """The lines that the probes read (no `Serial` of an Arm board)."""
    kept = []
    for line in text.splitlines():
        if not line or line.partition(":")[0].strip() in _CPUINFO_KEYS:
            kept.append(line)
    return "\n".join(kept)


def _memory_stat(text: str) -> str:
    keys = ("inactive_file", "total_inactive_file", "hierarchical_memory_limit")
    return "\n".join(line for line in text.splitlines() if line.partition(" ")[0] in keys)


def _status(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("Cpus_allowed_list"))


_EDITED = {
    "proc/self/mountinfo": _mounts,
    "proc/cpuinfo": _cpuinfo,
    "proc/self/status": _status,
    "proc/self/cgroup": _redact_groups,
    "proc/sys/kernel/osrelease": _redact_release,
}


def _paths(root: Path) -> Iterator[str]:
    yield from ("proc/cpuinfo", "proc/self/status", "proc/self/mountinfo")
    yield from _FIXED
    for cpu in cpu_list(read_text(root, f"{_CPU}/online")):
        yield from (f"{_CPU}/cpu{cpu}/{name}" for name in _PER_CPU)
        for index in names(root, f"{_CPU}/cpu{cpu}/cache"):
            yield from (f"{_CPU}/cpu{cpu}/cache/{index}/{name}" for name in _PER_CACHE)
    groups = [*ancestors(root, "memory"), *ancestors(root, "cpu")]
    for folder in dict.fromkeys(group.folder for group in groups):
        yield from (f"{folder.lstrip('/')}/{name}" for name in _PER_GROUP)


def raw_texts(root: Path = SYSTEM_ROOT) -> dict[str, str]:
    """Redacted path under the root → redacted text, for every file that the probes read and that exists."""
    found: dict[str, str] = {}
    for path in _paths(root):
        text = read_text(root, path)
        if text is None:
            continue
        folder, _, file = path.rpartition("/")
        is_group = path.startswith("sys/fs/cgroup")
        edit = _memory_stat if file == "memory.stat" else _EDITED.get(path, str)
        found[f"{redact_path(folder)}/{file}" if is_group else path] = edit(text)
    return found


def raw_gpus() -> str:
    """The NVIDIA driver's answers as JSON, without identifiers; or why there are none."""
    try:
        return json.dumps([raw.to_json() for raw in read_raw()], indent=1)
    except NoDriver as error:
        return json.dumps({"error": error.code, "reason": str(error)})
