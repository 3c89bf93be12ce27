"""Where messages come from: a terminal with history and editing, or lines of a pipe.

A message that begins with three double quotes goes on over lines until the closing three.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from twofold.cli.output import err

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

QUOTES = '"""'
PROMPT = ">>> "


class Reader(Protocol):
    """`read` gives the next message, None at the end of input; KeyboardInterrupt is Ctrl-C on an empty line."""

    is_interactive: bool

    def read(self) -> str | None: ...


def is_open(text: str) -> bool:
    """Whether `text` begins a quoted message that is not closed yet."""
    stripped = text.strip()
    return stripped.startswith(QUOTES) and not (stripped.endswith(QUOTES) and len(stripped) >= 2 * len(QUOTES))


def unquoted(text: str) -> str:
    """The message without the quotes around it, nor the line ends next to them."""
    stripped = text.strip()
    if not stripped.startswith(QUOTES) or is_open(text):
        return stripped
    return stripped[len(QUOTES) : -len(QUOTES)].removeprefix("\n").removesuffix("\n")


class LineReader:
    """Messages from a stream, one a line. Ctrl-C drops an open quotation; the next line is read as ever."""

    def __init__(self, lines: IO[str], *, prompt: str | None = None) -> None:
        self.is_interactive = prompt is not None
        self._lines = lines
        self._prompt = prompt
        self._is_over = False

    def read(self) -> str | None:
        text = self._next()
        while text is not None and is_open(text):
            more = self._next()
            if more is None:
                return text.strip().removeprefix(QUOTES).strip("\n")
            text += more
        return None if text is None else unquoted(text)

    def _next(self) -> str | None:
        if self._is_over:
            return None
        if self._prompt is not None:
            print(self._prompt, end="", file=sys.stderr, flush=True)
        line = self._lines.readline()
        self._is_over = not line
        return line.replace("\r\n", "\n") or None


class TerminalReader:
    """Messages typed at a terminal: Enter sends, Alt-Enter or an open quotation makes a new line."""

    is_interactive = True

    def __init__(self, history_file: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        self._prompt: PromptSession[str] = PromptSession(
            history=_history(history_file),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation="... ",
            output=create_output(stdout=sys.stderr),
            enable_history_search=False,
        )

    def read(self) -> str | None:
        try:
            text = self._prompt.prompt(PROMPT)
        except EOFError:
            return None
        return unquoted(text)


def _history(file: Path | None) -> History:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    if file is None:
        return InMemoryHistory()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        file.chmod(0o600)
    except OSError as error:
        err().warning(f"no history is kept: {error.strerror}: {file}")
        return InMemoryHistory()
    return FileHistory(str(file))


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        if is_open(event.current_buffer.text):
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt(), style="class:aborting")

    return keys


def make_reader(*, keep_history: bool) -> Reader:
    """The reader for this standard input."""
    from twofold.profiles.settings import state_dir

    if not sys.stdin.isatty():
        return LineReader(sys.stdin)
    if os.environ.get("TERM") == "dumb" or not sys.stderr.isatty():
        return LineReader(sys.stdin, prompt=PROMPT)
    return TerminalReader(state_dir() / "history" if keep_history else None)
