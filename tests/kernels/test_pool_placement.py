"""Where the pool's threads run: pins, quotas, masks that change, and what is left of the machine to others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive

pytestmark = pytest.mark.skipif(cpu.missing_reason() is not None, reason="no native module")

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
HERE = len(CPUS) if cpu.missing_reason() is None and cpu.native().cpu_share(CPUS)["whole_cores"] else 1
QUOTA = cpu.native().cpu_share(CPUS)["quota"] if cpu.missing_reason() is None else 0
two_cores = pytest.mark.skipif(HERE < 2 or 0 < QUOTA < 2, reason="needs two whole cores")

PRELUDE = """
import json, os, sys, numpy as np
from twofold.kernels import cpu
from twofold.kernels.cpu import ops
native = cpu.native()
x = np.linspace(-3, 3, 33 * 4096, dtype=np.float32).reshape(33, 4096)
def work(n=300):
    return all(ops.silu_mul(x, x).tobytes() == expected for _ in range(n))
expected = ops.silu_mul(x, x).tobytes()
"""


def run(code: str, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def machine(root: Path, cores: list[list[int]]) -> str:
    """A folder like `/` of a machine with these physical cores."""
    for core in cores:
        for number in core:
            folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(",".join(map(str, core)) + "\n", encoding="utf-8")
    return str(root)


def test_every_core_comes_before_any_sibling(tmp_path: Path) -> None:
    root = machine(tmp_path, [[0, 4], [1, 5], [2, 6], [3, 7]])
    found = cpu.native().cpu_share(list(range(8)), root)
    assert found == {"order": [0, 1, 2, 3, 4, 5, 6, 7], "whole_cores": True, "quota": 0}
    assert cpu.native().cpu_share([5, 1, 2, 6], root)["order"] == [1, 2, 5, 6]
    neighbours = machine(tmp_path / "b", [[0, 1], [2, 3], [4], [5]])
    assert cpu.native().cpu_share([0, 1, 2, 3, 4, 5], neighbours)["order"] == [0, 2, 4, 5, 1, 3]


def test_half_a_core_is_told(tmp_path: Path) -> None:
    root = machine(tmp_path, [[0, 2], [1, 3]])
    assert cpu.native().cpu_share([0, 2], root)["whole_cores"] is True
    assert cpu.native().cpu_share([0, 1, 2], root)["whole_cores"] is False


def test_without_topology_every_cpu_is_a_core(tmp_path: Path) -> None:
    assert cpu.native().cpu_share([3, 1], str(tmp_path)) == {"order": [1, 3], "whole_cores": True, "quota": 0}


def groups(root: Path, mountinfo: str, own: str, **files: str) -> str:
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(mountinfo, encoding="utf-8")
    (proc / "cgroup").write_text(own, encoding="utf-8")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return str(root)


V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


def test_the_tightest_quota_of_all_ancestors_counts(tmp_path: Path) -> None:
    at = "sys/fs/cgroup"
    files = {
        f"{at}/a/b/cpu.max": "max 100000\n",
        f"{at}/a/cpu.max": "150000 100000\n",
        f"{at}/cpu.max": "800000 100000\n",
    }
    root = groups(tmp_path, V2, "0::/a/b\n", **files)
    assert cpu.native().cpu_share([0], root)["quota"] == 1.5


def test_the_older_interface(tmp_path: Path) -> None:
    at = "sys/fs/cgroup/cpu,cpuacct"
    own = "4:memory:/m\n2:cpu,cpuacct:/a\n0::/\n"
    files = {f"{at}/a/cpu.cfs_quota_us": "50000\n", f"{at}/a/cpu.cfs_period_us": "100000\n",
             f"{at}/cpu.cfs_quota_us": "-1\n", f"{at}/cpu.cfs_period_us": "100000\n"}  # fmt: skip
    assert cpu.native().cpu_share([0], groups(tmp_path, V1, own, **files))["quota"] == 0.5
    assert cpu.native().cpu_share([0], groups(tmp_path / "b", V1, "2:cpu,cpuacct:/\n"))["quota"] == 0


def test_a_group_of_a_foreign_namespace(tmp_path: Path) -> None:
    mounted = V2.replace(" / /sys", " /docker/1 /sys")
    files = {"sys/fs/cgroup/cpu.max": "200000 100000\n"}
    assert cpu.native().cpu_share([0], groups(tmp_path, mounted, "0::/elsewhere\n", **files))["quota"] == 2


@two_cores
def test_workers_are_pinned_apart_and_the_caller_is_left_alone() -> None:
    found = run(
        "native.set_threads(2); before = os.sched_getaffinity(0); state = native.pool_state()\n"
        "same = work(50)\n"
        "print(json.dumps([state, same, before == os.sched_getaffinity(0)]))"
    )
    state, same, untouched = found
    assert same and untouched
    assert state["threads"] == 2 and state["crowded"] is False
    assert len(state["pinned"]) == 1 and state["pinned"][0] in CPUS


@two_cores
def test_pinning_can_be_switched_off() -> None:
    state, same = run("native.set_threads(2); print(json.dumps([native.pool_state(), work(20)]))", TWOFOLD_PIN="0")
    assert same and state == {"threads": 2, "crowded": False, "pinned": []}


def test_more_threads_than_cpus() -> None:
    n = len(CPUS) + 3
    state, same = run(f"native.set_threads({n}); print(json.dumps([native.pool_state(), work(20)]))")
    assert same and state == {"threads": n, "crowded": True, "pinned": []}


@two_cores
def test_a_mask_that_shrinks_after_the_start_is_noticed() -> None:
    code = f"""
native.set_threads(2)
same = work(20)
os.sched_setaffinity(0, {{{CPUS[0]}}})
same = work(600) and same
shrunk = native.pool_state()
mask = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {set(CPUS)})
same = work(20) and same
print(json.dumps([same, shrunk, mask, native.pool_state()]))
"""
    same, shrunk, mask, grown = run(code)
    assert same
    assert shrunk == {"threads": 2, "crowded": True, "pinned": []} and mask == [CPUS[0]]
    assert grown["crowded"] is False


@two_cores
def test_started_in_a_cpuset_of_one() -> None:
    state, same = run(
        f"os.sched_setaffinity(0, {{{CPUS[-1]}}}); native.set_threads(2)\n"
        "print(json.dumps([native.pool_state(), work(50)]))"
    )
    assert same and state["crowded"] is True and state["pinned"] == []


def _busy_ticks() -> int:
    """User and system time of every thread of this process but the calling one."""
    total = 0
    own = os.readlink("/proc/thread-self").rsplit("/", 1)[-1]
    for task in Path("/proc/self/task").iterdir():
        if task.name != own:
            fields = (task / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total


@pytest.mark.skipif(not Path("/proc/thread-self").exists(), reason="no /proc")
def test_idle_workers_take_no_time() -> None:
    """Other libraries' threads have the machine while the pool has no work: workers park after a moment."""
    from twofold.kernels.cpu import ops

    x = np.ones((33, 4096), np.float32)
    before = cpu.native().threads()
    try:
        for n in (2, len(CPUS) + 2):
            cpu.native().set_threads(n)
            assert ops.silu_mul(x, x).tobytes() == naive.silu_mul(x, x).tobytes()
            time.sleep(0.02)
            start = _busy_ticks()
            time.sleep(0.3)
            assert _busy_ticks() - start <= 1
    finally:
        cpu.native().set_threads(before)
