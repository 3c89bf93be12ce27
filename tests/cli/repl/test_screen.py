"""What a terminal and a pipe are shown."""

from __future__ import annotations

import contextlib
import io
import os

import pytest

from twofold.cli.errors import explain
from twofold.cli.output import STDOUT
from twofold.cli.repl.screen import MarkdownScreen, PlainScreen
from twofold.engine.session import Piece


class FakeTerminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Pipe(io.StringIO):
    encoding = "utf-8"


class AsciiPipe(io.StringIO):
    encoding = "ascii"


def show(screen: PlainScreen | MarkdownScreen, *pieces: tuple[str, str]) -> None:
    for kind, text in pieces:
        screen.show(Piece(kind, text))  # type: ignore[arg-type]
    screen.end()


def test_a_pipe_gets_the_answer_alone_and_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    pipe = Pipe()
    show(PlainScreen(pipe), ("notice", "full"), ("thinking", "hm"), ("answer", "# a **b**\x1b[2J\n\n"), ("answer", "c"))
    assert pipe.getvalue() == "# a **b**\x1b[2J\n\nc\n"
    assert capsys.readouterr().err == "full\nhm\n"


def test_an_answer_that_ends_its_line_gets_no_second_one() -> None:
    pipe = Pipe()
    show(PlainScreen(pipe), ("answer", "a\n"))
    assert pipe.getvalue() == "a\n"


def test_an_ascii_pipe_gets_ascii() -> None:
    pipe = AsciiPipe()
    show(PlainScreen(pipe), ("answer", "né 漢 …"))
    assert pipe.getvalue() == "n? ? ...\n"


@pytest.mark.parametrize("screen", [PlainScreen, MarkdownScreen])
def test_control_characters_never_reach_a_terminal(screen: type[PlainScreen | MarkdownScreen]) -> None:
    terminal = FakeTerminal()
    show(screen(terminal), ("answer", "a\x1b]0;title\x07b\x9b2J\x00c\r\n\n"), ("answer", "tail"))
    shown = terminal.getvalue()
    assert "\x1b]0" not in shown and "\x9b" not in shown and "\x00" not in shown and "\x07" not in shown
    assert "a" in shown and "tail" in shown


def test_markdown_in_finished_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = FakeTerminal()
    screen = MarkdownScreen(terminal)
    screen.show(Piece("answer", "some **bold** text"))
    assert terminal.getvalue() == ""
    screen.show(Piece("answer", "\n\n```py\nx = 1\n"))
    first = terminal.getvalue()
    assert "bold" in first and "**" not in first and "x = 1" not in first
    screen.show(Piece("answer", "```\n"))
    screen.end()
    shown = terminal.getvalue()
    assert shown.startswith(first)
    assert "```" not in shown and "=" in shown
    assert "\x1b[A" not in shown and "\r" not in shown


def test_thinking_is_dim_and_apart() -> None:
    terminal = FakeTerminal()
    show(MarkdownScreen(terminal), ("thinking", "hm "), ("thinking", "yes"), ("answer", "A\n"))
    shown = terminal.getvalue()
    assert shown.startswith("\x1b[2mhm \x1b[22m\x1b[2myes\x1b[22m\n\n")
    assert "A" in shown.split("\n\n", 1)[1]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("screen", [PlainScreen, MarkdownScreen])
def test_an_answer_that_cannot_be_written_blames_standard_output(screen: type[PlainScreen | MarkdownScreen]) -> None:
    full = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 - closing it fails as writing does
    with pytest.raises(OSError, match="No space left") as failed:
        show(screen(full), ("answer", "a\n\n"), ("answer", "b\n"))
    assert failed.value.filename == STDOUT
    known = explain(failed.value)
    assert known is not None and known.what.startswith("standard output cannot be written")
    with contextlib.suppress(OSError):
        full.close()
