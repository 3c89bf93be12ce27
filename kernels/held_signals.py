"""Signals that wait while foreign code runs that would lose them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Answer Ctrl-C and its kind at the end of the block instead of inside of it.

    A native extension that runs Python code while it is loaded may clear whatever that raises, KeyboardInterrupt
    included (nanobind's does, around an import of its own): the program would go on as if nobody had asked it to stop.
    Signals that end the process without Python, and ignored ones, stay as they are.
    """
    if threading.current_thread() is not threading.main_thread():  # where Python answers no signals
        yield
        return
    handlers = {
        getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)
    }
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    arrived: list[int] = []
    for number in handlers:
        signal.signal(number, lambda number, _frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])
