"""The lines around a conversation, and the progress of a long prompt."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from twofold.cli.repl.status import PrefillProgress, answer_line, header
from twofold.engine.session import AnswerStats


class FakeTerminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_the_header_names_model_bits_context_threads_and_instructions(tiny_session: Any) -> None:
    shown = header(tiny_session.engine.plan)
    for part in ("tiny", "2-bit base", "6-bit residual", "context 512", "1 thread ", "naive"):
        assert part in shown


def test_what_was_not_measured_is_left_out(tiny_session: Any) -> None:
    nothing = AnswerStats(10, 0, 0, 0, None, None, None, "interrupted")
    shown = answer_line(nothing, tiny_session.engine.plan)
    assert shown.startswith("0 tokens · RAM ") and shown.endswith("stopped")
    one = AnswerStats(10, 0, 1, 1, 0.5, 2.0, 1.0, "stop")
    assert answer_line(one, tiny_session.engine.plan).startswith(
        "1 token · 2.0 tok/s · 1.00 tokens per check · first token 0.50 s · RAM "
    )


def test_a_long_prompt_shows_how_far_it_is_and_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = PrefillProgress()
    for done in (0, 500, 1000):
        progress(done, 1000)
    shown = terminal.getvalue()
    assert "reading the prompt: 50 % of 1000 tokens" in shown
    assert shown.endswith("\r") and not shown.rstrip("\r").rsplit("\r", 1)[1].strip()
    progress(0, 10)
    assert terminal.getvalue() == shown


def test_a_pipe_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    progress = PrefillProgress()
    progress(0, 1000)
    progress.clear()
    assert pipe.getvalue() == ""


def test_no_line_is_wider_than_the_terminal(tiny_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.cli.doctor import _show
    from twofold.cli.doctor_checks import run_checks
    from twofold.cli.repl.commands import run_command
    from twofold.cli.repl.loop import answer
    from twofold.cli.repl.screen import PlainScreen

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    shown, screen = FakeTerminal(), PlainScreen(io.StringIO())
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(sys, "stdout", shown)
    answer(tiny_session, "hello", screen)
    for command in ("/help", "/stats", "/plan"):
        run_command(tiny_session, command)
    _show(run_checks())
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.getvalue().splitlines()]
    text = " ".join(" ".join(lines).split())
    for part in ("MiB planned", "/help show these commands", "engine: ", "resident: ", "kernel timings"):
        assert part in text
    long = [line for line in lines if len(line) > 80]
    assert [line for line in long if max(map(len, line.split())) < 48] == []  # a path is never broken
