"""`fit` for people: what a figure is of, what is not known for sure, small numbers, and the order of tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.cli.fit_view import shown
from twofold.profiles.figures import reasoned, reported
from twofold.profiles.sources.aliases import ALIASES

LLAMA = ("Qwen/Qwen3.8-27B", "--engine", "llama.cpp", "--draft-mtp", "2", "--weights-name", "Qwen3.8-27B Q6_K")
GEMMA = ("google/gemma-4-31B-it", "--card", "RTX 4090", "--ctx", "32K", "--trials", "0")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What is printed, in one line."""
    assert run_app(lambda: build_app()(["fit", *arguments])) == code
    return " ".join(capsys.readouterr().out.split())


def test_a_reported_speed_names_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *LLAMA, "--card", "RTX 5090")
    assert "speed: 130.0 tok/s (reported) of the run A17 at 131072 tokens, KV q4_0, draft of 2, on RTX 5090" in found
    assert "this run: 8192 tokens, KV f16" in found
    assert "kept back: 128 MiB: a reported run of this file calibrates the estimate (else 512)" in found
    assert "not in the command: the options for a draft of 2" in found
    same = told(capsys, *LLAMA, "--card", "RTX 5090", "--ctx", "128K", "--kv", "q4_0", "--margin", "300")
    assert "of the run A17" in same and "this run:" not in same
    assert "kept back: 300 MiB, as stated by --margin" in same


def test_a_reasoned_speed_says_that_no_draft_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *LLAMA, "--card", "RTX 4090", "--force")
    assert "reasoned) bandwidth" in found and "no draft counted: the draft of 2 would add to it" in found
    plain = told(capsys, "Qwen/Qwen3-8B", "--engine", "llama.cpp", "--weights-mib", "4000", "--card", "RTX 4090")
    assert "little context, no draft counted" in plain and "kept back: 512 MiB: no reported run" in plain
    assert "not in the command" not in plain


def test_a_speed_out_of_reach_is_only_likely_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = told(capsys, *GEMMA, "--html", str(page))
    words = "20 tok/s is likely not reached with any RAM"
    assert words in found and words in " ".join(page.read_text("utf-8").split())


def test_tables_say_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *GEMMA)
    assert "what would serve, best first" in found and "order: what this version or llama.cpp runs today" in found
    assert "this version does not run it" in found and "as good" not in found
    ranking = told(capsys, "--ctx", "4K")
    assert "context: 4,096 tokens, or a model's own where that is less" in ranking
    assert "order: what fits, what this version runs" in ranking


def test_where_nothing_serves_the_table_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    poor = ("google/gemma-4-31B-it", "--card", "RTX 3060 12GB", "--vram", "4000", "--ram", "4", "--html", str(page))
    found = told(capsys, *poor, code=4)
    assert "none would serve" in found and "what would serve" not in found
    assert ">What was looked at: none would serve<" in page.read_text("utf-8")


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_no_alias_is_sent_to_a_file_that_its_repository_has_not(capsys: pytest.CaptureFixture[str], alias: str) -> None:
    found = told(capsys, alias, "--card", "T4", "--trials", "0")
    assert not re.search(r"-hf \S*q\d_\w+-gguf:", found, re.IGNORECASE)
    advice = found.split("advice: ")[1].split("llama-server ")[1]
    assert advice.startswith(("--hf-repo ", "-hf ")), "what exists is advised before what does not"


def test_a_local_file_is_told_from_one_that_has_to_be_made(
    capsys: pytest.CaptureFixture[str], smollm2_gguf: Path
) -> None:
    found = told(capsys, str(smollm2_gguf), "--card", "T4", "--trials", "0")
    assert "make its file first: llama-quantize --allow-requantize" in found
    assert f"advice: the file as it is fits this card: use llama.cpp: llama-server -m {smollm2_gguf}" in found


def test_what_rounds_to_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(reasoned(0.01, "s", "x", low=0.004, high=0.02)) == "<0.1 s (reasoned)"
    assert shown(reasoned(0.1, "s", "x", low=0.01, high=0.2)) == "0.1 s (<0.1 to 0.2, reasoned)"
    assert shown(reasoned(0.0, "s", "x")) == "0.0 s (reasoned)"
    assert shown(reported(0.00101234, "nats", "x")) == "0.00101 nats (reported)"
    found = told(capsys, "smollm2", "--card", "T4", "--trials", "0", "--explain")
    assert not re.search(r" 0\.000 (MiB|ms|µs) ", found)
    assert "gpu_bytes_s" not in found and "rate: the card's memory" in found
    assert "decode_tok_s" not in found and "0.0 s (0.0" not in found
