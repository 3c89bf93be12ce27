"""Reported runs that a user imported, beside those that ship: one JSONL file in the data folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from twofold.profiles.errors import InvalidProfile
from twofold.profiles.files import write_atomically
from twofold.profiles.locks import exclusive
from twofold.profiles.observations import HINT, Observation, read_observations, shipped_observations
from twofold.profiles.settings import data_dir


def imported_path() -> Path:
    """Where imported runs are kept."""
    return data_dir() / "observations.jsonl"


def imported_observations() -> tuple[Observation, ...]:
    """The imported runs, none where nothing was imported.

    Raises:
        InvalidProfile: when the file was damaged.
    """
    return read_observations(imported_path()) if imported_path().exists() else ()


def all_observations() -> tuple[Observation, ...]:
    """Shipped and imported runs; an imported one replaces a shipped one of the same id."""
    rows = {one.id: one for one in shipped_observations()}
    rows |= {one.id: one for one in imported_observations()}
    return tuple(rows.values())


def import_observations(path: Path) -> tuple[int, int]:
    """Keep the runs of a JSONL file; returns how many were new, and how many replaced one of the same id.

    Raises:
        InvalidProfile: when there is no run, or a line does not follow the format; nothing is kept then.
    """
    new = read_observations(path)
    if not new:
        raise InvalidProfile(f"{path.name} holds no runs", found="no line", needed="one run a line", hint=HINT)
    lock = imported_path().with_suffix(".lock")
    with exclusive(lock, "importing reported runs", wait_seconds=10):
        kept = {one.id: one for one in imported_observations()}
        replaced = sum(kept.get(one.id, one) != one for one in new)
        added = sum(one.id not in kept for one in new)
        kept |= {one.id: one for one in new}
        lines = [json.dumps(asdict(one), ensure_ascii=False) for one in kept.values()]
        write_atomically(imported_path(), "\n".join(lines) + "\n")
    return added, replaced
