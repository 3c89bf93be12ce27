"""`fit` in a real terminal: lines are broken at words, tables keep every digit, commands can be pasted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import pytest

from twofold.cli.fit_ways import pick
from twofold.cli.output import Sink

GEMMA = ("google/gemma-4-31B-it", "--card", "RTX 4090", "--ctx", "32K", "--trials", "0")


def _in_pty(columns: int, *arguments: str, **environment: str) -> tuple[str, list[str]]:
    """What `fit` writes to a terminal of `columns`, raw and as lines without colours."""
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES", "TERM")}
    child, terminal = pty.fork()
    if child == 0:
        os.environ.clear()
        os.environ.update(plain | {"TERM": "xterm-256color"} | environment)
        os.execv(sys.executable, [sys.executable, "-m", "twofold", "fit", *arguments])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    seen = b""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 65536):
            seen += data
    os.waitpid(child, 0)
    os.close(terminal)
    text = seen.decode("utf-8")
    return text, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")


def _is_command(line: str) -> bool:
    return "llama-server " in line or "twofold fit " in line


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_only_commands_are_longer_than_a_line(columns: int, environment: dict[str, str]) -> None:
    text, lines = _in_pty(columns, *GEMMA, "--pareto", **environment)
    assert lines[0].startswith("FITS, but this version cannot run it")
    for line in lines:
        assert len(line.rstrip()) <= columns or _is_command(line), line
    assert ("\x1b[" in text) == (environment == {})
    shown = "\n".join(lines)
    assert "\u2026" not in shown, "an ellipsis would hide digits"
    assert "llama-server -hf unsloth/gemma-4-31B-it-GGUF:Q4_K_M -c 32768" in shown
    assert "tok/s with a full context, of plans that no other beats" in shown


@pytest.mark.parametrize("columns", [80, 120])
def test_the_ranking_keeps_its_lines(columns: int) -> None:
    _, lines = _in_pty(columns, "--card", "RTX 4090")
    assert all(len(line.rstrip()) <= columns for line in lines)
    names = [
        line for line in lines if line.startswith(("Qwen/", "google/", "openai/", "meta-llama/", "HuggingFaceTB/"))
    ]
    assert len(names) >= 14
    assert any(line.startswith("google/gemma-4-26B-A4B-it ") for line in names)


def test_no_wrap_in_a_pipe(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w+", encoding="utf-8") as file:
        Sink(file).prose("word " * 100)
        file.seek(0)
        assert file.read().count("\n") == 1


def test_contexts_for_a_width() -> None:
    every = [2048, 4096, 8192, 16384, 32768, 65536, 131072]
    assert pick(every, None) == every and pick(every, 200) == every
    few = pick(every, 80)
    assert 2 < len(few) < 7 and (few[0], few[-1]) == (2048, 131072) and few == sorted(set(few))
    assert pick(every, 10) == [2048, 131072]
