"""Shows pieces of answers on stdout: as raw text at once, or as Markdown in finished blocks.

Control characters that a model writes never reach a terminal.
"""

from __future__ import annotations

import sys
from typing import IO, Protocol

from twofold.cli.output import Sink, err, is_plain, writing
from twofold.cli.repl.blocks import BlockSplitter
from twofold.engine.session import Piece

_DIM, _NORMAL = "\x1b[2m", "\x1b[22m"
_CONTROL = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


class Screen(Protocol):
    """`show` one piece, `end` the answer."""

    def show(self, piece: Piece) -> None: ...

    def end(self) -> None: ...


class PlainScreen:
    """Raw text as it comes. Thinking goes to stderr, so that a pipe gets the answer alone."""

    def __init__(self, stream: IO[str]) -> None:
        self._sink = Sink(stream)
        self._is_terminal = stream.isatty()
        self._last = "\n"
        self._thinking = False

    def show(self, piece: Piece) -> None:
        if piece.kind == "notice":
            err().prose(piece.text)
            return
        thinking = piece.kind == "thinking"
        if self._thinking and not thinking:
            self._break_line()
        self._thinking = thinking
        stream = sys.stderr if thinking else self._sink.stream
        text = piece.text.translate(_CONTROL) if self._is_terminal or thinking else piece.text
        with writing(stream):
            stream.write(self._sink.glyphs(text))
            stream.flush()
        self._last = text[-1:] or self._last

    def end(self) -> None:
        self._break_line()

    def _break_line(self) -> None:
        if self._last != "\n":
            stream = sys.stderr if self._thinking else self._sink.stream
            with writing(stream):
                stream.write("\n")
                stream.flush()
        self._last, self._thinking = "\n", False


class MarkdownScreen:
    """Markdown by rich, block by block; thinking dim, as it comes."""

    def __init__(self, stream: IO[str]) -> None:
        self._sink = Sink(stream)
        self._blocks = BlockSplitter()
        self._thinking = False
        self._shown = False

    def show(self, piece: Piece) -> None:
        if piece.kind == "notice":
            err().prose(piece.text, style="dim")
        elif piece.kind == "thinking":
            self._thinking = True
            self._write(f"{_DIM}{piece.text.translate(_CONTROL)}{_NORMAL}")
        else:
            self._end_thinking()
            for block in self._blocks.push(piece.text.translate(_CONTROL)):
                self._print(block)

    def end(self) -> None:
        self._end_thinking()
        for block in self._blocks.flush():
            self._print(block)
        self._shown = False

    def _end_thinking(self) -> None:
        if self._thinking:
            self._write("\n\n")
        self._thinking = False

    def _print(self, block: str) -> None:
        from rich.markdown import Markdown

        if self._shown:
            self._write("\n")
        self._shown = True
        with writing(self._sink.stream):
            self._sink.console.print(Markdown(self._sink.text(block), code_theme="ansi_dark", hyperlinks=False))

    def _write(self, text: str) -> None:
        with writing(self._sink.stream):
            self._sink.stream.write(self._sink.glyphs(text))
            self._sink.stream.flush()


def make_screen(*, plain: bool) -> Screen:
    """The screen for this standard output."""
    if plain or is_plain(sys.stdout):
        return PlainScreen(sys.stdout)
    return MarkdownScreen(sys.stdout)
