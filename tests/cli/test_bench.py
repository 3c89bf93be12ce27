"""`twofold bench`: the whole command on a small model."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.bench import bench_options, parse_widths
from twofold.cli.bench_facts import provenance
from twofold.cli.bench_kernels import chosen_tiers, set_bytes
from twofold.cli.bench_view import spread
from twofold.kernels.cpu import missing_reason
from twofold.profiles.errors import InvalidOption
from twofold.profiles.figures import measured
from twofold.profiles.session_store import read_sessions

TINY = Path(__file__).parent / "repl" / "tiny_model.py"
QUICK = ("--tokens", "6", "--prompt-tokens", "16", "--repeats", "1", "--widths", "1,3")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("tiny_model", TINY)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder: Path = module.write_model(tmp_path_factory.mktemp("bench") / "tiny")
    return folder


def _bench(checkpoint: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TINY), str(checkpoint), "bench", str(checkpoint), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def _is_figure(value: Any) -> bool:
    return isinstance(value, dict) and {"value", "unit", "source", "by"} <= set(value)


def test_json_holds_every_figure_with_its_source(checkpoint: Path) -> None:
    done = _bench(checkpoint, *QUICK, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"schema_version", "machine", "commit", "model", "plan", "passes", "self_check"} <= set(found)
    for name in ("decode_tok_s", "plain_decode_tok_s", "prefill_tok_s", "pp16", "tg6"):
        assert _is_figure(found[name]) and found[name]["value"] > 0 and found[name]["n"] == 1
    assert found["pp16"] == found["prefill_tok_s"] and found["tg6"] == found["plain_decode_tok_s"]
    assert set(found["by_text"]) == {"prose", "code"}
    checks = found["tokens_per_check"]
    assert checks["chosen"]["value"] == 1 and 1 <= checks["chain_4"]["value"] <= 5
    assert 1 <= checks["tree_16"]["value"] <= 9 and "a tree of 16 drafted tokens, 8 deep" in checks["tree_16"]["by"]
    assert all(set(found["by_text"][kind]["tokens_per_check"]) == set(checks) for kind in found["by_text"])
    assert [(one["rows"], one["residual"]) for one in found["passes"]] == [(1, True), (1, False), (3, True), (3, False)]
    assert all(one["latency_us"]["source"] == "measured" for one in found["passes"])
    assert found["machine"]["isa"] == "naive" and _is_figure(found["machine"]["cpu"])
    kept = read_sessions()[-1]
    assert (kept.command, kept.peak_mib, kept.decode) == ("bench", None, None)  # six tokens are no speed
    assert kept.prefill is not None
    assert (kept.prefill.tok_s, kept.prefill.tokens) == (found["prefill_tok_s"]["value"], 16)


def test_a_person_sees_the_usual_names_and_where_it_was_measured(checkpoint: Path) -> None:
    done = _bench(checkpoint, *QUICK)
    assert done.returncode == 0, done.stderr
    for text in (
        "pp16",
        "tg6",
        "tokens per check",
        "chain of 4",
        "tree of 16",
        "measured on",
        "commit",
        "kernels naive",
    ):
        assert text in done.stdout
    stages = done.stderr.splitlines()  # nothing else, and none of them twice
    assert len(set(stages)) == len(stages) > 2 and all(len(stage) < 60 for stage in stages)


@pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
def test_operations_share_a_pass(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KERNELS", "cpu")
    done = _bench(checkpoint, "--ops", "--prompt-tokens", "16", "--repeats", "2", "--widths", "1,3", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["operations"]
    for rows in (1, 3):
        shares = {one["operation"]: one["share"] for one in found if one["rows"] == rows}
        assert {"product lm_head", "product mlp.gate_up", "attention", "rotate_quantise", "add"} <= set(shares)
        assert sum(shares.values()) == pytest.approx(1)
    assert all(_is_figure(one["time_us"]) and one["calls"] >= 1 for one in found)


@pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
def test_kernels_are_shown_against_the_bandwidth_of_the_same_run(checkpoint: Path) -> None:
    done = _bench(
        checkpoint, "--kernels", "--repeats", "1", "--widths", "1", "--working-set-mib", "8", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    told = done.stderr.splitlines()
    assert told[0].startswith("timing the kernels takes roughly") and "1 round of each sweep" in told[0]
    assert {"making the working set", "passes in parts", "attention", "steps"} <= set(told[1:])
    assert len(set(told)) == len(told)
    found = json.loads(done.stdout)
    assert _is_figure(found["read_gb_s"])
    assert {one["group"] for one in found["kernels"]} >= {"self_attn.qkv", "lm_head"}
    assert all(one["gb_s"]["value"] > 0 for one in found["kernels"])
    verifier = found["verifier"]
    assert verifier["shape"] == [2048, 2048] and 4 << 20 < verifier["working_set_bytes"] <= 9 << 20
    assert {one["rows"] for one in verifier["products"]} == {1, 4, 8, 16, 32}
    for one in verifier["products"]:
        assert all(
            _is_figure(one[name]) and one[name]["value"] > 0 for name in ("latency_us", "roofline_share", "gb_s")
        )
    assert all(_is_figure(one["multiply_adds_s"]) and one["instruction"] for one in verifier["peaks"])
    assert {(one["kv_type"], one["rows"]) for one in found["attention"]} == {
        (kind, rows) for kind in ("f16", "q8_0", "q4_0") for rows in (1, 8)
    }
    parts = found["parts"]
    assert {one["op"] for one in parts["timings"]} >= {"linear", "linear, base alone", "attention", "head", "step"}
    assert {one["bits"] for one in parts["timings"] if one["op"] == "linear"} == {4, 5, 6, 7, 8}
    assert all(_is_figure(one["latency_us"]) and one["latency_us"]["value"] > 0 for one in parts["timings"])
    assert all(one["ratio"] > 0 for one in parts["whole_over_parts"])
    trees = {(one["nodes"], one["depth"]): one for one in found["trees"]}
    assert trees[0, 0]["gain"] == 1 and (4, 4) in trees and (32, 8) in trees
    assert all(_is_figure(one["step_ms"]) and one["step_ms"]["low"] < one["step_ms"]["value"] for one in found["trees"])


@pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
def test_tiers_are_those_named_or_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_CPU_ISA", raising=False)
    assert chosen_tiers("generic") == ["generic"]
    assert "generic" in chosen_tiers(None)
    with pytest.raises(InvalidOption):
        chosen_tiers("generic,sse9")
    assert set_bytes(1) == 1 << 20
    with pytest.raises(InvalidOption):
        set_bytes(0)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--tokens", "0"), 2, "--tokens"),
        (("--tokens", "5000"), 2, "context is too short"),
        (("--prompt-tokens", "600"), 2, "context is too short"),
        (("--widths", "1,x"), 2, "--widths"),
        (("--repeats", "-1"), 2, "--repeats"),
        (("--format", "yaml"), 2, "--format"),
    ],
)
def test_bad_options_are_explained(checkpoint: Path, arguments: tuple[str, ...], code: int, text: str) -> None:
    done = _bench(checkpoint, *arguments)
    assert done.returncode == code
    assert text in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_widths_are_whole_numbers() -> None:
    assert parse_widths("1,2, 16") == (1, 2, 16)
    for wrong in ("", "1,,2", "two", "1.5"):
        with pytest.raises(InvalidOption):
            parse_widths(wrong)


def test_one_sample_has_no_spread() -> None:
    assert spread(measured(12.0, "tok/s", "here", n=1, spread=0.0)) == "12"
    assert spread(measured(12.0, "tok/s", "here", n=3, spread=1.0)) == "12 ± 0.5"


def test_full_is_longer_unless_lengths_are_given() -> None:
    brief, full = (bench_options(None, None, (1,), None, full=full) for full in (False, True))
    assert (brief.tokens, brief.prompt_tokens, full.tokens, full.prompt_tokens) == (32, 128, 128, 512)
    limits = [one.pass_seconds + one.prompt_seconds + one.answer_seconds for one in (brief, full)]
    assert limits[0] < 60 < limits[1]
    given = bench_options(7, 9, (1,), 2, full=True)
    assert (given.tokens, given.prompt_tokens, given.repeats) == (7, 9, 2)


def test_provenance_is_one_line_also_where_facts_are_missing() -> None:
    nothing = {"value": None}
    line = provenance({"cpu": nothing, "physical_cores": nothing, "isa": "avx2", "threads": 1}, "abc1234")
    assert line == "measured on unknown processor, unknown cores; kernels avx2, 1 thread; commit abc1234"
