"""A profile as the bytes that are shared: only what the schema allows, and only after the last look at every value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from twofold.profiles.activations import USUAL
from twofold.profiles.errors import InvalidProfile
from twofold.profiles.hardware import RUN_FIELDS_2, HardwareProfile, ObservedRun, needs_version
from twofold.profiles.identity import personal_words
from twofold.profiles.importing import MAX_BYTES, parse_profile
from twofold.profiles.redaction import refuse_personal, scan

MAX_RUNS = 64
_OPTIONAL = ("low", "high", "n", "spread")

# Kernel files that every machine has and that sources name; in words, so that no path is shared.
_KERNEL_FILE = re.compile(r"(?<![\w./])/proc/(cpuinfo|meminfo|stat|version)\b(?!/)")


def document_of(profile: HardwareProfile) -> dict[str, Any]:
    """The profile as a JSON object; absent optional parts of figures are left out."""
    compact = _compact(profile.model_dump(mode="json"))
    assert isinstance(compact, dict)
    for run in compact["observed"]:
        for name in RUN_FIELDS_2:
            if run[name] is None:
                del run[name]
    for kernel in compact["kernels"]:
        if kernel["activations"] == USUAL:  # what version 1 means
            del kernel["activations"]
    return compact


def to_bytes(document: dict[str, Any]) -> bytes:
    """The canonical file: UTF-8, two blanks of indent, a final line break."""
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def with_runs(
    profile: HardwareProfile,
    runs: Iterable[ObservedRun],
    *,
    words: Iterable[str] | None = None,
    allowed: Iterable[str] = (),
) -> tuple[HardwareProfile, int]:
    """`profile` with observed runs, and how many were left out because a text in them could identify somebody.

    A run's texts come from a model's name, which is its owner's choice; a profile is worth sharing without it.
    """
    names = personal_words() if words is None else tuple(words)
    excused, everything = tuple(allowed), tuple(runs)
    harmless = tuple(run for run in everything if not scan(run.model_dump(mode="json"), names, excused))
    observed = (*profile.observed, *harmless[-MAX_RUNS:])
    version = max(profile.schema_version, needs_version(observed, profile.kernels))
    checked = HardwareProfile.model_validate(
        profile.model_dump() | {"observed": [run.model_dump() for run in observed], "schema_version": version}
    )
    return checked, len(everything) - len(harmless)


def export_bytes(profile: HardwareProfile, *, words: Iterable[str] | None = None, allowed: Iterable[str] = ()) -> bytes:
    """What `twofold profile export` writes.

    `words` are the names to refuse (None: this machine's and user's), `allowed` those that the user declares harmless.

    Raises:
        UnsafeToShare: when a value could identify a person or machine.
        InvalidProfile: when the result would not be importable.
    """
    document = in_words(document_of(profile))
    refuse_personal(document, personal_words() if words is None else words, allowed)
    data = to_bytes(document)
    if len(data) > MAX_BYTES:
        raise InvalidProfile("the profile is too large to share", found=f"{len(data):,} bytes", needed=f"{MAX_BYTES:,}")
    parse_profile(data, "the export")
    return data


def summary(profile: HardwareProfile) -> str:
    """One line: what a shared profile contains."""
    parts = ["processor", "memory", _count(len(profile.gpus), "graphics card"), "system family"]
    parts += [_count(len(profile.kernels), "kernel timing")] if profile.kernels else []
    parts += [_count(len(profile.observed), "observed run")] if profile.observed else []
    return (
        f"tells of: {', '.join(parts)}, day of capture; "
        "and no user or host names, paths, serial numbers or addresses: it can be posted"
    )


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _compact(value: Any) -> Any:
    if isinstance(value, dict):
        is_figure = "source" in value and "by" in value
        return {
            key: _compact(item) for key, item in value.items() if not (is_figure and key in _OPTIONAL and item is None)
        }
    if isinstance(value, list):
        return [_compact(item) for item in value]
    return value


def in_words(value: Any) -> Any:
    """Kernel files, which every machine has, named without a path."""
    if isinstance(value, str):
        return _KERNEL_FILE.sub(r"procfs \1", value)
    if isinstance(value, dict):
        return {key: in_words(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_words(item) for item in value]
    return value
