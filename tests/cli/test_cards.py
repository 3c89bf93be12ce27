"""`twofold cards`: the table, one card, and names that mean none."""

from __future__ import annotations

import json

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_app(lambda: build_app()(["cards", *arguments]))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_table_names_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys)
    assert code == 0
    assert len(out.splitlines()) > 60
    assert "24564 MiB" in out and "planning only" in out and "All figures are reported" in out


def test_one_card_and_its_variants(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "4060 ti")
    assert code == 0 and "RTX 4060 Ti 16GB" in out and "RTX 4060 Ti 8GB" in out and "4090" not in out
    code, out, _ = _run(capsys, "rx 7900 xtx")
    assert "NVIDIA CUDA cards" in out


def test_json_has_a_source_for_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "--format", "json")
    document = json.loads(out)
    assert code == 0 and document["schema_version"] == 1 and len(document["cards"]) >= 60
    for card in document["cards"]:
        figures = [value for value in card.values() if isinstance(value, dict)]
        assert len(figures) == 6
        assert all(
            set(figure) <= {"value", "unit", "source", "by", "low", "high"} and figure["by"] for figure in figures
        )


def test_an_unknown_card_suggests(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "rtx 4091")
    assert (code, out) == (2, "")
    assert "did you mean NVIDIA GeForce RTX 4090" in err
