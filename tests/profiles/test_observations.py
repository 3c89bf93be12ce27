"""The reader of reported runs: the shipped file, and lines that do not follow the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twofold.profiles.errors import InvalidProfile
from twofold.profiles.observations import read_observations, shipped_observations

ROW = {
    "id": "X1", "model": "m", "weights": "", "gpu": "RTX 3090", "vram_total_mib": "24576", "ctx": 8192, "kv": "f16",
    "spec_n": None, "outcome": "fit", "measured_mib": 18000, "tok_s": 30.5, "engine": "e", "source": "s",
    "note": "", "arch": "a",
}  # fmt: skip


def _read(tmp_path: Path, *lines: str) -> Any:
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return read_observations(path)


def test_the_shipped_file_is_valid() -> None:
    shipped = shipped_observations()
    assert len(shipped) == 57
    first = next(row for row in shipped if row.id == "A01")
    assert (first.ctx, first.kv, first.measured_mib, first.spec_n) == (131072, "q4_0", 18842, None)


def test_a_row_is_read(tmp_path: Path) -> None:
    (row,) = _read(tmp_path, json.dumps(ROW))
    assert row.tok_s == 30.5 and row.spec_n is None


@pytest.mark.parametrize(
    "changes",
    [
        {"ctx": -1}, {"ctx": "8K"}, {"ctx": True}, {"measured_mib": 1.5}, {"measured_mib": 10**12}, {"tok_s": -1},
        {"tok_s": float("nan")}, {"tok_s": 1e300}, {"tok_s": False}, {"model": ""}, {"source": None}, {"note": "a\x1b"},
        {"note": "x" * 1025}, {"surplus": 1}, {"spec_n": 5000},
    ],
)  # fmt: skip
def test_a_bad_field_is_refused_with_its_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidProfile, match="line 2") as refused:
        _read(tmp_path, json.dumps(ROW), json.dumps(ROW | {"id": "X2"} | changes))
    assert refused.value.needed


@pytest.mark.parametrize("line", ["{", "[]", "null", "{}", "[" * 100_000])
def test_a_line_of_something_else_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidProfile, match="line 3"):
        _read(tmp_path, json.dumps(ROW), "", line)


def test_an_id_appears_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidProfile, match="twice"):
        _read(tmp_path, json.dumps(ROW), json.dumps(ROW))
