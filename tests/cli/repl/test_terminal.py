"""The session in a real terminal (pty), with a real engine on a small random model."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
Terminals = Callable[..., Any]


def test_a_conversation(terminal: Terminals, isolated_home: Path) -> None:
    session = terminal("chat", "--max-tokens", "8", "--temp", "0")
    shown = session.wait("/help lists the commands")
    assert "2-bit base + 6-bit residual" in shown and "smollm2 is a self-test" in shown
    session.wait(">>>")
    session.type("hello\r")
    shown = session.wait("MiB planned")
    assert "8 tokens" in shown and "tok/s" in shown and "first token" in shown
    session.type("/halp\r")
    session.wait("did you mean /help?")
    session.type('"""one\rtwo"""\r')
    session.wait("MiB planned")
    session.type("/bye\r")
    assert session.leave() == 0
    history = isolated_home / "state" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+hello" in history.read_text()


def test_alt_enter_makes_a_line_and_ctrl_d_leaves(terminal: Terminals, isolated_home: Path) -> None:
    session = terminal("chat", "--max-tokens", "4", "--temp", "0")
    session.wait(">>>")
    session.type("one\x1b\rtwo\r")
    session.wait("MiB planned")
    session.type(f"/save {isolated_home}/talk.json\r")
    session.wait("saved to")
    session.wait(">>>")
    session.type("\x04")
    assert session.leave() == 0
    assert '"content": "one\\ntwo"' in (isolated_home / "talk.json").read_text()


def test_ctrl_c_stops_the_answer_and_keeps_the_session(terminal: Terminals) -> None:
    session = terminal("chat", "--temp", "0", "--no-history")
    session.wait(">>>")
    session.type("go on for long\r")
    time.sleep(1.0)
    session.type("\x03")
    assert "MiB planned" in session.wait("stopped")  # on the next line where the terminal is narrow
    session.wait(">>>")
    session.type("/stats\r")
    session.wait("engine:")
    session.wait(">>>")
    session.type("half a line\x03\x03")
    session.wait("leaves")
    session.wait(">>>")
    session.type("\x03")
    assert session.leave() == 0
    assert "Traceback" not in session.screen


def test_no_history_is_kept_when_not_wanted(terminal: Terminals, isolated_home: Path) -> None:
    session = terminal("chat", "--no-history", "--max-tokens", "2")
    session.wait(">>>")
    session.type("secret\r")
    session.wait("MiB planned")
    session.type("/bye\r")
    assert session.leave() == 0
    assert not any("history" in file for _, _, files in os.walk(isolated_home) for file in files)


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_plain_terminals_get_no_escapes_in_the_answer(terminal: Terminals, environment: dict[str, str]) -> None:
    session = terminal("chat", "--max-tokens", "8", "--temp", "0", **environment)
    session.wait(">>>")
    before = len(session.screen)
    session.type("hello\n" if environment.get("TERM") == "dumb" else "hello\r")
    session.wait("MiB planned")
    figures = session.screen[before:].split("8 tokens")[1].split("planned")[0]
    assert "\x1b" not in figures
    if environment.get("TERM") == "dumb":
        assert "\x1b" not in session.screen
    session.type("/bye\n" if environment.get("TERM") == "dumb" else "/bye\r")
    assert session.leave() == 0


def test_one_ctrl_c_at_a_plain_prompt_is_no_end(terminal: Terminals) -> None:
    session = terminal("chat", "--no-history", "--max-tokens", "4", "--temp", "0", TERM="dumb")
    session.wait(">>>")
    session.type("\x03")
    session.wait("Ctrl-C again, Ctrl-D or /bye leaves")
    session.wait(">>>")
    session.type("hello\n")
    session.wait("MiB planned")
    session.wait(">>>")
    session.type("\x03")
    session.wait("leaves")
    session.wait(">>>")
    session.type("\x03")
    assert session.leave() == 0
    assert "Traceback" not in session.screen
