"""`fit --explain`: ways to draft and bits per weight by scope; the same in the JSON document."""

from __future__ import annotations

import json

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app

GEMMA = ("google/gemma-4-31B-it", "--card", "RTX 5090", "--ctx", "35K", "--kv", "f16", "--trials", "0")
HOST = ("--ram", "192", "--ram-gb-s", "36", "--cpu", "avx512vbmi")


def run(*arguments: str) -> int:
    return run_app(lambda: build_app()(["fit", *arguments]))


def test_explain_compares_the_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*GEMMA, *HOST, "--explain") == 0
    shown = capsys.readouterr().out
    assert "ways to draft, with the host's RAM as it is (reasoned)" in shown
    for way in (
        "no draft",
        "chain of 2 by the base",
        "chain of 8 by the base, 8 levels",
        "staged: draft head, then base",
    ):
        assert way in shown
    assert "likely fastest: staged: draft head, then base; this version drafts with the base alone" in shown


def test_the_answer_says_which_draft_would_be_faster(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*GEMMA, *HOST) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("draft: "))
    assert "staged: draft head, then base would likely be faster" in line and " against " in line


def test_explain_counts_bits_by_scope(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("Qwen/Qwen3.8-27B", "--card", "RTX 3060 12GB", "--trials", "0", "--explain") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert any(
        row[:3] == ["Mirai", "S", "trellis"] and row[-3:] == ["2.448", "7,450,044,672", "24,350,556,160"]
        for row in rows
    )
    assert any(row[0] == "PTQ1_0" and row[-3:] == ["1.765", "5,935,527,936", "26,895,998,464"] for row in rows if row)


def test_json_holds_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*GEMMA, *HOST, "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drafts"]["fastest"] == "staged: draft head, then base"
    assert all(way["tok_s"]["source"] == "reasoned" for way in found["drafts"]["ways"])
    assert [way["this_version_drafts_so"] for way in found["drafts"]["ways"]].count(False) == 2
    scopes = found["bits_per_weight"]
    assert scopes["twofold"][1]["bits"]["value"] == 2.125
    assert scopes["Q8_0"][1]["bits"]["value"] == 8.5


def test_a_low_bit_file_is_judged_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """12 GB: Mirai S at 128K with a q4_0 cache runs, with a q8_0 one it does not."""
    asked = ("Qwen/Qwen3.8-27B", "--engine", "llama.cpp", "--card", "RTX 3060 12GB", "--weights-name", "Mirai-S")
    assert run(*asked, "--ctx", "128K", "--kv", "q4_0", "--format", "json") == 0
    total = json.loads(capsys.readouterr().out)["memory"]["vram"]["total_mib"]["value"]
    assert total / 1024 == pytest.approx(11.3, abs=0.17)
    assert run(*asked, "--ctx", "128K", "--kv", "q8_0") == 4
