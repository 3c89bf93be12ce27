"""Native CPU implementation of the kernels, with the reason where it is missing.

`native()` returns the compiled module or raises `NativeMissing`; `missing_reason()` says why without raising.
Importing this package never fails, so planning works on machines without a compiler; only with TWOFOLD_REQUIRE_NATIVE=1
in the environment (CI) is a missing module an ImportError.
"""

from __future__ import annotations

import os
from types import ModuleType

from twofold.kernels.held_signals import held_signals

HOW_TO_BUILD = "install a C++17 compiler, then: pip install --force-reinstall --no-deps ."
"""What a person does about a missing native module."""

_module: ModuleType | None = None
_reason: str | None = None

try:
    with held_signals():
        from twofold.kernels.cpu import _cpu

    _module = _cpu
except ImportError as error:  # a pure-Python wheel, or a binary for another interpreter or libc
    if os.environ.get("TWOFOLD_REQUIRE_NATIVE") == "1":
        raise
    _reason = str(error)


class NativeMissing(RuntimeError):
    """The compiled module cannot be loaded; the message is the loader's own reason."""


def missing_reason() -> str | None:
    """Why the native module is absent, or None when it is there."""
    return _reason


def native() -> ModuleType:
    """The compiled module.

    Raises:
        NativeMissing: when it was not built or cannot be loaded.
    """
    if _module is None:
        raise NativeMissing(_reason or "not built")
    return _module
