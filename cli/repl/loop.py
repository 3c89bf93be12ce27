"""The conversation at a terminal or from a script: read, answer, show, until the end of input."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from twofold.cli.errors import explain
from twofold.cli.output import err
from twofold.cli.repl.commands import Leave, as_message, run_command
from twofold.cli.repl.reader import Reader
from twofold.cli.repl.screen import Screen
from twofold.cli.repl.status import PrefillProgress, answer_line, warn_of_rereads

if TYPE_CHECKING:
    from twofold.engine.session import Session


@contextmanager
def stopping_on_interrupt(session: Session) -> Iterator[None]:
    """The first Ctrl-C inside asks the answer to stop after the step in progress; a second one interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        session.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def answer(session: Session, text: str, screen: Screen) -> None:
    """Ask and show one answer, with the line of figures after it."""
    progress = PrefillProgress()
    try:
        with stopping_on_interrupt(session):
            for piece in session.ask(text, progress):
                screen.show(piece)
    finally:
        progress.clear()
        screen.end()
    if session.last is not None:
        err().prose(answer_line(session.last, session.engine.plan), style="dim")
    warn_of_rereads(session)


def converse(session: Session, reader: Reader, screen: Screen) -> None:
    """Answer until the input ends, `/bye`, or Ctrl-C twice at an empty prompt.

    At a terminal an error is shown and the conversation goes on; in a script it ends it.

    Raises:
        TwofoldError, OSError: from a script.
        KeyboardInterrupt: Ctrl-C in a script.
    """
    warned = False
    while True:
        try:
            text = reader.read()
            if text is None:
                return
            warned = False
            if text:
                _turn(session, text, screen, reader.is_interactive)
        except Leave:
            return
        except KeyboardInterrupt:
            if not reader.is_interactive:
                raise
            if warned:
                return
            warned = True
            err().line("Ctrl-C again, Ctrl-D or /bye leaves")
        except Exception as error:
            known = explain(error)
            if known is None or not reader.is_interactive:
                raise
            err().error(known)


def _turn(session: Session, text: str, screen: Screen, is_interactive: bool) -> None:
    message = as_message(text)
    if message is None:
        run_command(session, text)
    else:
        answer(session, message, screen)
        if session.last is not None and session.last.finish == "interrupted" and not is_interactive:
            raise KeyboardInterrupt
