"""Which kernels the engine runs: the native module, or numpy (the same bits, far slower), announced once."""

from __future__ import annotations

import importlib
import os
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from twofold.kernels.cpu import HOW_TO_BUILD
from twofold.profiles.errors import EngineUnavailable, InvalidOption

Choice = Literal["auto", "cpu", "naive"]
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
    """The operations over the compiled module, or the reason why they cannot be had."""
    from twofold.kernels.cpu import missing_reason, native

    reason = missing_reason()
    if reason is not None:
        return None, reason
    if not hasattr(native(), "SplitLinear"):
        return None, "the compiled module is of another version"
    return importlib.import_module("twofold.kernels.cpu.ops"), None


def _configure(threads: int | None, isa: str | None) -> None:
    """Set the native pool and tier, which the process shares. `TWOFOLD_CPU_ISA` wins over a plan's tier.

    Raises:
        InvalidOption: for a tier that this machine or build lacks, or more threads than the system starts.
    """
    from twofold.kernels.cpu import native

    module = native()
    wanted = "" if isa in (None, "auto") or os.environ.get("TWOFOLD_CPU_ISA") else isa
    try:
        module.force_isa(wanted)
        module.isa()  # reads the variable
        if threads is not None and threads != module.threads():
            module.set_threads(threads)
    except RuntimeError as error:
        raise InvalidOption(
            f"the CPU kernels cannot run as asked: {error}", found=f"{threads} threads", hint="fewer --threads"
        ) from None
    except ValueError as error:
        forced = os.environ.get("TWOFOLD_CPU_ISA")
        raise InvalidOption(
            f"the CPU kernels cannot run as asked: {error}",
            found=forced or isa,
            needed=" or ".join(module.available_tiers()),
            hint="unset TWOFOLD_CPU_ISA" if forced else "plan again on this machine: twofold fit MODEL",
        ) from None


def _announce(reason: str) -> None:
    if reason not in _announced:
        _announced.add(reason)
        warnings.warn(
            f"the native kernels are missing ({reason}): numpy computes instead, the same text but many times slower; "
            f"{HOW_TO_BUILD}",
            SlowKernels,
            stacklevel=3,
        )


def choose_backend(choice: Choice = "auto", threads: int | None = None, isa: str | None = None) -> Backend:
    """The kernels to run: `auto` is native where it is there, else numpy with a warning once.

    `threads` and `isa` (a tier's name; None or "auto" leave it) set up the native kernels of this process.

    Raises:
        EngineUnavailable: when `cpu` is asked for and missing.
        InvalidOption: for a tier that this machine or build lacks.
    """
    naive = importlib.import_module("twofold.kernels.naive.ops")
    if choice == "naive":
        return Backend("naive", naive, "asked for")
    native, reason = _native()
    if native is not None:
        _configure(threads, isa)
        return Backend("cpu", native, None)
    assert reason is not None
    if choice == "cpu":
        raise EngineUnavailable(f"the native kernels cannot be used: {reason}", hint=HOW_TO_BUILD)
    _announce(reason)
    return Backend("naive", naive, reason)
