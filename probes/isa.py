"""Instruction sets: the native module's CPUID and XCR0, or the kernel's flags where there is no native module.

The tiers are those of `kernels/cpu/src/machine_cpuid.hpp`; here they are only derived again for machines without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twofold.probes.texts import fields, read_text
from twofold.profiles.figures import Figure, reported, unknown

# What twofold's kernels could use, in the kernel's spelling. Other flags of /proc/cpuinfo say nothing about speed.
RELEVANT = (
    "avx", "fma", "f16c", "avx2", "avx_vnni",
    "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi", "avx512_bf16",
    "amx_tile", "amx_int8",
    "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
_NEEDS = {
    "avx2": ("avx", "avx2", "fma", "f16c"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"),
    "avx512vbmi": ("avx512vbmi",),
}


def tiers_of(flags: set[str]) -> list[str]:
    """Kernel tiers that `flags` (kernel spelling, already cleared of what the OS does not save) allow, lowest first."""
    tiers = ["generic"]
    for tier, needs in _NEEDS.items():
        if not flags.issuperset(needs):
            break
        tiers.append(tier)
    return tiers


def native_features() -> dict[str, Any] | None:
    """CPUID and XCR0 as the native module reads them, or None without it."""
    from twofold.kernels.cpu import NativeMissing, native

    try:
        features: dict[str, Any] = native().cpu_features()
    except NativeMissing:
        return None
    return features


def from_native(features: dict[str, Any]) -> tuple[Figure, Figure]:
    """(flags, tiers) of the native module's answer; flags whose registers the OS does not save are left out."""
    saved = {"avx512": features["zmm_state"], "amx": features["tile_state"]}
    present = [
        name
        for name, has in features["flags"].items()
        if has and features["ymm_state"] and all(state or not name.startswith(kind) for kind, state in saved.items())
    ]
    by = "CPUID and XCR0"
    return reported(present, "", by), reported(list(features["tiers"]), "", by)


def from_cpuinfo(text: str) -> tuple[Figure, Figure]:
    """(flags, tiers) of /proc/cpuinfo's `flags` (x86) or `Features` (Arm) line."""
    found = fields(text)
    line = found.get("flags", found.get("Features"))
    if line is None:
        reason = "no flags in procfs cpuinfo"
        return unknown("", reason), unknown("", reason)
    flags = set(line.split())
    present = [name for name in RELEVANT if name in flags]
    by = "procfs cpuinfo, no native module to ask CPUID"
    return reported(present, "", by), reported(tiers_of(flags), "", by)


def read_isa(root: Path, features: dict[str, Any] | None) -> tuple[Figure, Figure]:
    """(flags, tiers): from the native module's `features` where it knows this architecture, else from /proc/cpuinfo."""
    if features is not None and any(features["flags"].values()):
        return from_native(features)
    text = read_text(root, "proc/cpuinfo")
    if text is None:
        reason = "neither the native module nor procfs cpuinfo"
        return unknown("", reason), unknown("", reason)
    return from_cpuinfo(text)
