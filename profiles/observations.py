"""Runs that others reported in public: what a model really took on a card. Advice for planning, never measured here."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from twofold.profiles.errors import InvalidProfile
from twofold.profiles.text import is_one_line, one_line

MAX_BYTES = 8 << 20
HINT = "one JSON object a line: docs/profiles.md lists its fields"
_SHIPPED = Path(__file__).parent / "data" / "reported_peaks.jsonl"


@dataclass(frozen=True, slots=True)
class Observation:
    """One reported run, in the reporter's words where a field is text.

    `vram_total_mib` may qualify its number (`31605 free`), `spec_n` is the depth of the draft (None = none), `outcome`
    says whether it ran, `measured_mib` is the VRAM in use (None = not reported), `source` where it was published.
    """

    id: str
    model: str
    weights: str
    gpu: str
    vram_total_mib: str
    ctx: int | None
    kv: str
    spec_n: int | None
    outcome: str
    measured_mib: int | None
    tok_s: float | None
    engine: str
    source: str
    note: str
    arch: str


_TEXTS = ("id", "model", "weights", "gpu", "vram_total_mib", "kv", "outcome", "engine", "source", "note", "arch")
_NEEDED = ("id", "model", "outcome", "source")
# Whole numbers with their largest plausible value.
_WHOLE = {"ctx": 1 << 30, "spec_n": 1024, "measured_mib": 1 << 26}
_NAMES = frozenset(field.name for field in fields(Observation))


def shipped_observations() -> tuple[Observation, ...]:
    """The public reports that ship with twofold."""
    return read_observations(_SHIPPED)


def read_observations(path: Path) -> tuple[Observation, ...]:
    """The observations in a JSONL file, one object a line.

    Raises:
        InvalidProfile: naming the line and the field that does not follow the format.
    """
    if path.stat().st_size > MAX_BYTES:
        raise InvalidProfile(f"{path.name} is too large", needed=f"at most {MAX_BYTES:,} bytes", hint=HINT)
    try:
        lines = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidProfile(
            f"{path.name} is not text", found=f"no UTF-8 at byte {error.start}", needed="UTF-8", hint=HINT
        ) from error
    found = [_parse(line, f"{path.name}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    seen: set[str] = set()
    for observation in found:
        if observation.id in seen:
            raise InvalidProfile(
                f"{path.name}: the id {one_line(observation.id, 80)!r} appears twice", needed="each id once", hint=HINT
            )
        seen.add(observation.id)
    return tuple(found)


def _parse(line: str, where: str) -> Observation:
    try:
        row = json.loads(line, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise InvalidProfile(f"{where} is not JSON", found=one_line(str(error), 120), hint=HINT) from error
    if not isinstance(row, dict):
        raise InvalidProfile(f"{where} is not an observation", needed="a JSON object", hint=HINT)
    missing, extra = sorted(_NAMES - row.keys()), sorted(row.keys() - _NAMES)
    if missing or extra:
        found = f"missing {', '.join(missing)}" if missing else f"unknown {one_line(', '.join(extra), 80)}"
        needed = ", ".join(sorted(_NAMES))
        raise InvalidProfile(f"{where} is not an observation", found=found, needed=needed, hint=HINT)
    for name in _TEXTS:
        _check(
            isinstance(row[name], str) and len(row[name]) <= 1024 and is_one_line(row[name]), where, name, "text", row
        )
    for name in _NEEDED:
        _check(bool(row[name]), where, name, "text that is not empty", row)
    for name, most in _WHOLE.items():
        _check(_is_whole(row[name], most), where, name, f"null or a whole number from 0 to {most}", row)
    _check(_is_rate(row["tok_s"]), where, "tok_s", "null or a number from 0 to 1e6", row)
    return Observation(**row)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found


def _check(holds: bool, where: str, name: str, needed: str, row: dict[str, Any]) -> None:
    if not holds:
        found = one_line(repr(row[name]), 80)
        raise InvalidProfile(f"{where}: {name} is not valid", found=found, needed=needed, hint=HINT)


def _is_whole(value: Any, most: int) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most)


def _is_rate(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= 1e6
