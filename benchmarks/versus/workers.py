"""Engines in processes of their own, of which one works while the others are parked in a read.

Two thread pools in one process would fight for the same cores: OpenMP's threads spin for a while after each loop, and
so do twofold's. Each process also counts the CPU time that it used while it was parked, so that a run shows whether
the waiting engine disturbed the working one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from twofold.profiles.errors import EngineFailed, TwofoldError

THREAD_VARIABLES = ("OMP_", "GOMP_", "KMP_", "GGML_", "LLAMA_", "MKL_NUM", "OPENBLAS_NUM")
"""Variables that change how an engine runs: the workers do not inherit them."""
_PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Parked:
    """What a process used while it had nothing to do."""

    cpu_seconds: float
    wall_seconds: float

    @property
    def share(self) -> float:
        """Cores that were busy on average; 0 before any waiting."""
        return self.cpu_seconds / self.wall_seconds if self.wall_seconds > 0 else 0.0


class Worker:
    """An object in a process of its own.

    Args:
        name: of the engine, for messages.
        make: a class or function that can be imported; called with `arguments` in the process.

    Raises:
        TwofoldError: what `make` raised; EngineFailed for any other error, or a process that died.
    """

    def __init__(self, name: str, make: Callable[..., Any], /, **arguments: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, name, make, arguments), daemon=True)
        with _plain_environment():
            self._process.start()
        theirs.close()
        self._receive()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object and wait for what it returns."""
        try:
            self._connection.send((method, arguments))
        except OSError:
            raise self._died() from None
        return self._receive()

    def parked(self) -> Parked:
        """CPU and wall time of all waiting until now."""
        return Parked(*self.ask(_PARKED))

    def close(self) -> None:
        """End the process; safe to call twice."""
        with suppress(OSError):
            self._connection.close()
        self._process.join(timeout=2)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()

    def _receive(self) -> Any:
        try:
            is_good, value = self._connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if not is_good:
            raise value
        return value

    def _died(self) -> EngineFailed:
        self._process.join(timeout=2)
        return EngineFailed(
            f"the process of {self.name} ended while it was working",
            found=f"exit code {self._process.exitcode}",
            hint="a negative code is a signal: -9 is often too little memory",
        )


@contextmanager
def _plain_environment() -> Iterator[None]:
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(THREAD_VARIABLES)}
    try:
        yield
    finally:
        os.environ.update(taken)


def _serve(connection: Connection, name: str, make: Callable[..., Any], arguments: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C and closes the pipe
    try:
        served = make(**arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        connection.send((False, _portable(name, error)))
        return
    parked_cpu = parked_wall = 0.0
    connection.send((True, None))
    while True:
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            method, parameters = connection.recv()
        except (EOFError, OSError):
            return
        parked_cpu += time.process_time() - cpu
        parked_wall += time.perf_counter() - wall
        if method == _PARKED:
            connection.send((True, (parked_cpu, parked_wall)))
            continue
        try:
            reply = (True, getattr(served, method)(*parameters))
        except Exception as error:  # noqa: BLE001
            reply = (False, _portable(name, error))
        connection.send(reply)


def _portable(name: str, error: Exception) -> TwofoldError:
    if isinstance(error, TwofoldError):
        return error
    return EngineFailed(f"{name} failed: {type(error).__name__}: {error}")
