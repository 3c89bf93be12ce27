"""The thread pool across threads and forks, and the choice of tier."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive

pytestmark = pytest.mark.skipif(cpu.missing_reason() is not None, reason="no native module")

CASE = (np.linspace(-3, 3, 33 * 4096, dtype=np.float32).reshape(33, 4096),) * 2


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_a_forked_child_computes() -> None:
    code = """
import os, sys, numpy as np
from twofold.kernels import cpu
from twofold.kernels.cpu import ops
cpu.native().set_threads(3)
x = np.ones((33, 4096), np.float32)
first = ops.silu_mul(x, x)
statuses = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        same = all(ops.silu_mul(x, x).tobytes() == first.tobytes() for _ in range(10))
        os._exit(0 if same and cpu.native().threads() == 3 else 1)
    ops.silu_mul(x, x)
    statuses.append(os.waitpid(pid, 0)[1])
sys.exit(any(statuses))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_forks_while_another_thread_computes() -> None:
    code = """
import os, sys, threading, warnings, numpy as np
warnings.simplefilter("ignore")
from twofold.kernels import cpu
from twofold.kernels.cpu import ops
cpu.native().set_threads(2)
x = np.ones((33, 4096), np.float32)
stop = threading.Event()
def work():
    while not stop.is_set():
        ops.silu_mul(x, x)
thread = threading.Thread(target=work)
thread.start()
statuses = []
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        ops.silu_mul(x, x)
        os._exit(0)
    statuses.append(os.waitpid(pid, 0)[1])
stop.set()
thread.join()
sys.exit(any(statuses))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_calls_from_several_threads() -> None:
    from twofold.kernels.cpu import ops

    expected = naive.silu_mul(*CASE).tobytes()
    results: list[bool] = []

    def work() -> None:
        results.extend(ops.silu_mul(*CASE).tobytes() == expected for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 80


def test_threads_can_change_between_calls() -> None:
    from twofold.kernels.cpu import ops

    native = cpu.native()
    before = native.threads()
    expected = naive.silu_mul(*CASE).tobytes()
    try:
        for n in (1, 5, 2, 17, 1, 3):
            native.set_threads(n)
            assert native.threads() == n
            assert ops.silu_mul(*CASE).tobytes() == expected
    finally:
        native.set_threads(before)


@pytest.mark.parametrize("n", [0, -1, 4097])
def test_impossible_thread_counts_are_refused(n: int) -> None:
    before = cpu.native().threads()
    with pytest.raises(ValueError, match="1 to 4096"):
        cpu.native().set_threads(n)
    assert cpu.native().threads() == before


def test_tiers_of_this_machine() -> None:
    tiers = cpu.native().available_tiers()
    assert tiers[0] == "generic"
    with pytest.raises(ValueError, match="no CPU tier 'sse9' on this machine, which has generic"):
        cpu.native().force_isa("sse9")


def test_the_environment_chooses_the_tier() -> None:
    code = "from twofold.kernels import cpu; print(cpu.native().isa())"
    for tier in cpu.native().available_tiers():
        assert run_python(code, TWOFOLD_CPU_ISA=tier).stdout.strip() == tier


def test_a_wrong_tier_in_the_environment_is_an_error() -> None:
    code = "from twofold.kernels.cpu import ops; import numpy as np; x = np.ones((1, 4), np.float32); ops.add(x, x)"
    done = run_python(code, TWOFOLD_CPU_ISA="sse9")
    assert done.returncode == 1 and "ValueError" in done.stderr and "generic" in done.stderr


def test_a_missing_module_is_an_error_where_it_is_required() -> None:
    code = """
import sys
sys.modules["twofold.kernels.cpu._cpu"] = None
from twofold.kernels import cpu
print(cpu.missing_reason())
"""
    relaxed = run_python(code, TWOFOLD_REQUIRE_NATIVE="")
    assert relaxed.returncode == 0 and "None" != relaxed.stdout.strip() != ""
    strict = run_python(code, TWOFOLD_REQUIRE_NATIVE="1")
    assert strict.returncode == 1 and "import of twofold.kernels.cpu._cpu halted" in strict.stderr
