"""The processor: name, cores, what of them this process may use, caches, instruction sets."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from twofold.probes.cgroups import cpu_quota
from twofold.probes.isa import native_features, read_isa
from twofold.probes.texts import SYSTEM_ROOT, cpu_list, fields, read_text
from twofold.probes.topology import Cores, core_kinds, numa_nodes, read_caches, read_cores
from twofold.profiles.figures import NONE, Figure, reported, unknown
from twofold.profiles.hardware import Cpu
from twofold.profiles.text import one_line

# Main ID register parts of /proc/cpuinfo on Arm, where the kernel prints numbers only.
_ARM_PARTS = {
    ("0x41", "0xd03"): "Arm Cortex-A53", ("0x41", "0xd05"): "Arm Cortex-A55", ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76", ("0x41", "0xd0c"): "Arm Neoverse-N1", ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd41"): "Arm Cortex-A78", ("0x41", "0xd42"): "Arm Cortex-A78AE", ("0x41", "0xd44"): "Arm Cortex-X1",
    ("0x41", "0xd49"): "Arm Neoverse-N2", ("0x41", "0xd4f"): "Arm Neoverse-V2", ("0x41", "0xd85"): "Arm Cortex-X925",
    ("0x41", "0xd87"): "Arm Cortex-A725",
}  # fmt: skip


def cpu_name(text: str) -> Figure:
    """The processor's name from /proc/cpuinfo: `model name`, or the Arm parts it lists, most capable last."""
    blocks = [fields(block) for block in text.split("\n\n")]
    for key in ("model name", "Model", "cpu"):
        for block in blocks:
            if block.get(key):
                return reported(one_line(block[key]), "", "procfs cpuinfo")
    parts = []
    for block in blocks:
        implementer, part = block.get("CPU implementer"), block.get("CPU part")
        if implementer and part:
            parts.append(_ARM_PARTS.get((implementer, part), f"implementer {implementer} part {part}"))
    if not parts:
        return unknown("", "procfs cpuinfo names no processor")
    return reported(one_line(" + ".join(dict.fromkeys(parts))), "", "procfs cpuinfo, CPU implementer and part")


def usable_cpus(root: Path = SYSTEM_ROOT) -> list[int]:
    """Logical CPUs that this process may run on: its affinity, which includes its cpuset. Empty where nothing says."""
    status = fields(read_text(root, "proc/self/status") or "")
    allowed = cpu_list(status.get("Cpus_allowed_list"))
    if not allowed and root == SYSTEM_ROOT and hasattr(os, "sched_getaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
    return allowed


def _count(value: int | None, by: str, reason: str, unit: str = "cores") -> Figure:
    return reported(value, unit, by) if value else unknown(unit, reason)


def read_elsewhere(features: dict[str, Any] | None) -> Cpu:
    """The processor where there is no /proc. py-cpuinfo takes about a second: it is asked for the name only."""
    try:
        import cpuinfo

        name = str(cpuinfo.get_cpu_info().get("brand_raw", ""))
        model = reported(one_line(name), "", "py-cpuinfo") if name else unknown("", "py-cpuinfo found no name")
    except Exception as error:  # noqa: BLE001  it raises bare Exception on unknown platforms
        model = unknown("", f"py-cpuinfo: {type(error).__name__}")
    import psutil

    physical = psutil.cpu_count(logical=False)
    flags, tiers = read_isa(Path(os.devnull), features)
    kinds = unknown("cores", "only read on Linux")
    return Cpu(
        model=model,
        architecture=platform.machine(),
        logical_cores=_count(os.cpu_count(), "os.cpu_count", "the system does not say"),
        physical_cores=_count(physical, "psutil", "psutil does not say"),
        performance_cores=kinds,
        efficiency_cores=kinds,
        usable_cpus=_count(os.cpu_count(), "os.cpu_count", "the system does not say", "CPUs"),
        quota_cpus=reported(NONE, "CPUs", "only Linux has CPU quotas"),
        numa_nodes=unknown("nodes", "only read on Linux"),
        isa_flags=flags,
        isa_tiers=tiers,
    )


def _cores_part(root: Path, cores: Cores | None) -> dict[str, Any]:
    if cores is None:
        missing = unknown("cores", "neither sysfs nor procfs cpuinfo lists CPUs")
        names = ("logical_cores", "physical_cores", "performance_cores", "efficiency_cores")
        return dict.fromkeys(names, missing)
    performance, efficiency = core_kinds(root, cores)
    return {
        "logical_cores": reported(len(cores.logical), "cores", cores.by),
        "physical_cores": reported(len(cores.physical), "cores", cores.by),
        "performance_cores": performance,
        "efficiency_cores": efficiency,
        "caches": read_caches(root, cores),
    }


def _architecture(root: Path, text: str) -> str:
    if root == SYSTEM_ROOT:
        return platform.machine()
    return "aarch64" if "CPU implementer" in text else "x86_64"


def read_cpu(root: Path = SYSTEM_ROOT, *, ask_native: bool = True) -> Cpu:
    """The processor under `root`. `ask_native`: ask CPUID, which answers for the live machine only."""
    features = native_features() if ask_native and root == SYSTEM_ROOT else None
    text = read_text(root, "proc/cpuinfo")
    if text is None and root == SYSTEM_ROOT:
        return read_elsewhere(features)
    flags, tiers = read_isa(root, features)
    allowed = usable_cpus(root)
    quota = cpu_quota(root)
    return Cpu(
        model=cpu_name(text or ""),
        architecture=_architecture(root, text or ""),
        usable_cpus=_count(len(allowed), "CPU affinity", "the kernel does not list allowed CPUs", "CPUs"),
        quota_cpus=reported(quota or NONE, "CPUs", "cgroup" if quota else "no control group sets a quota"),
        numa_nodes=numa_nodes(root),
        isa_flags=flags,
        isa_tiers=tiers,
        **_cores_part(root, read_cores(root)),
    )
