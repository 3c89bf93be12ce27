"""A lock between processes on one machine: `flock` on a file, released by the system however the holder ends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from twofold.profiles.errors import Busy

_POLL_SECONDS = 0.2


@contextlib.contextmanager
def exclusive(
    path: Path, what: str, *, wait_seconds: float = 0.0, on_wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the lock file `path` (created, never removed: removing would let two holders in).

    Args:
        what: the work that is protected, for messages ("fetching smollm2").
        wait_seconds: how long to wait for another holder.
        on_wait: told once when waiting starts.

    Raises:
        Busy: another process still holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait_seconds
        told = False
        while not try_lock(handle):
            if time.monotonic() >= deadline:
                raise Busy(
                    f"another process is {what}",
                    found=f"pid {_holder(handle)}",
                    hint="wait until it has finished, or stop it",
                )
            if on_wait is not None and not told:
                on_wait(f"waiting for another process that is {what} (pid {_holder(handle)})")
            told = True
            time.sleep(_POLL_SECONDS)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Take the lock of an open file; whether nobody else holds it."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(handle: int) -> str:
    text = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    return text if text.isdigit() else "unknown"


def is_held(path: Path) -> bool:
    """Whether some process holds the lock file right now."""
    if not path.exists():
        return False
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return not try_lock(handle)
    finally:
        os.close(handle)
