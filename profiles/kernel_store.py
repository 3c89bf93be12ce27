"""Kernel timings of this machine, kept so that a plan's seconds are computed from what was measured here.

One file for each processor and native module in the state folder: another build, another processor or another set of
instructions reads nothing of it. A file that cannot be used counts for nothing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import TwofoldError
from twofold.profiles.files import file_sha256, write_atomically
from twofold.profiles.locks import exclusive
from twofold.profiles.settings import state_dir

if TYPE_CHECKING:
    from twofold.profiles.hardware import KernelTiming

SCHEMA_VERSION = 1
MAX_FILES = 16
MAX_TIMINGS = 4096
"""As many as a profile may hold; the newest are kept."""
_MAX_BYTES = 8 << 20


def kernels_dir() -> Path:
    """The folder of the files."""
    return state_dir() / "kernels"


@functools.cache
def machine_key() -> str | None:
    """Processor, its instruction sets, and the native module's bytes, as one digest; None without a native module."""
    from twofold.kernels.cpu import missing_reason, native

    if missing_reason() is not None:
        return None
    module = native()
    words = (
        platform.machine(),
        _processor(),
        sorted(module.available_tiers()),
        file_sha256(Path(str(module.__file__))),
    )
    return hashlib.sha256(repr(words).encode()).hexdigest()[:32]


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def own_timings() -> tuple[KernelTiming, ...]:
    """What `twofold bench MODEL --kernels` measured on this processor with this build; nothing where it never did."""
    key = machine_key()
    return () if key is None else _read(kernels_dir() / f"{key}.json")


def _read(path: Path) -> tuple[KernelTiming, ...]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return ()
        document = json.loads(path.read_text("utf-8"))
        if document["schema_version"] != SCHEMA_VERSION:
            return ()
        return _checked(document["kernels"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()


def _checked(rows: Any) -> tuple[KernelTiming, ...]:
    from pydantic import TypeAdapter

    from twofold.profiles.hardware import KernelTiming

    found = TypeAdapter(tuple[KernelTiming, ...]).validate_json(json.dumps(rows), strict=True)
    if len(found) > MAX_TIMINGS or not all(_is_usable(one) for one in found):
        raise ValueError("timings are measured and above zero")
    return found


def _is_usable(timing: KernelTiming) -> bool:
    figure = timing.latency_us
    return figure.source == "measured" and figure.is_number and figure.number > 0


def _identity(timing: KernelTiming) -> tuple[object, ...]:
    return timing.op, timing.shape, timing.bits, timing.rows, timing.isa, timing.threads, timing.activations


def save_timings(timings: Iterable[KernelTiming]) -> bool:
    """Add timings to this machine's, in place of older ones of the same kernel; whether that was possible.

    Raises:
        ValueError: a timing that was not measured, or is not above zero.
    """
    new = tuple(timings)
    if not all(_is_usable(one) for one in new):
        raise ValueError("only what was measured here is kept")
    key = machine_key()
    if key is None:
        return False
    path = kernels_dir() / f"{key}.json"
    try:
        with exclusive(kernels_dir() / ".lock", "keeping kernel timings", wait_seconds=2.0):
            merged = {_identity(one): one for one in _read(path)}
            for one in new:
                merged.pop(_identity(one), None)
                merged[_identity(one)] = one
            kept = list(merged.values())[-MAX_TIMINGS:]
            _write(path, kept)
            _drop_oldest()
    except (OSError, TwofoldError):
        return False
    return True


def _write(path: Path, timings: list[KernelTiming]) -> None:
    rows = [
        one.model_dump(mode="json", exclude={"latency_us"}) | {"latency_us": one.latency_us.to_json()}
        for one in timings
    ]
    document = {"schema_version": SCHEMA_VERSION, "kernels": rows}
    write_atomically(path, json.dumps(document, separators=(",", ":")) + "\n", mode=0o600)


def _drop_oldest() -> None:
    files = sorted(kernels_dir().glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in files[: max(0, len(files) - MAX_FILES)]:
        path.unlink(missing_ok=True)
