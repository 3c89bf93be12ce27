"""Pass times in the user's state: read back as they were, and no file can break a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twofold.profiles import pass_store
from twofold.profiles.pass_store import passes_dir, read_pass_times, save_pass_times

KEY = "0123456789abcdef"
TIMES = {"verify": {1: 0.01, 5: 0.02}, "draft": {1: 0.004}}


def test_what_was_saved_is_read() -> None:
    assert read_pass_times(KEY) is None
    assert save_pass_times(KEY, TIMES) and read_pass_times(KEY) == TIMES
    assert read_pass_times("f" * 32) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "{}",
        json.dumps({"schema_version": 2} | {"verify": {"1": 1.0}, "draft": {"1": 1.0}}),
        json.dumps({"schema_version": 1, "verify": {"1": 1.0}}),
        json.dumps({"schema_version": 1, "verify": [1.0], "draft": {"1": 1.0}}),
        json.dumps({"schema_version": 1, "verify": {"2": 1.0}, "draft": {"1": 1.0}}),
        json.dumps({"schema_version": 1, "verify": {"1": 0.0}, "draft": {"1": 1.0}}),
        json.dumps({"schema_version": 1, "verify": {"1": float("nan")}, "draft": {"1": 1.0}}),
        json.dumps({"schema_version": 1, "verify": {"1": 1.0, "x": 1.0}, "draft": {"1": 1.0}}),
        json.dumps({"schema_version": 1, "verify": {"1": 1.0, "99999": 1.0}, "draft": {"1": 1.0}}),
        "[" * 10_000,
        " " * 100_000,
    ],
)
def test_a_damaged_file_counts_for_nothing(content: str) -> None:
    passes_dir().mkdir(parents=True)
    (passes_dir() / f"{KEY}.json").write_text(content)
    assert read_pass_times(KEY) is None
    assert save_pass_times(KEY, TIMES) and read_pass_times(KEY) == TIMES


def test_few_files_stay_and_a_folder_that_cannot_be_written_is_no_error(
    monkeypatch: pytest.MonkeyPatch, isolated_home: Path
) -> None:
    monkeypatch.setattr(pass_store, "MAX_FILES", 2)
    for i in range(4):
        save_pass_times(f"{i:016x}", TIMES)
    assert len(list(passes_dir().glob("*.json"))) == 2
    monkeypatch.setenv("TWOFOLD_HOME", str(isolated_home / "a file"))
    (isolated_home / "a file").write_text("")
    assert not save_pass_times(KEY, TIMES) and read_pass_times(KEY) is None
