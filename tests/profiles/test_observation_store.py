"""Imported runs: kept beside the shipped ones, whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from twofold.profiles.errors import InvalidProfile
from twofold.profiles.observation_store import all_observations, import_observations, imported_observations
from twofold.profiles.observations import Observation, shipped_observations


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path / "home"))


def _file(path: Path, *rows: Observation) -> Path:
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), "utf-8")
    return path


def test_runs_are_kept_once_and_replaced_by_their_id(tmp_path: Path) -> None:
    first = replace(shipped_observations()[0], id="X1")
    assert import_observations(_file(tmp_path / "a.jsonl", first)) == (1, 0)
    assert import_observations(_file(tmp_path / "a.jsonl", first)) == (0, 0)
    changed = replace(first, measured_mib=1234)
    assert import_observations(_file(tmp_path / "b.jsonl", changed)) == (0, 1)
    assert imported_observations() == (changed,)
    assert len(all_observations()) == len(shipped_observations()) + 1


def test_an_imported_run_replaces_a_shipped_one(tmp_path: Path) -> None:
    mine = replace(shipped_observations()[0], measured_mib=1)
    import_observations(_file(tmp_path / "a.jsonl", mine))
    assert next(one for one in all_observations() if one.id == mine.id) == mine
    assert len(all_observations()) == len(shipped_observations())


def test_a_bad_line_keeps_what_was_there(tmp_path: Path) -> None:
    first = replace(shipped_observations()[0], id="X1")
    import_observations(_file(tmp_path / "a.jsonl", first))
    bad = _file(tmp_path / "b.jsonl", replace(first, id="X2"))
    bad.write_text(bad.read_text("utf-8") + "{}\n", "utf-8")
    with pytest.raises(InvalidProfile, match="line 2"):
        import_observations(bad)
    assert imported_observations() == (first,)
