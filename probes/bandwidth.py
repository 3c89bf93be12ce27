"""RAM read bandwidth, with one thread and with all physical cores.

Method: a set of at least eight times the last cache level that the threads reach, so that at most an eighth of it can
come from a cache, and at most a tenth of the available memory; each thread reads its own band, which it filled itself,
from start to end, pinned to its own core.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from twofold.kernels.cpu import NativeMissing, native
from twofold.probes.cpu import usable_cpus
from twofold.probes.stopping import StopRule, collect
from twofold.probes.texts import SYSTEM_ROOT
from twofold.probes.topology import last_level, read_cores
from twofold.profiles.figures import Figure, unknown
from twofold.profiles.hardware import Cpu, Ram
from twofold.profiles.units import MIB

CACHE_FACTOR = 8
# Virtual machines often show a slice of the real last level; a set of this size is beyond what most would hold.
_LEAST_BYTES = 256 * MIB


class CannotMeasure(Exception):
    """There is no honest way to measure here; the message says why."""


def set_bytes(last_level_bytes: int, available_bytes: int) -> int:
    """Bytes to read: 8 × the last level and at least 256 MiB, but never above a tenth of what is available.

    Raises:
        CannotMeasure: when a tenth of the available memory is less than 8 × the last level.
    """
    needed = CACHE_FACTOR * last_level_bytes
    most = available_bytes // 10
    if most < max(needed, MIB):
        raise CannotMeasure(
            f"needs a set of {max(needed, MIB) // MIB} MiB (8 × the last-level cache) "
            f"but a tenth of the available memory is {most // MIB} MiB"
        )
    return min(max(needed, _LEAST_BYTES), most)


def reading_cpus(cpu: Cpu, root: Path = SYSTEM_ROOT) -> list[int]:
    """One usable CPU of each physical core, no more than the CPU quota pays for; -1 (not pinned) where unknown."""
    cores = read_cores(root)
    allowed = usable_cpus(root)
    if cores is None or not allowed:
        chosen = [-1] * (int(cpu.physical_cores.number) if cpu.physical_cores.is_known else 1)
    else:
        chosen = cores.physical_among(allowed)
    if cpu.quota_cpus.is_number:
        chosen = chosen[: max(1, math.floor(cpu.quota_cpus.number))]
    return chosen


def read_bandwidth(total_bytes: int, cpus: list[int], rule: StopRule) -> Figure:
    """GB/s (10⁹ bytes) of reading `total_bytes` with one thread per entry of `cpus`.

    Raises:
        NativeMissing: without the native module.
    """
    try:
        meter = native().ReadMeter(total_bytes, cpus)
    except MemoryError:
        return unknown("GB/s", f"could not get {total_bytes // MIB} MiB")
    series = collect(lambda: meter.bytes / meter.sample() / 1e9, rule)
    if meter.checksum != meter.expected_checksum:
        return unknown("GB/s", "the memory read back differs from what was written")
    how = "pinned" if meter.pinned and -1 not in cpus else "not pinned"
    threads = "1 thread" if len(cpus) == 1 else f"{len(cpus)} threads"
    return series.figure("GB/s", f"sequential read of {meter.bytes // MIB} MiB, {threads} {how}")


def measure_ram(
    ram: Ram,
    cpu: Cpu,
    progress: Callable[[str], None] | None = None,
    rule: StopRule | None = None,
) -> Ram:
    """`ram` with its two read bandwidths measured on this machine, or unknown with the reason.

    Takes up to about five seconds; Ctrl-C is heard between samples.
    """
    rule = rule or StopRule()
    try:
        native()
        if not ram.available_mib.is_known:
            raise CannotMeasure("the available memory is unknown")
        caches = last_level(cpu.caches)
        available_bytes = int(ram.available_mib.number) * MIB
        size = set_bytes(sum(cache.size_bytes * cache.instances for cache in caches), available_bytes)
        # One core only reaches its own instance, and filling more from one core would take seconds on a server.
        size_one = set_bytes(max((cache.size_bytes for cache in caches), default=0), available_bytes)
    except (NativeMissing, CannotMeasure) as error:
        reason = (
            "the native module is missing: run `twofold doctor`" if isinstance(error, NativeMissing) else str(error)
        )
        missing = unknown("GB/s", reason)
        return ram.model_copy(update={"read_gb_s_one_thread": missing, "read_gb_s_all_cores": missing})
    cpus = reading_cpus(cpu)
    tell = progress or (lambda _: None)
    tell("reading memory with one thread")
    one = read_bandwidth(size_one, cpus[:1], rule)
    tell(f"reading memory with {len(cpus)} threads")
    every = read_bandwidth(size, cpus, rule) if len(cpus) > 1 else one
    return ram.model_copy(update={"read_gb_s_one_thread": one, "read_gb_s_all_cores": every})
