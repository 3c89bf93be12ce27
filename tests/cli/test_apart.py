"""Work in a child process: results, errors and interruptions come back, what it loaded does not stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twofold.cli.apart import can_fork, run_apart

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

_PRELUDE = """
import json, os, signal, sys, time
from twofold.cli.apart import can_fork, run_apart
from twofold.profiles.errors import NotEnoughSpace
"""


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(code: str) -> str:
    process = python(code)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def test_under_captured_streams_the_work_is_done_here() -> None:
    assert not can_fork()
    assert run_apart(os.getpid) == os.getpid()


def test_the_result_comes_from_another_process() -> None:
    out = finished("print(json.dumps([can_fork(), run_apart(os.getpid) != os.getpid()]), flush=True)")
    assert json.loads(out) == [True, True]


def test_large_results_and_output_arrive_whole() -> None:
    code = """
print("before")
def work():
    print("inside")
    return "x" * 3_000_000
print(len(run_apart(work)))
"""
    assert finished(code).split() == ["before", "inside", "3000000"]


def test_errors_keep_their_parts() -> None:
    code = """
def work():
    raise NotEnoughSpace("the disk is full", found="1 GB", needed="2 GB", hint="free some")
try:
    run_apart(work)
except NotEnoughSpace as error:
    print(json.dumps([str(error), error.found, error.needed, error.hint]))
"""
    assert json.loads(finished(code)) == ["the disk is full", "1 GB", "2 GB", "free some"]


def test_an_error_that_cannot_travel_is_named() -> None:
    code = """
class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a)
def work():
    raise Odd("strange", 2)
try:
    run_apart(work)
except RuntimeError as error:
    print(error)
"""
    assert finished(code).strip() == "Odd: strange"


def test_a_killed_child_is_said() -> None:
    code = """
from twofold.profiles.errors import EngineFailed
try:
    run_apart(lambda: os.kill(os.getpid(), signal.SIGKILL))
except EngineFailed as error:
    print(error.hint)
"""
    assert "goes on where it stopped" in finished(code)


_CLEANING = """
def work():
    try:
        print("working", os.getpid(), flush=True)
        time.sleep(60)
    finally:
        time.sleep(0.8)
        print("cleaned", flush=True)
try:
    run_apart(work)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("to_both", [False, True])
def test_an_interruption_lets_the_child_clean_up(to_both: bool) -> None:
    process = python(_CLEANING)
    assert process.stdout is not None
    child = int(process.stdout.readline().split()[1])
    process.send_signal(signal.SIGINT)
    if to_both:
        os.kill(child, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out.split() == ["cleaned", "interrupted"], err
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc")
def test_the_child_does_not_outlive_a_killed_parent() -> None:
    process = python("def work():\n    print(os.getpid(), flush=True)\n    time.sleep(60)\nrun_apart(work)\n")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and _runs(child):
        time.sleep(0.05)
    assert not _runs(child)
    process.stdout.close()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


_FIRST_START = """
from pathlib import Path
from twofold.cli.errors import run_app
source = sys.argv[1] if len(sys.argv) > 1 else os.environ["SOURCE"]
sys.argv = ["twofold", "run", source, "hello", "--yes", "--temp", "0", "--max-tokens", "4", "--calibration", "shipped"]
code = run_app()
maps = Path("/proc/self/maps").read_text()
print(json.dumps({"code": code, "torch": "torch" in sys.modules, "libtorch": "libtorch" in maps}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
def test_a_first_start_leaves_no_torch_in_the_session(
    quantizable_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path))
    monkeypatch.setenv("SOURCE", str(quantizable_folder))
    process = python(_FIRST_START)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == {"code": 0, "torch": False, "libtorch": False}
    assert "peak memory" in err and "4 tokens" in err
