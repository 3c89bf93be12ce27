"""Cores, kinds, caches, NUMA, quotas and cpusets of recorded machines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.probes.bandwidth import reading_cpus
from twofold.probes.cpu import cpu_name, read_cpu, read_elsewhere, usable_cpus
from twofold.probes.texts import cpu_list
from twofold.probes.topology import last_level, read_cores
from twofold.profiles.hardware import Cpu

Machine = Callable[[str], Path]
KIB = 1 << 10


def counts(cpu: Cpu) -> tuple[object, object, object, object]:
    """(logical, physical, performance, efficiency)."""
    return (
        cpu.logical_cores.value,
        cpu.physical_cores.value,
        cpu.performance_cores.value,
        cpu.efficiency_cores.value,
    )


def cache_table(cpu: Cpu) -> list[tuple[int, str, int, int]]:
    return [(cache.level, cache.kind, cache.size_bytes // KIB, cache.instances) for cache in cpu.caches]


def test_hybrid_desktop(machine: Machine) -> None:
    cpu = read_cpu(machine("hybrid_desktop"))
    assert counts(cpu) == (24, 16, 8, 8)
    assert cpu.model.value == "12th Gen Intel(R) Core(TM) i9-12900K"
    assert cache_table(cpu) == [
        (1, "data", 32, 8),
        (1, "data", 48, 8),
        (1, "instruction", 32, 8),
        (1, "instruction", 64, 8),
        (2, "unified", 1280, 8),
        (2, "unified", 2048, 2),
        (3, "unified", 30720, 1),
    ]
    assert cpu.isa_tiers.value == ["generic", "avx2"]
    assert cpu.quota_cpus.value == "none"
    assert cpu.usable_cpus.value == 24


def test_dual_socket_numa(machine: Machine) -> None:
    cpu = read_cpu(machine("dual_socket"))
    assert counts(cpu) == (32, 16, 16, 0)
    assert cpu.numa_nodes.value == 2
    assert [(c.size_bytes // KIB, c.instances) for c in last_level(cpu.caches)] == [(25344, 2)]
    assert cpu.isa_tiers.value == ["generic", "avx2", "avx512"]


def test_numa_nodes_without_memory_do_not_count(machine: Machine) -> None:
    root = machine("dual_socket")
    (root / "sys/devices/system/node/online").write_text("0-3")
    assert read_cpu(root).numa_nodes.value == 2


def test_big_little_by_capacity(machine: Machine) -> None:
    cpu = read_cpu(machine("aarch64_big_little"))
    assert counts(cpu) == (8, 8, 4, 4)
    assert cpu.architecture == "aarch64"
    assert cpu.model.value == "Arm Cortex-A55 + Arm Cortex-A76"
    assert cpu.isa_flags.value == ["asimd", "asimddp"]
    assert cpu.isa_tiers.value == ["generic"]
    assert cpu.numa_nodes.value is None


def test_smt_off(machine: Machine) -> None:
    cpu = read_cpu(machine("smt_off"))
    assert counts(cpu) == (4, 4, 4, 0)
    assert (3, "unified", 8192, 1) in cache_table(cpu)


def test_recorded_virtual_machine(machine: Machine) -> None:
    cpu = read_cpu(machine("epyc_vm"))
    assert counts(cpu) == (2, 2, 2, 0)
    assert cache_table(cpu) == [
        (1, "data", 32, 2),
        (1, "instruction", 64, 2),
        (2, "unified", 512, 2),
        (3, "unified", 8192, 1),
    ]
    assert cpu.quota_cpus.value == "none"


def test_old_sysfs_names(machine: Machine) -> None:
    assert counts(read_cpu(machine("cgroup1_docker")))[:2] == (4, 2)


def test_cpuset_of_two_threads_is_one_core(machine: Machine) -> None:
    root = machine("cpuset_2_of_16")
    cpu = read_cpu(root)
    assert cpu.logical_cores.value == 16
    assert cpu.usable_cpus.value == 2
    assert usable_cpus(root) == [3, 11]
    assert reading_cpus(cpu, root) == [3]


def test_quota_is_the_least_over_the_ancestors(machine: Machine) -> None:
    root = machine("cgroup2_nested")
    cpu = read_cpu(root)
    assert cpu.quota_cpus.value == 1.5
    assert cpu.usable_cpus.value == 16
    assert reading_cpus(cpu, root) == [0]
    assert cpu.isa_tiers.value == ["generic", "avx2", "avx512", "avx512vbmi"]


def test_v1_quota(machine: Machine) -> None:
    assert read_cpu(machine("cgroup1_docker")).quota_cpus.value == 0.5


def test_nothing_to_read_is_unknown_with_reasons(machine: Machine) -> None:
    cpu = read_cpu(machine("podman"))
    for figure in (cpu.model, cpu.logical_cores, cpu.physical_cores, cpu.performance_cores, cpu.isa_tiers):
        assert figure.value is None
        assert figure.by
    assert cpu.caches == ()
    assert cpu.usable_cpus.value == 1


def test_cores_from_cpuinfo_where_sysfs_is_missing(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text((machine("dual_socket") / "proc/cpuinfo").read_text())
    cores = read_cores(tmp_path)
    assert cores is not None
    assert (len(cores.logical), len(cores.physical)) == (32, 16)
    assert cores.by == "procfs cpuinfo"


def test_broken_topology_is_not_believed(machine: Machine) -> None:
    root = machine("smt_off")
    (root / "sys/devices/system/cpu/cpu2/topology/core_cpus_list").write_text("7-x")
    cores = read_cores(root)
    assert cores is not None
    assert cores.by == "procfs cpuinfo"


def test_partial_capacities_are_unknown(machine: Machine) -> None:
    root = machine("aarch64_big_little")
    (root / "sys/devices/system/cpu/cpu3/cpu_capacity").unlink()
    assert read_cpu(root).performance_cores.value is None


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8,10-11", [0, 1, 2, 3, 8, 10, 11]),
        ("5", [5]),
        ("", []),
        (None, []),
        ("3-1", []),
        ("0-99999999999", []),
        ("a-b", []),
        ("1,,2", [1, 2]),
        ("-4", []),
    ],
)
def test_cpu_lists(text: str | None, cpus: list[int]) -> None:
    assert cpu_list(text) == cpus


def test_unknown_arm_part_keeps_its_numbers() -> None:
    figure = cpu_name("CPU implementer\t: 0x99\nCPU part\t: 0x123")
    assert figure.value == "implementer 0x99 part 0x123"


def test_systems_without_proc() -> None:
    cpu = read_elsewhere(None)
    assert cpu.model.by.startswith("py-cpuinfo")
    assert cpu.logical_cores.value == os.cpu_count()
    assert cpu.physical_cores.number >= 1
    assert cpu.performance_cores.value is None
    assert cpu.isa_tiers.value is None
    assert cpu.caches == ()


def test_this_machine() -> None:
    cpu = read_cpu()
    assert cpu.logical_cores.value == os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        assert cpu.usable_cpus.value == len(os.sched_getaffinity(0))
    assert 1 <= cpu.physical_cores.number <= cpu.logical_cores.number
    kinds = cpu.performance_cores, cpu.efficiency_cores
    if all(figure.is_known for figure in kinds):
        assert sum(figure.number for figure in kinds) == cpu.physical_cores.number
