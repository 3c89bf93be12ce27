"""Memory limits: the kernel's figures against control groups of both versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from twofold.probes.cgroups import ancestors, memory_limits
from twofold.probes.memory import parse_meminfo, read_memory

Machine = Callable[[str], Path]


def test_without_limits_the_kernels_figures_stand(machine: Machine) -> None:
    ram = read_memory(machine("hybrid_desktop"))
    assert ram.total_mib.value == 65642892 // 1024
    assert ram.available_mib.value == 59883120 // 1024
    assert ram.available_mib.source == "reported"
    assert ram.limit_mib.value == "none"
    assert ram.limit_mib.source == "reported"
    assert "no control group" in ram.limit_mib.by
    assert not ram.read_gb_s_all_cores.is_known


def test_v2_takes_the_tightest_ancestor_and_not_page_cache(machine: Machine) -> None:
    # The own group says "max"; its parent has 8 GiB, of which 7.5 are used and 4.5 are clean page cache: 5 are left.
    ram = read_memory(machine("cgroup2_nested"))
    assert ram.limit_mib.value == 8192
    assert ram.available_mib.value == 5120
    assert "cgroup v2" in ram.available_mib.by


def test_v2_asks_every_ancestor_up_to_the_mount(machine: Machine) -> None:
    folders = [group.folder for group in ancestors(machine("cgroup2_nested"), "memory")]
    assert folders == [
        "/sys/fs/cgroup/kubepods.slice/group/group",
        "/sys/fs/cgroup/kubepods.slice/group",
        "/sys/fs/cgroup/kubepods.slice",
        "/sys/fs/cgroup",
    ]


def test_v1_container_sees_its_mounted_group(machine: Machine) -> None:
    # 2 GiB limit, 1948 MiB used, 1200 MiB of it reclaimable.
    ram = read_memory(machine("cgroup1_docker"))
    assert ram.limit_mib.value == 2048
    assert ram.available_mib.value == 2048 - (1948 - 1200)


def test_v1_limit_of_an_invisible_ancestor_counts(machine: Machine) -> None:
    root = machine("cgroup1_docker")
    folder = root / "sys/fs/cgroup/memory"
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712")
    (folder / "memory.stat").write_text(f"hierarchical_memory_limit {1 << 30}\ntotal_inactive_file 0")
    assert read_memory(root).limit_mib.value == 1024


def test_v1_no_limit_is_no_limit(machine: Machine) -> None:
    root = machine("epyc_vm")
    assert memory_limits(root) == []
    assert read_memory(root).available_mib.by == "procfs meminfo"


def test_usage_above_a_lowered_limit_leaves_nothing_rather_than_less(machine: Machine) -> None:
    ram = read_memory(machine("podman"))
    assert ram.limit_mib.value == 1024
    assert ram.available_mib.value == 0


def test_v2_soft_limit_counts_too(machine: Machine) -> None:
    root = machine("podman")
    (root / "sys/fs/cgroup/memory.high").write_text(str(512 << 20))
    assert read_memory(root).limit_mib.value == 512


def test_a_limit_above_the_machine_changes_nothing(machine: Machine) -> None:
    root = machine("podman")
    (root / "sys/fs/cgroup/memory.max").write_text(str(1 << 50))
    ram = read_memory(root)
    assert ram.available_mib.value == 6000000 // 1024
    assert ram.limit_mib.value == "none"


def test_a_group_outside_the_mount_falls_back_to_the_mount(machine: Machine) -> None:
    root = machine("podman")
    (root / "proc/self/cgroup").write_text("0::/../../other")
    assert read_memory(root).limit_mib.value == 1024


def test_more_available_than_in_all_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8192000 kB\nMemAvailable: 61440000 kB\n")
    ram = read_memory(tmp_path)
    assert ram.total_mib.value == 8000
    assert ram.available_mib.value is None and "more than there is" in ram.available_mib.by


def test_old_kernels_without_available(machine: Machine) -> None:
    assert read_memory(machine("smt_off")).available_mib.value == (2000000 + 3000000 + 500000) // 1024


@pytest.mark.parametrize("text", ["", "MemTotal: lots", "MemTotal: 12 MB\n\x00\x01", "MemTotal"])
def test_unreadable_meminfo_is_unknown_with_a_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(text)
    ram = read_memory(tmp_path)
    assert ram.total_mib.value is None
    assert "MemTotal" in ram.total_mib.by
    assert ram.available_mib.value is None


def test_no_proc_at_all_is_unknown(tmp_path: Path) -> None:
    assert not read_memory(tmp_path).total_mib.is_known


def test_an_unknown_availability_is_bounded_by_the_group(machine: Machine) -> None:
    root = machine("cgroup2_nested")
    (root / "proc/meminfo").write_text("MemTotal: 131923344 kB")
    assert read_memory(root).available_mib.value == 5120


def test_meminfo_units() -> None:
    info = parse_meminfo("MemTotal: 2 kB\nMemAvailable: 1 kB\nHugePages_Total: 7")
    assert (info.total_bytes, info.available_bytes) == (2048, 1024)


def test_this_machine_agrees_with_psutil() -> None:
    ram = read_memory()
    assert ram.total_mib.value == psutil.virtual_memory().total >> 20
    assert 0 < ram.available_mib.number <= ram.total_mib.number
