"""`twofold probe`: what this machine is and what it can do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.output import err, out, print_json

if TYPE_CHECKING:
    from twofold.profiles.figures import Figure
    from twofold.profiles.hardware import Cache, Gpu, HardwareProfile

Row = tuple[str, str, str, str]
BandwidthOption = Annotated[
    bool, typer.Option("--bandwidth/--no-bandwidth", help="Measure RAM and PCIe bandwidth (up to about 6 s).")
]


def _value(figure: Figure) -> str:
    value = figure.value
    if value is None:
        return "unknown"
    if value == "none":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = " ".join(value) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else str(value)
    if figure.spread is not None:
        text += f" ± {figure.spread / 2:.2g}"
    unit = figure.unit.removesuffix("s") if value == 1 and figure.unit != "GB/s" else figure.unit
    return f"{text} {unit}".rstrip()


def _by(figure: Figure) -> str:
    return figure.by if figure.n is None else f"{figure.by}; n = {figure.n}"


def _rows(facts: dict[str, Figure]) -> list[Row]:
    return [(name, _value(figure), figure.source, _by(figure)) for name, figure in facts.items()]


def _cache_row(cache: Cache) -> Row:
    size = cache.size_bytes
    text = f"{size >> 20:,} MiB" if size % (1 << 20) == 0 else f"{size >> 10:,} KiB"
    return f"L{cache.level} {cache.kind}", f"{cache.instances} × {text}", "reported", "sysfs"


def _gpu_rows(index: int, gpu: Gpu) -> list[Row]:
    pcie = gpu.pcie
    rows = _rows(
        {
            "VRAM": gpu.vram_total_mib,
            "VRAM free": gpu.vram_free_mib,
            "compute capability": gpu.compute_capability,
            "driver": gpu.driver,
            "power cap": gpu.power_cap_w,
            "MIG": gpu.mig,
            "display attached": gpu.display_attached,
            "unified memory": gpu.unified_memory,
            "PCIe generation, most": pcie.generation_max,
            "PCIe generation, now": pcie.generation_now,
            "PCIe generation, loaded": pcie.generation_load,
            "PCIe width, most": pcie.width_max,
            "PCIe width, now": pcie.width_now,
            "PCIe width, loaded": pcie.width_load,
            "host to device": pcie.h2d_gb_s,
            "device to host": pcie.d2h_gb_s,
        }
    )
    return [(f"GPU {index}", gpu.name, "reported", "the driver"), *((f"  {row[0]}", *row[1:]) for row in rows)]


def table_rows(profile: HardwareProfile) -> list[Row]:
    """(fact, value, source, by) of everything that the profile holds."""
    cpu, ram = profile.cpu, profile.ram
    rows = _rows(
        {
            "processor": cpu.model,
            "logical cores": cpu.logical_cores,
            "physical cores": cpu.physical_cores,
            "performance cores": cpu.performance_cores,
            "efficiency cores": cpu.efficiency_cores,
            "usable CPUs": cpu.usable_cpus,
            "CPU quota": cpu.quota_cpus,
            "NUMA nodes": cpu.numa_nodes,
            "instruction sets": cpu.isa_flags,
            "kernel tiers": cpu.isa_tiers,
        }
    )
    rows += [_cache_row(cache) for cache in cpu.caches]
    rows += _rows(
        {
            "RAM": ram.total_mib,
            "RAM available": ram.available_mib,
            "RAM limit": ram.limit_mib,
            "RAM read, one thread": ram.read_gb_s_one_thread,
            "RAM read, all cores": ram.read_gb_s_all_cores,
        }
    )
    rows += _rows({"NVIDIA GPUs": profile.gpu_note})
    for index, gpu in enumerate(profile.gpus):
        rows += _gpu_rows(index, gpu)
    return rows


def platform_of(profile: HardwareProfile) -> str:
    """Where the profile was taken: `linux in a container, x86_64`."""
    from twofold.profiles.text import one_line

    place = "WSL" if profile.os.wsl else profile.os.family
    container = " in a container" if profile.os.container else ""
    return f"{place}{container}, {one_line(profile.cpu.architecture)}"


def probe_here(bandwidth: bool) -> HardwareProfile:
    """This machine, probed; at a terminal with a line before each measurement."""
    from twofold.probes import probe as probe_machine

    messages = err()
    return probe_machine(bandwidth=bandwidth, progress=messages.line if messages.stream.isatty() else None)


def keep(profile: HardwareProfile) -> None:
    """Remember the measurements for `profile export` and planning. A folder that cannot be written loses only that."""
    from twofold.profiles.store import save_own

    try:
        save_own(profile)
    except OSError as error:
        err().warning(f"the profile was not kept: {error.strerror} ({error.filename})")


def probe(
    output_format: FormatOption = "human",
    bandwidth: BandwidthOption = True,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the profile as JSON to FILE too (- is stdout)."),
    ] = None,
) -> None:
    """Show what this machine is and how fast its memory is, each value with where it comes from."""
    profile = probe_here(bandwidth)
    if bandwidth:
        keep(profile)
    if str(output) == "-":
        output, output_format = None, "json"
    if output is not None:
        from twofold.profiles.export import document_of, to_bytes
        from twofold.profiles.files import write_atomically

        write_atomically(output, to_bytes(document_of(profile)))
        err().line(f"written: {output}")
    if output_format == "json":
        from twofold.profiles.export import document_of

        print_json(document_of(profile))
        return
    out().table(f"This machine: {platform_of(profile)}", ("fact", "value", "source", "by"), table_rows(profile))
