"""Which kernels the engine runs: the native module, or numpy (the same bits, far slower), announced once."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from twofold.profiles.errors import EngineUnavailable

Choice = Literal["auto", "cpu", "naive"]
HOW_TO_BUILD = "install a C++17 compiler, then: pip install --force-reinstall --no-deps ."
_announced: set[str] = set()


class SlowKernels(RuntimeWarning):
    """The native kernels are missing and numpy computes instead."""


@dataclass(frozen=True, slots=True)
class Backend:
    """`ops` has the signatures of `twofold.kernels.naive.ops`."""

    name: Literal["cpu", "naive"]
    ops: Any
    reason: str | None


def _native() -> tuple[ModuleType | None, str | None]:
    from twofold.kernels.cpu import missing_reason

    reason = missing_reason()
    if reason is not None:
        return None, reason
    try:
        return importlib.import_module("twofold.kernels.cpu.ops"), None
    except ImportError as error:
        return None, str(error)


def _announce(reason: str) -> None:
    if reason not in _announced:
        _announced.add(reason)
        warnings.warn(
            f"the native kernels are missing ({reason}): numpy computes instead, the same text but many times slower; "
            f"{HOW_TO_BUILD}",
            SlowKernels,
            stacklevel=3,
        )


def choose_backend(choice: Choice = "auto", threads: int | None = None) -> Backend:
    """The kernels to run: `auto` is native where it is there, else numpy with a warning once.

    `threads` sets the native pool, which the process shares.

    Raises:
        EngineUnavailable: when `cpu` is asked for and missing.
    """
    naive = importlib.import_module("twofold.kernels.naive.ops")
    if choice == "naive":
        return Backend("naive", naive, "asked for")
    native, reason = _native()
    if native is not None:
        if threads is not None:
            native.set_threads(threads)
        return Backend("cpu", native, None)
    assert reason is not None
    if choice == "cpu":
        raise EngineUnavailable(f"the native kernels cannot be used: {reason}", hint=HOW_TO_BUILD)
    _announce(reason)
    return Backend("naive", naive, reason)
