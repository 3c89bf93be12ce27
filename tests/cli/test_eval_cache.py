"""`twofold eval --kv…`: what a cache costs, by the engine against itself."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold import cli
from twofold.engine.engine import Engine
from twofold.engine.evaluate.cache import compare_caches
from twofold.engine.evaluate.report import EvalText
from twofold.kernels.cpu import missing_reason
from twofold.profiles.activations import Activations

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_checkpoint, tmp_path / "own")


@pytest.fixture
def common(checkpoint: Path, tmp_path: Path) -> tuple[str, ...]:
    """What every run here is asked: 300 tokens of a text."""
    text = tmp_path / "text.txt"
    text.write_text("Every row of a text is judged. " * 40)
    return (str(checkpoint), "--text", str(text), "--text-tokens", "300", "--threads", "1", "--format", "json")


def _eval(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["twofold", "eval", *arguments])
    return cli.main()


def _measured(checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkpoint / "config.json").read_text())["quantization_config"]["measured"]
    return found


def test_the_cost_of_a_cache_is_measured_shown_and_kept(
    checkpoint: Path, common: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {}
    for flags in (("--kv", "q4_0"), ("--kv-k", "q8_0"), ("--kv-v", "q4_0")):
        assert _eval(monkeypatch, *common, *flags) == 0
        cost = json.loads(capfd.readouterr().out)["cache"]
        assert cost["against"] == "the same engine with an f16 cache" and cost["tokens"] == 300
        assert cost["kl"]["source"] == "measured" and cost["kl"]["n"] == 300
        found[f"{cost['k_type']}/{cost['v_type']}"] = cost
    assert list(found) == ["q4_0/q4_0", "q8_0/f16", "f16/q4_0"]
    assert 0 < found["q8_0/f16"]["kl"]["value"] < found["q4_0/q4_0"]["kl"]["value"]
    assert _measured(checkpoint)["kv_caches"] == found
    _keep_whole(checkpoint, {"draft": {"tokens": 3}})
    assert _measured(checkpoint) == {"draft": {"tokens": 3}, "kv_caches": found}
    assert _eval(monkeypatch, *common[:-2], "--kv", "q8_0") == 0
    shown = capfd.readouterr().out
    assert "K as q8_0, V as q8_0" in shown and "against its own with f16" in shown
    assert _measured(checkpoint)["draft"] == {"tokens": 3} and len(_measured(checkpoint)["kv_caches"]) == 4


def test_what_was_measured_under_other_activations_is_kept_apart(
    checkpoint: Path, common: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {}
    for activations in ("int16", "int8"):
        assert _eval(monkeypatch, *common, "--kv", "q4_0", "--activations", activations) == 0
        shown = json.loads(capfd.readouterr().out)
        assert shown["activations"] == activations
        found[activations] = {"q4_0/q4_0": shown["cache"]}
    assert found["int16"] != found["int8"]
    others = {"int8": {"kv_caches": found["int8"]}}
    assert _measured(checkpoint) == {"kv_caches": found["int16"], "other_activations": others}
    _keep_whole(checkpoint, {"tokens": 3})
    assert _measured(checkpoint) == {"tokens": 3, "kv_caches": found["int16"], "other_activations": others}
    _keep_whole(checkpoint, {"tokens": 4}, "int8")
    others["int8"]["tokens"] = 4
    assert _measured(checkpoint) == {"tokens": 3, "kv_caches": found["int16"], "other_activations": others}


def _keep_whole(checkpoint: Path, report: dict[str, Any], activations: Activations = "int16") -> None:
    """What an evaluation without a cache leaves."""
    from twofold.cli.eval import _keep

    _keep(checkpoint, report, activations)


def test_kl_and_mismatch_are_those_of_the_logits(checkpoint: Path) -> None:
    """Counted once more, row by row, in fp64."""
    from twofold.cli.launch import launch
    from twofold.cli.launch_options import LaunchOptions

    launched = launch(LaunchOptions(model=str(checkpoint), threads=1, kv="q4_0"))
    assert launched is not None
    plan = launched.plan.model_copy(update={"k_type": "f16", "v_type": "f16"})
    exact = Engine.of(launched.engine.checkpoint, plan)
    texts = [EvalText(tuple(range(40, 190))), EvalText(tuple(range(60, 80)))]
    found = compare_caches(exact, launched.engine, ("q4_0", "q4_0"), texts, "made up")
    kl, differs = [], []
    for text in texts:
        p, q = (engine.forward_logits(text.tokens).astype(np.float64) for engine in (exact, launched.engine))
        for row_p, row_q in zip(p, q, strict=True):
            log_p, log_q = (row - row.max() - np.log(np.exp(row - row.max()).sum()) for row in (row_p, row_q))
            kl.append(float((np.exp(log_p) * (log_p - log_q)).sum()))
            differs.append(row_p.argmax() != row_q.argmax())
    assert found.kl.number == pytest.approx(np.mean(kl), rel=1e-9)
    assert found.top1_mismatch.number == np.mean(differs) and found.tokens == 170 and found.longest == 150
    same = compare_caches(exact, exact, ("f16", "f16"), texts, "made up")
    assert same.kl.number == 0 and same.top1_mismatch.number == 0


def test_a_cache_that_is_asked_for_twice_is_a_usage_error(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _eval(monkeypatch, str(checkpoint), "--kv", "q8_0", "--kv-v", "q8_0") == 2
    assert "--kv already decides" in capfd.readouterr().err
