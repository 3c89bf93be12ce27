"""NVIDIA cards: what the driver's raw answers mean. Each card stands alone; nothing is ever summed over cards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twofold.probes.nvml import NOT_SUPPORTED, Failed, NoDriver, RawGpu, RawLink, read_raw
from twofold.probes.pcie import idle_link
from twofold.probes.texts import SYSTEM_ROOT, names, read_text
from twofold.profiles.bounds import MAX_MIB, MAX_WATTS
from twofold.profiles.figures import NONE, Figure, Value, reported, unknown
from twofold.profiles.hardware import MAX_GPUS, Gpu, Pcie
from twofold.profiles.text import one_line
from twofold.profiles.units import MIB

BY = "NVML"
NO_LOAD = "not measured: needs a copy load"
_LIBRARY_NOT_FOUND = 12
_DRIVER_NOT_LOADED = 9
_VERSION_MISMATCH = 18
_MOST_GENERATIONS = 16
_MOST_LANES = 64


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The cards, a note on how they were found (or why there are none), and whether the driver failed to answer.

    `raws` are the driver's answers in the order of `gpus`.
    """

    gpus: tuple[Gpu, ...]
    note: Figure
    failed: bool = False
    raws: tuple[RawGpu, ...] = ()


def _figure(answer: Value | Failed, unit: str, by: str = BY) -> Figure:
    return unknown(unit, f"NVML: {answer.reason}") if isinstance(answer, Failed) else reported(answer, unit, by)


def _counter(answer: int | Failed, unit: str, most: float, by: str = BY) -> Figure:
    # Drivers fill counters that a slice or a virtual device lacks with zero or all ones: no link has 0 lanes.
    if not isinstance(answer, Failed) and not 0 < answer <= most:
        return unknown(unit, f"NVML reports {answer}")
    return _figure(answer, unit, by)


def _is_memory(total_and_free: tuple[int, int]) -> bool:
    total, free = total_and_free
    return 0 <= free <= total and 0 < total <= MAX_MIB * MIB


def _shares_host_memory(raw: RawGpu) -> bool | None:
    """Whether the device uses the host's RAM as its own; None where the driver's answer does not tell."""
    if not isinstance(raw.memory_bytes, Failed):
        return False if _is_memory(raw.memory_bytes) else None
    is_whole_card = not raw.is_slice and raw.mig_mode != 1
    return True if raw.memory_bytes.code == NOT_SUPPORTED and is_whole_card else None


def _memory(raw: RawGpu) -> tuple[Figure, Figure, Figure]:
    """(total, free, unified)."""
    shared = _shares_host_memory(raw)
    if isinstance(raw.memory_bytes, Failed) and shared:
        why = "NVML: Not Supported; one pool with RAM, so RAM's figures count"
        unified = reported(True, "", "NVML reports no memory of the device's own")
        return unknown("MiB", why), unknown("MiB", why), unified
    if isinstance(raw.memory_bytes, Failed) or not _is_memory(raw.memory_bytes):
        reason = "reports a total and a free amount that cannot be"
        if isinstance(raw.memory_bytes, Failed):
            reason = raw.memory_bytes.reason
        missing = unknown("MiB", f"NVML: {reason}")
        return missing, missing, unknown("", "the device's memory is unknown")
    total, free = raw.memory_bytes
    unified = reported(False, "", "NVML reports memory of the device's own")
    return reported(total // MIB, "MiB", BY), reported(free // MIB, "MiB", BY), unified


def _mig(raw: RawGpu) -> Figure:
    if raw.is_slice:
        return reported("slice", "", BY)
    if isinstance(raw.mig_mode, Failed):
        if raw.mig_mode.code == NOT_SUPPORTED:
            return reported("not available", "", "NVML: Not Supported")
        return unknown("", f"NVML: {raw.mig_mode.reason}")
    return reported("on, no slice to be seen" if raw.mig_mode else "off", "", BY)


def _display(raw: RawGpu) -> Figure:
    answers = [answer for answer in (raw.display_mode, raw.display_active) if not isinstance(answer, Failed)]
    if any(answers):
        return reported(True, "", BY)
    if len(answers) == 2:
        return reported(False, "", BY)
    failures = [answer for answer in (raw.display_mode, raw.display_active) if isinstance(answer, Failed)]
    return unknown("", f"NVML: {failures[0].reason}")


def _power(answer: int | Failed) -> Figure:
    return _counter(answer if isinstance(answer, Failed) else answer // 1000, "W", MAX_WATTS)


def _pcie(link: RawLink, is_slice: bool) -> Pcie:
    by = f"{BY}, the whole card's" if is_slice else BY
    now = f"{by}, without load: an idle link may run slower"
    return idle_link(
        _counter(link.generation_max, "", _MOST_GENERATIONS, by),
        _counter(link.width_max, "lanes", _MOST_LANES, by),
        _counter(link.generation_now, "", _MOST_GENERATIONS, now),
        _counter(link.width_now, "lanes", _MOST_LANES, now),
        NO_LOAD,
    )


def gpu_from_raw(raw: RawGpu) -> Gpu:
    """One card's facts from the driver's answers; each failed query is unknown with the driver's reason."""
    total, free, unified = _memory(raw)
    capability: Value | Failed
    if isinstance(raw.compute_capability, Failed):
        capability = raw.compute_capability
    else:
        capability = "{}.{}".format(*raw.compute_capability)
    return Gpu(
        name=one_line(raw.name if isinstance(raw.name, str) else f"NVIDIA device ({raw.name.reason})"),
        vram_total_mib=total,
        vram_free_mib=free,
        compute_capability=_figure(capability, ""),
        driver=_figure(raw.driver, ""),
        power_cap_w=_power(raw.power_limit_mw),
        mig=_mig(raw),
        display_attached=_display(raw),
        unified_memory=unified,
        pcie=_pcie(raw.link, raw.is_slice),
    )


def has_nvidia_device(root: Path = SYSTEM_ROOT) -> bool:
    """Whether PCI lists an NVIDIA display controller, driver or not."""
    for slot in names(root, "sys/bus/pci/devices"):
        device = f"sys/bus/pci/devices/{slot}"
        is_display = (read_text(root, f"{device}/class") or "").startswith("0x03")
        if is_display and read_text(root, f"{device}/vendor") == "0x10de":
            return True
    return False


def no_gpu(error: NoDriver, card_present: bool) -> GpuReading:
    """A machine where NVML does not answer: no NVIDIA card is normal, a card without a working driver is a failure."""
    reason = f"NVML: {error}"
    if error.code == _VERSION_MISMATCH:
        reason += "; the driver was updated under the running kernel module, so reboot"
    elif card_present:
        reason = f"an NVIDIA card is present but its driver does not answer ({reason})"
    elif error.code in (_LIBRARY_NOT_FOUND, _DRIVER_NOT_LOADED):
        return GpuReading((), reported(NONE, "", f"no NVIDIA driver, so no NVIDIA GPU ({reason})"))
    return GpuReading((), unknown("", reason), failed=True)


def read_gpus(root: Path = SYSTEM_ROOT, read: Callable[[], tuple[RawGpu, ...]] = read_raw) -> GpuReading:
    """The NVIDIA cards, without any measurement."""
    try:
        raws = read()[:MAX_GPUS]
    except NoDriver as error:
        return no_gpu(error, has_nvidia_device(root))
    if not raws:
        return GpuReading((), reported(NONE, "", "the NVIDIA driver lists no device"))
    is_lost = any(isinstance(raw.name, Failed) for raw in raws)
    note = reported(f"{len(raws)} NVIDIA device{'s' if len(raws) > 1 else ''}", "", BY)
    return GpuReading(tuple(gpu_from_raw(raw) for raw in raws), note, is_lost, raws)
