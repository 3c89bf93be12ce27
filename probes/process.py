"""This process's own memory and page faults, as the kernel counts them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): resets the peak resident set size to the present one


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Resident set in MiB, mapped files included: now, and at most since the start or the last `reset_peak`."""

    resident_mib: float
    peak_mib: float


def process_memory() -> ProcessMemory | None:
    """What the kernel counts; None where it does not tell (other systems than Linux)."""
    try:
        lines = _STATUS.read_text("ascii", "replace").splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return ProcessMemory(_kib(fields["VmRSS"]) / 1024, _kib(fields["VmHWM"]) / 1024)
    except (OSError, KeyError, ValueError):
        return None


def _kib(text: str) -> int:
    number, unit = text.split()
    if unit != "kB":
        raise ValueError(f"kB expected, got {unit}")
    return int(number)


def reset_peak() -> bool:
    """Let the peak begin anew; whether that was possible (older kernels and some sandboxes refuse)."""
    try:
        _CLEAR.write_text(_RESET_PEAK, "ascii")
    except OSError:
        return False
    return True


def major_faults() -> int | None:
    """Pages that this process had to wait for a disk for, since it began; None where that is not counted."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt if sys.platform.startswith("linux") else None
