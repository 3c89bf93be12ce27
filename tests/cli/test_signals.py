"""Ctrl-C, SIGTERM and SIGHUP: heard wherever they arrive, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")
HEARS = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A background job's start ignores Ctrl-C."""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_during_a_measurement_leaves_nothing(isolated_home: Path, number: int, code: int) -> None:
    started = isolated_home / "started"
    script = HEARS + (
        "import os, pathlib, twofold.probes as p, twofold.cli as c\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # and nohup's this
        "real = p.probe\n"
        f"def probe(**options):\n    pathlib.Path({str(started)!r}).touch()\n"
        f"    while os.getppid() == {os.getpid()}: real(**options)\n"  # not for ever where the tests are killed
        "p.probe = probe\nsys.argv = ['twofold', 'probe', '-o', sys.argv[1]]\nsys.exit(c.main())\n"
    )
    target = isolated_home / "out" / "p.json"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not started.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, messages = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in messages
    assert ("interrupted" in messages) is (number == signal.SIGINT)
    assert [path for path in isolated_home.rglob("*") if path.is_file() and path != started] == []


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEARS + script], capture_output=True, text=True, check=False, timeout=60
    )


def test_ctrl_c_while_the_native_module_loads_is_heard() -> None:
    script = (
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'atexit': print('sent'), signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.modules.pop('atexit', None)\n"  # the module that nanobind imports, clearing what that raises
        "try:\n    import twofold.kernels.cpu\nexcept KeyboardInterrupt:\n    print('heard')\n"
    )
    result = run_script(script)
    assert result.stdout.split() == ["sent", "heard"], result.stderr


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_that_a_finaliser_lost_is_sent_again(name: str, code: int) -> None:
    script = (
        "import time\nfrom twofold.cli.errors import run_app\n"
        "class Lost:\n"
        f"    def __del__(self):\n        signal.raise_signal(signal.{name})\n        time.sleep(0)\n"
        "def work():\n    Lost()\n    print('lost', flush=True)\n    while True: time.sleep(0.01)\n"
        "sys.exit(run_app(work))\n"
    )
    result = run_script(script)
    assert (result.returncode, result.stdout) == (code, "lost\n"), result.stderr
    assert "ignored" not in result.stderr


def test_another_error_of_a_finaliser_is_shown() -> None:
    script = (
        "from twofold.cli.errors import run_app\n"
        "class Broken:\n    def __del__(self):\n        raise ValueError('odd')\n"
        "sys.exit(run_app(lambda: (Broken(), None)[1]))\n"
    )
    result = run_script(script)
    assert result.returncode == 0 and "ValueError: odd" in result.stderr
