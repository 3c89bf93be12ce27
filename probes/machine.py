"""The whole machine as one profile: every single probe, then the measurements."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from twofold.probes.bandwidth import measure_ram
from twofold.probes.copies import measure_link, without_load
from twofold.probes.cpu import read_cpu
from twofold.probes.drm import read_amd
from twofold.probes.environment import read_os
from twofold.probes.memory import read_memory
from twofold.probes.nvidia import GpuReading, read_gpus
from twofold.profiles.hardware import MAX_GPUS, Gpu, HardwareProfile, Ram, Tool

_SKIPPED = "not measured: bandwidth was skipped"


def _tool() -> Tool:
    try:
        return Tool(version=version("twofold"))
    except PackageNotFoundError:
        return Tool(version="unknown")


def _linked(reading: GpuReading, bandwidth: bool, tell: Callable[[str], None]) -> tuple[Gpu, ...]:
    if not bandwidth:
        return tuple(without_load(gpu, _SKIPPED) for gpu in reading.gpus)
    gpus = []
    for gpu, raw in zip(reading.gpus, reading.raws, strict=True):
        tell(f"copying to and from {gpu.name}")
        gpus.append(measure_link(gpu, raw))
    return tuple(gpus)


def _is_complete(ram: Ram, gpus: tuple[Gpu, ...], reading: GpuReading) -> bool:
    needed = [ram.available_mib, ram.read_gb_s_one_thread, ram.read_gb_s_all_cores]
    needed += [figure for gpu in gpus for figure in (gpu.pcie.h2d_gb_s, gpu.pcie.d2h_gb_s)]
    return not reading.failed and all(figure.is_known for figure in needed)


def probe(*, bandwidth: bool = True, progress: Callable[[str], None] | None = None) -> HardwareProfile:
    """This machine. With `bandwidth`, RAM and PCIe are measured, which takes up to about six seconds.

    `progress` is called with a few words before each measurement. Whatever cannot be had is unknown with the reason;
    nothing raises for a missing driver, library, or file.
    """
    tell = progress or (lambda _: None)
    cpu, ram, reading = read_cpu(), read_memory(), read_gpus()
    gpus = _linked(reading, bandwidth, tell)
    if bandwidth:
        ram = measure_ram(ram, cpu, tell)
    return HardwareProfile(
        tool=_tool(),
        captured_on=datetime.date.today(),
        gpus=(gpus + read_amd())[:MAX_GPUS],
        gpu_note=reading.note,
        cpu=cpu,
        ram=ram,
        os=read_os(),
        complete=bandwidth and _is_complete(ram, gpus, reading),
    )
