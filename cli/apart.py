"""Work in a child process, so that what it loads (torch, for quantising) is gone when a session begins.

The child is a fork: it has the terminal, shows its own progress and asks its own questions. Its result or its exception
comes back through a pipe; Ctrl-C reaches both, and the parent waits until the child has cleaned up.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_GRACE_S = 0.5
_PR_SET_PDEATHSIG = 1


def can_fork() -> bool:
    """Whether a child would be safe and of use: no torch here yet, no other thread, the streams the process's own."""
    return (
        hasattr(os, "fork")
        and "torch" not in sys.modules
        and threading.active_count() == 1
        and threading.current_thread() is threading.main_thread()
        and sys.stdout is sys.__stdout__
        and sys.stderr is sys.__stderr__
    )


def run_apart(work: Callable[[], T]) -> T:
    """`work()` in a child process, or here where that cannot be.

    Raises:
        whatever `work` raises.
        EngineFailed: the child was killed.
    """
    if not can_fork():
        return work()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_child(work, writing, parent)
    os.close(writing)
    try:
        message = _wait(reading, child)
    finally:
        os.close(reading)
    result: T = _outcome(message, child)
    return result


def _be_the_child(work: Callable[[], T], writing: int, parent: int) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, _interrupt_once)
        _die_with(parent)
        try:
            message = pickle.dumps(("result", work()))
        except BaseException as error:  # noqa: BLE001 - all of it is the parent's to handle
            message = _pickled(error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        with open(writing, "wb", buffering=0) as pipe:
            view = memoryview(message)
            while view:
                view = view[pipe.write(view) :]
    finally:
        os._exit(0)


def _pickled(error: BaseException) -> bytes:
    try:
        message = pickle.dumps(("error", error))
        pickle.loads(message)
    except Exception:  # noqa: BLE001 - an exception with an odd constructor
        return pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}")))
    return message


def _interrupt_once(_signal: int, _frame: FrameType | None) -> None:
    """The terminal's Ctrl-C, or the parent's word of it: the second of both must not disturb cleaning up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _die_with(parent: int) -> None:
    """Be asked to stop when the parent is killed."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        raise KeyboardInterrupt


def _wait(reading: int, child: int) -> bytes:
    """All that the child says; an interruption is passed on to it and raised when it has ended."""
    message = b""
    interrupted: BaseException | None = None
    while True:
        try:
            if interrupted is not None and not select.select([reading], [], [], _GRACE_S)[0]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGINT)
            part = os.read(reading, 1 << 16)
        except (KeyboardInterrupt, SystemExit) as error:
            interrupted = interrupted or error
            continue
        if not part:
            break
        message += part
    while True:
        try:
            os.waitpid(child, 0)
            break
        except (KeyboardInterrupt, SystemExit) as error:
            interrupted = interrupted or error
    if interrupted is not None:
        raise interrupted
    return message


def _outcome(message: bytes, child: int) -> Any:
    from twofold.profiles.errors import EngineFailed

    if not message:
        raise EngineFailed(
            f"the process that quantises ({child}) was ended",
            hint="memory may have been short; run the same command again, it goes on where it stopped",
        )
    kind, value = pickle.loads(message)
    if kind == "error":
        raise value
    return value
