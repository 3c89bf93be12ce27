"""Imported runs: kept beside the shipped ones, whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from twofold.profiles.errors import InvalidProfile
from twofold.profiles.observation_store import (
    all_observations,
    import_observations,
    imported_observations,
    imported_path,
)
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


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(InvalidProfile, match="too large"):
        import_observations(path)
    assert not imported_path().exists()


@pytest.mark.parametrize(
    "text",
    [
        "NaN", "Infinity", "-1", "1e999", '"30"', "[30]", "{}", "true",
    ],
)  # fmt: skip
def test_a_rate_that_is_none_is_refused_and_nothing_is_kept(tmp_path: Path, text: str) -> None:
    good = json.dumps(asdict(replace(shipped_observations()[0], id="X1", tok_s=30.0)))
    path = tmp_path / "a.jsonl"
    path.write_text(good + "\n" + good.replace('"X1"', '"X2"').replace("30.0", text) + "\n", "utf-8")
    with pytest.raises(InvalidProfile, match="line 2"):
        import_observations(path)
    assert not imported_path().exists()


def test_an_id_that_appears_twice_in_one_file_is_refused(tmp_path: Path) -> None:
    first = replace(shipped_observations()[0], id="X1")
    with pytest.raises(InvalidProfile, match="twice"):
        import_observations(_file(tmp_path / "a.jsonl", first, replace(first, measured_mib=1)))
    assert not imported_path().exists()


@pytest.mark.parametrize("line", ['{"id": "X1", "id": "X2"}', '{"id": ' + "9" * 100_000 + "}", "\ud800"])
def test_a_line_that_is_no_honest_object_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line.encode("utf-8", "surrogatepass") + b"\n")
    with pytest.raises(InvalidProfile):
        import_observations(path)
    assert not imported_path().exists()


def test_a_key_that_appears_twice_in_one_run_is_refused(tmp_path: Path) -> None:
    text = json.dumps(asdict(replace(shipped_observations()[0], id="X1")))
    path = tmp_path / "a.jsonl"
    path.write_text(text[:-1] + ', "measured_mib": 1}\n', "utf-8")
    with pytest.raises(InvalidProfile, match="line 1"):
        import_observations(path)


def test_two_processes_at_once_keep_both(tmp_path: Path) -> None:
    import multiprocessing

    first = shipped_observations()[0]
    files = [_file(tmp_path / f"{part}.jsonl", *(replace(first, id=f"{part}{i}") for i in range(20))) for part in "ab"]
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=import_observations, args=(file,)) for file in files]
    for one in both:
        one.start()
    for one in both:
        one.join()
        assert one.exitcode == 0
    assert len(imported_observations()) == 40


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff", b"{", b"[]", b"{}"])
def test_a_file_without_a_run_is_refused_with_a_hint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidProfile) as refused:
        import_observations(path)
    assert refused.value.hint
    assert not imported_path().exists()
