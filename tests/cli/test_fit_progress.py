"""A long search says on a terminal how far it is, and its answer on stdout stays as it is."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from twofold import cli
from twofold.cli import fit_progress
fit_progress.QUIET_SECONDS = float(sys.argv.pop(1))
sys.exit(cli.main())
"""
_FIT = ("fit", "Qwen/Qwen3-8B", "--card", "RTX 4090", "--ram", "64", "--ram-gb-s", "50", "--trials", "40")


def _shown(quiet_seconds: float) -> tuple[str, str]:
    """Standard output (a pipe) and what a terminal on standard error got."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", _PROGRAM, str(quiet_seconds), *_FIT, "--format", "json"]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=environment)
    os.close(slave)
    out, _ = process.communicate(timeout=120)
    os.set_blocking(master, False)
    seen = b""
    try:
        while part := os.read(master, 65536):
            seen += part
    except OSError:  # the other side is closed, or there is no more
        pass
    os.close(master)
    assert process.returncode == 0, seen
    return out.decode(), seen.decode(errors="replace")


@pytest.mark.skipif(os.name != "posix", reason="terminals")
def test_a_long_search_shows_how_far_it_is() -> None:
    long_out, long_err = _shown(0.0)
    short_out, short_err = _shown(1e6)
    assert "trying plans" in long_err and "%" in long_err
    assert short_err == ""
    assert json.loads(long_out)["plan"] == json.loads(short_out)["plan"]
