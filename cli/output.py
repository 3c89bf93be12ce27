"""The one output sink: data to stdout, everything else to stderr; plain where a terminal is not one.

`NO_COLOR`, `TERM=dumb`, pipes and non-UTF-8 terminals get text without colour, boxes or glyphs outside ASCII. JSON mode
prints exactly one document on stdout and refuses to prompt.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from twofold.profiles.errors import Declined, InvalidOption, TwofoldError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_ASCII = str.maketrans({"✓": "+", "✗": "x", "—": "-", "–": "-", "…": "...", "×": "x", "→": "->", "≤": "<=", "≥": ">=",
                        "·": "-", "±": "+-", "↔": "<->", "█": "#", "░": "."})  # fmt: skip

STDOUT = "<stdout>"
"""The file name of an error of writing to standard output."""

# Control characters other than tab and line feed, and the halves of surrogate pairs in undecodable file names.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def is_plain(stream: IO[str]) -> bool:
    """Whether `stream` wants plain text: not a terminal, `TERM=dumb`, or `NO_COLOR`."""
    return not stream.isatty() or os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))


@contextlib.contextmanager
def writing(stream: IO[str]) -> Iterator[None]:
    """Messages that nobody can be shown are no reason to stop; data that is lost is, and the error names the stream."""
    try:
        yield
    except BrokenPipeError:
        if stream is not sys.stderr:
            raise
    except (OSError, ValueError) as error:
        if stream is sys.stderr:
            return
        if isinstance(error, OSError) and error.filename is None:
            error.filename = STDOUT
        raise


class Sink:
    """One stream with the conventions above. Rich is loaded only when something is drawn with it."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
        self.is_ascii = encoding not in ("utf8", "utf8sig", "utf16", "utf32")

    @functools.cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(
            file=self.stream,
            no_color=is_plain(self.stream) or None,
            highlight=False,
            soft_wrap=not self.stream.isatty(),
            safe_box=self.is_ascii,
            markup=False,
            emoji=False,
        )

    def text(self, text: str) -> str:
        """`text` with glyphs that the stream can show, and nothing that a terminal would act on."""
        return self.glyphs(UNPRINTABLE.sub("?", text))

    def glyphs(self, text: str) -> str:
        """`text` with glyphs that the stream can show, control characters as they are."""
        if not self.is_ascii:
            return text
        return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")

    def line(self, text: str = "", style: str | None = None) -> None:
        """One line, optionally in a rich style where the stream has colour. Markup in `text` is not interpreted."""
        shown = self.text(text)
        with writing(self.stream):
            if style is None or is_plain(self.stream):
                print(shown, file=self.stream, flush=True)
            else:
                self.console.print(shown, style=style, markup=False, soft_wrap=True)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None where the stream is none, and lines may be as long as they are."""
        return self.console.width if self._is_terminal() else None

    def _is_terminal(self) -> bool:
        try:
            return self.stream.isatty()
        except ValueError:  # closed: what cannot be shown is no reason to stop
            return False

    def prose(self, text: str, style: str | None = None, indent: str = "  ") -> None:
        """Sentences: broken at words where the stream is a terminal, continued behind `indent`. Not for commands."""
        import textwrap

        width = self.width
        if width is None:
            self.line(text, style)
            return
        for sentence in text.split("\n"):
            start = sentence[: len(sentence) - len(sentence.lstrip())]
            for line in textwrap.wrap(
                sentence.strip(),
                max(20, width),
                initial_indent=start,
                subsequent_indent=start + indent,
                break_long_words=False,
                break_on_hyphens=False,
            ):
                self.line(line, style)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; where the stream is plain, aligned columns without boxes."""
        if is_plain(self.stream) or self.is_ascii:
            self._plain_table(title, columns, rows)
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        if title:
            self.prose(title, style="italic")
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")  # an ellipsis would hide digits
        for row in rows:
            table.add_row(*(self.text(cell) for cell in row))
        with writing(self.stream):
            self.console.print(table)

    def _plain_table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        cells = [[self.text(cell) for cell in row] for row in (columns, *rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
        if title:
            self.line(title)
        for row in cells:
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def error(self, error: TwofoldError) -> None:
        """What happened, found against needed, then a hint. What a person declined is no failure."""
        if isinstance(error, Declined):
            self.prose(f"stopped: {error.what}")
            return
        self.prose(f"error: {error.what}", style="red")
        if error.needed is not None:
            self.prose(f"  needed: {error.needed}", indent=" " * 8)
        if error.found is not None:
            self.prose(f"  found:  {error.found}", indent=" " * 8)
        if error.hint is not None:
            self.line(f"hint: {error.hint}", style="cyan")

    def warning(self, text: str) -> None:
        self.prose(f"warning: {text}", style="yellow")

    def stage(self, text: str) -> None:
        """That a stage of long work begins, where no progress display shows it."""
        from twofold.profiles.settings import get_settings

        if not self._is_terminal() and not get_settings().no_progress:
            self.line(text)

    def progress(self) -> Progress:
        """A progress display with the time that passed and what is left; silent where the stream is not a terminal."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        from twofold.profiles.settings import get_settings

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("gone,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self.console,
            disable=not self.stream.isatty() or get_settings().no_progress,
        )


def out() -> Sink:
    """Data for the person or the pipe."""
    return Sink(sys.stdout)


def err() -> Sink:
    """Messages, progress, hints."""
    return Sink(sys.stderr)


def print_json(document: Any) -> None:
    """One JSON document on stdout. NaN and infinity are refused: they are not JSON."""
    text = json.dumps(document, indent=2, allow_nan=False)
    with writing(sys.stdout):
        print(text, flush=True)


def print_bytes(data: bytes) -> None:
    """Exactly these bytes on stdout, whatever the terminal's encoding."""
    with writing(sys.stdout):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def confirm(question: str, *, assume_yes: bool, hint: str, declined: str = "nothing was changed") -> None:
    """Ask before something long or destructive; not with `assume_yes`, nor under the setting `yes`.

    `declined` says what a no leaves as it was.

    Raises:
        InvalidOption: when nobody can answer (no terminal), naming the option to pass.
        Declined: when the answer is no.
    """
    from twofold.profiles.settings import get_settings

    if assume_yes or get_settings().yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidOption(
            f"not confirmed: {question}", needed="an answer, but there is no terminal to ask", hint=hint
        )
    print(err().text(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined(declined)
