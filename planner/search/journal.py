"""The default storage of a study: Optuna's journal in one file that several processes may append to.

A holder of the lock that ends, however it ends, has let go of it (`flock`); waiting for one that lives is bounded. A
last line that a crash left unfinished is cut off; anything else that is no journal is refused and left as it is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import Busy, CorruptFile
from twofold.profiles.locks import try_lock
from twofold.profiles.text import one_line

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

LOCK_SECONDS = 10.0
_POLL_SECONDS = 0.005
_MAX_BYTES = 256 << 20


class FileLock:
    """What Optuna's journal asks of a lock, over `flock`.

    Raises:
        Busy: from `acquire`, when another process holds it for longer than `wait_seconds`.
    """

    def __init__(self, path: Path, wait_seconds: float = LOCK_SECONDS) -> None:
        self._path, self._wait, self._handle = path, wait_seconds, -1

    def acquire(self) -> bool:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + self._wait
        try:
            while not try_lock(handle):
                if time.monotonic() >= deadline:
                    raise Busy(
                        f"another process keeps the study locked: {self._path}",
                        found=f"locked for {self._wait:g} s",
                        needed="a turn to write a trial",
                        hint="wait until it has finished, or stop it",
                    )
                time.sleep(_POLL_SECONDS)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return True

    def release(self) -> None:
        os.close(self._handle)
        self._handle = -1

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class JournalFile:
    """Optuna's journal backend over a file of JSON lines.

    Optuna's own keeps a lock that a killed process leaves behind for half a minute, and waits for a living one without
    end.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self._path, self._lock = path, lock
        self._read, self._offset = 0, 0

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The records from a number on; a line that is still being written is not one yet."""
        if log_number_from < self._read:
            self._read, self._offset = 0, 0
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while (line := file.readline()).endswith(b"\n"):
                record = json.loads(line)
                number, self._read, self._offset = self._read, self._read + 1, self._offset + len(line)
                if number >= log_number_from:
                    yield record

    def append_logs(self, logs: Sequence[dict[str, Any]]) -> None:
        """Append records, flushed to disk; all of them or, on a full disk, none.

        Raises:
            Busy: the file stays locked. OSError: it cannot be written.
        """
        data = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with self._lock, self._path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError as error:
                os.truncate(self._path, size)
                error.filename = str(self._path)
                raise


def journal(path: Path, wait_seconds: float = LOCK_SECONDS) -> BaseStorage:
    """Open or create the journal at `path`.

    Raises:
        CorruptFile: the file is no journal. Busy: another process keeps it locked.
        OSError: the folder or file cannot be used.
    """
    from optuna.storages import JournalStorage

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(path.name + ".lock"), wait_seconds)
    with lock:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        _check(path)
    try:
        return JournalStorage(_registered(JournalFile)(path, lock))
    except (AssertionError, KeyError, TypeError, ValueError) as error:  # what replaying odd records ends in
        raise _corrupt(path, f"{type(error).__name__}: {error}") from error


def _registered(backend: type) -> Callable[..., Any]:
    """`backend` as a subclass of Optuna's interface, which must not be imported before it is needed."""
    from optuna.storages.journal import BaseJournalBackend

    return type(backend.__name__, (backend, BaseJournalBackend), {})


def _check(path: Path) -> None:
    """Refuse what is no journal; cut off a line that was not finished."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"a file of at most {_MAX_BYTES >> 20} MiB is needed")
        whole = 0
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                record = json.loads(line)
                if not (isinstance(record, dict) and isinstance(record.get("op_code"), int)):
                    raise CorruptFile("a line that is no operation of a journal")
                whole += len(line)
        rest = path.stat().st_size - whole
        if rest and whole == 0:
            raise ValueError("no line of it is an operation of a journal")
        if rest:
            os.truncate(path, whole)
    except (ValueError, RecursionError, CorruptFile) as error:
        raise _corrupt(path, str(error)) from error


def _corrupt(path: Path, found: str) -> CorruptFile:
    return CorruptFile(
        f"the study file cannot be used: {path}",
        found=one_line(found, 160),
        needed="a journal that Optuna wrote",
        hint=f"move it away: mv {path} {path}.old",
    )
