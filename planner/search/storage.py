"""Storages that several machines share, by URL: Optuna's own, opened within bounded time.

No error shows a password. Nothing that a storage holds is unpickled: Optuna's Redis backend loads snapshots that way,
this one reads the journal's records only.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from twofold.planner.search.journal import _registered
from twofold.profiles.errors import InvalidOption, TwofoldError
from twofold.profiles.text import one_line

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

T = TypeVar("T")
OPEN_SECONDS = 10.0
CONNECT_SECONDS = 5
_DRIVERS = {
    "postgresql": "pip install 'psycopg[binary]'",
    "mysql": "pip install mysqlclient, or PyMySQL and mysql+pymysql://…",
    "mariadb": "pip install PyMySQL, and mariadb+pymysql://…",
    "redis": "pip install redis",
    "rediss": "pip install redis",
}
_OTHERWISE = "--storage sqlite:///study.db, or leave it out"
_KNOWN = "postgresql://…, mysql://…, redis://… or sqlite:///FILE"
_CONNECT_ARGUMENTS: dict[str, dict[str, object]] = {
    "postgresql": {"connect_timeout": CONNECT_SECONDS},
    "mysql": {"connect_timeout": CONNECT_SECONDS},
    "mariadb": {"connect_timeout": CONNECT_SECONDS},
    "sqlite": {"timeout": CONNECT_SECONDS},
}
# Two machines that make a new study's tables at once hinder each other, once; and a server that has just been started
# says so.
_PASSING = re.compile(r"already exists|duplicate key|UNIQUE constraint|database is locked|starting up", re.IGNORECASE)
_ATTEMPTS = 6
_PAUSE_SECONDS = 0.5
_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_SQLITE_OPTIONS = {"timeout", "check_same_thread", "cached_statements"}


def check_url(url: str) -> None:
    """Refuse what can be no shared storage before anything is computed or opened.

    Raises:
        InvalidOption: no URL, or SQLite without a file or with options that it does not know.
    """
    scheme = _scheme(url)
    if not scheme:
        raise _unusable(url, "no URL", _KNOWN)
    if scheme != "sqlite":
        return
    place, _, query = url.partition("://")[2].partition("?")
    if not place.strip("/") or place.startswith("/:memory:"):
        raise _unusable(url, "no file: the study would be gone with the command", "sqlite:///FILE")
    if {option for option, _ in parse_qsl(query, keep_blank_values=True)} - _SQLITE_OPTIONS:
        needed = f"none, or {', '.join(sorted(_SQLITE_OPTIONS))}"
        raise _unusable(url, "options that SQLite does not know", needed)


def _unusable(url: str, found: str, needed: str, hint: str = _OTHERWISE) -> InvalidOption:
    return InvalidOption(f"the study's storage cannot be used: {shown(url)}", found=found, needed=needed, hint=hint)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _scheme(url: str) -> str:
    return url.partition("://")[0].partition("+")[0].lower() if "://" in url else ""


def storage_from_url(url: str, seconds: float = OPEN_SECONDS) -> BaseStorage:
    """A storage that several machines share: `postgresql://…`, `mysql://…`, `sqlite:///…` or `redis://…`.

    Raises:
        InvalidOption: when it does not answer within `seconds`, or its driver is not installed.
    """
    check_url(url)
    scheme = _scheme(url)
    with _explained(url, scheme):
        return _bounded(lambda: _open(url, scheme), seconds)


def _open(url: str, scheme: str) -> BaseStorage:
    from optuna.storages import JournalStorage, RDBStorage, get_storage

    if scheme in ("redis", "rediss"):
        return JournalStorage(_registered(RedisJournal)(url))
    arguments = _CONNECT_ARGUMENTS.get(scheme, {})
    attempts_left = _ATTEMPTS
    while True:
        try:
            storage: BaseStorage = get_storage(RDBStorage(url, engine_kwargs={"connect_args": arguments}))
            return storage
        except Exception as error:
            if not attempts_left or not _PASSING.search(str(error)):
                raise
        attempts_left -= 1
        time.sleep(_PAUSE_SECONDS)


class RedisJournal:
    """Optuna's journal in Redis, under the keys that Optuna's own backend uses; every command is bounded in time.

    Raises:
        redis.exceptions.RedisError: it does not answer. ValueError: a record is missing.
    """

    def __init__(self, url: str) -> None:
        import redis

        self._redis = redis.Redis.from_url(
            url, socket_timeout=CONNECT_SECONDS, socket_connect_timeout=CONNECT_SECONDS, protocol=2
        )
        self._redis.ping()

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        last = self._redis.get(":log_number")
        if last is None:
            return
        for start in range(log_number_from, int(last) + 1, 256):
            numbers = range(start, min(start + 256, int(last) + 1))
            for number, record in zip(numbers, self._redis.mget([f":log:{n}" for n in numbers]), strict=True):
                if record is None:
                    raise ValueError(f"record {number} of the journal is missing")
                yield json.loads(record)

    def append_logs(self, logs: Sequence[dict[str, Any]]) -> None:
        self._redis.setnx(":log_number", -1)
        script = "local i = redis.call('incr', ':log_number') redis.call('set', ':log:' .. i, ARGV[1])"
        for log in logs:
            self._redis.eval(script, 0, json.dumps(log))


def _bounded(open_it: Callable[[], T], seconds: float) -> T:
    """`open_it()`, given up after `seconds`: resolving a name, or a server that accepts and then says nothing, has no
    limit of its own. The thread that waits is left behind; it ends with the process.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(open_it())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return found[0]


@contextlib.contextmanager
def _explained(url: str, scheme: str) -> Iterator[None]:
    try:
        yield
    except TwofoldError:
        raise
    except Exception as error:  # noqa: BLE001 - drivers have errors of their own
        name = type(error).__name__
        if isinstance(error, ImportError):
            needed, hint = "a driver for it", _DRIVERS.get(scheme, "install its driver")
        elif name in ("NoSuchModuleError", "ArgumentError") or not scheme:
            needed, hint = _KNOWN, _OTHERWISE
        else:
            needed, hint = "a storage that answers", "start it, correct the URL, or leave out --storage"
        found = without_secrets(_first_line(error), url)
        raise _unusable(url, one_line(found, 160), needed, hint) from None


@contextlib.contextmanager
def storage_failures(where: str) -> Iterator[None]:
    """Turn what a storage raises while a study runs into an error that can be acted on.

    Raises:
        TwofoldError: it stopped answering, or what it holds cannot be read.
        OSError, KeyboardInterrupt: as they came.
    """
    try:
        yield
    except TwofoldError:
        raise
    except Exception as raised:
        error = _cause(raised)
        if isinstance(error, TwofoldError | OSError | KeyboardInterrupt):
            raise error from None
        if not _is_storage(error):
            raise
        raise TwofoldError(
            f"the study's storage failed: {where}",
            found=one_line(re.sub(r"://[^@\s]*@", "://***@", _first_line(error)), 160),
            needed="a storage that answers until the end",
            hint="what was tried so far is kept there: run the same command again when it answers",
        ) from None


def _is_storage(error: BaseException) -> bool:
    room = type(error).__module__.partition(".")[0]
    return room in ("optuna", "sqlalchemy", "redis", "psycopg", "psycopg2", "pymysql", "MySQLdb", "sqlite3")


def _cause(error: BaseException) -> BaseException:
    """What went wrong first: Optuna's clean-up after an error of its storage stumbles, and hides it."""
    found = error
    while isinstance(found, UnboundLocalError | AssertionError) and found.__context__ is not None:
        found = found.__context__
    return found


def shown(url: str) -> str:
    """The URL without password and options, as far as it can be read as one."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return f"{url.partition('://')[0][:20]}://…"
    if not parts.scheme:
        return one_line(url, 60) if "@" not in url and "=" not in url else "…"
    user = f"{parts.username}:***@" if parts.password is not None else f"{parts.username}@" if parts.username else ""
    return one_line(f"{parts.scheme}://{user}{host}{port}{parts.path}", 120)


def without_secrets(text: str, url: str) -> str:
    """`text` without the URL's passwords, however they are written."""
    text = text.replace(url, shown(url))
    for secret in _secrets(url):
        text = text.replace(secret, "***") if len(secret) > 2 else text.partition(":")[0]
    return re.sub(r"(://[^:/@\s]*):[^@/\s]+@", r"\1:***@", text)


def _secrets(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        password = parts.password
    except ValueError:
        return {url.partition("://")[2]} - {""}
    found = {value for name, value in options if _SECRET.search(name)}
    found |= {password, unquote(password)} if password else set()
    return found - {""}
