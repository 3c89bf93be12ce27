"""What a benchmark says beside its timings: the machine, in words that identify nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.profiles.hardware import Cpu, Ram


def machine_facts(cpu: Cpu, ram: Ram, isa: str, threads: int) -> dict[str, Any]:
    """The machine in words that identify nobody, with the kernels' tier and threads."""
    facts = {
        "cpu": cpu.model,
        "logical_cores": cpu.logical_cores,
        "physical_cores": cpu.physical_cores,
        "usable_cpus": cpu.usable_cpus,
        "quota_cpus": cpu.quota_cpus,
        "ram_total": ram.total_mib,
    }
    return {name: figure.to_json() for name, figure in facts.items()} | {"isa": isa, "threads": threads}


def provenance(machine: Mapping[str, Any], commit: str) -> str:
    """One line: what was measured on."""
    cores = machine["physical_cores"]["value"]
    cpu = machine["cpu"]["value"] or "unknown processor"
    threads = machine["threads"]
    return (
        f"measured on {cpu}, {cores if cores is not None else 'unknown'} cores; kernels {machine['isa']}, "
        f"{threads} thread{'s' if threads != 1 else ''}; commit {commit}"
    )
