"""The signals that end a program: none leaves a traceback or half a file, and none is lost."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_STOPPED_BY_SIGNAL = 128
_AGAIN_S = 0.01
"""Until a lost signal is sent again: by then the finaliser that lost it has returned."""


@contextlib.contextmanager
def stop_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the program, so that files written aside are removed and locks are given back."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [getattr(signal, name) for name in names]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    for number in ours:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number in ours:
            signal.signal(number, before[number])


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(_STOPPED_BY_SIGNAL + number)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Send a signal again that arrived in a finaliser, where Python can only print what is raised.

    An import runs such finalisers (its locks' weak references), so a Ctrl-C in a program's first moments meets them.
    """
    if isinstance(lost.exc_value, KeyboardInterrupt):
        number = int(signal.SIGINT)
    elif isinstance(lost.exc_value, SystemExit) and isinstance(lost.exc_value.code, int):
        number = lost.exc_value.code - _STOPPED_BY_SIGNAL
    else:
        number = 0
    if number <= 0:
        sys.__unraisablehook__(lost)
        return
    threading.Timer(_AGAIN_S, signal.raise_signal, [number]).start()
