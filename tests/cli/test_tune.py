"""`twofold tune` on a small model, for real: what it prints and keeps, and that chat uses it from then on."""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold import cli
from twofold.cli import tune_job
from twofold.cli.launch import launch
from twofold.cli.launch_options import LaunchOptions
from twofold.cli.repl.status import header
from twofold.kernels.cpu import missing_reason
from twofold.planner.tuning.tuner import Tuner
from twofold.profiles.plan_store import tuned_dir
from twofold.profiles.settings import state_dir

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
QUICK = ("--ctx", "256", "--trials", "6", "--budget", "3")


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch, tiny_checkpoint: Path) -> Callable[..., int]:
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["twofold", "tune", str(tiny_checkpoint), *arguments])
        return cli.main()

    return run


def _is_figure(value: Any) -> bool:
    return isinstance(value, dict) and {"value", "unit", "source", "by"} <= set(value)


def _opened(checkpoint: Path, **options: Any) -> Any:
    launched = launch(LaunchOptions(model=str(checkpoint), **({"ctx": 256} | options)))
    assert launched is not None
    return launched


def test_json_holds_plan_default_comparison_and_noise(
    tune: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(*QUICK, "--verify", "--format", "json") == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert shown.err.splitlines()[0] == "trial 0" and "filling the context" in shown.err.splitlines()
    assert found["plan"]["tuned"] is found["is_tuned"] and not found["trial_0"]["tuned"]
    assert found["turn"] == {"cached_tokens": 128, "prompt_tokens": 64, "answer_tokens": 64}
    for name in ("trial_0_turn_s", "noise_floor"):
        assert _is_figure(found[name]) and found[name]["source"] == "measured" and found[name]["n"] >= 4
    assert found["search"]["trials"] <= 6 and found["search"]["samples"] > 10
    duel = found["ab"]
    if duel is None:
        assert not found["is_tuned"]
    else:
        assert duel["is_won"] == found["is_tuned"] == (duel["saved"]["value"] > duel["must_exceed"])
        assert duel["rounds"] >= 6 and all(_is_figure(duel[name]) for name in ("trial_0_turn_s", "candidate_turn_s"))
    expected = duel["candidate"] if found["is_tuned"] else found["trial_0"]
    knobs = ("draft_nodes", "draft_depth", "prefill_chunk", "threads", "k_type", "activations", "residual_bits")
    knobs += ("context_tokens",)
    assert all(found["plan"][name] == expected[name] for name in knobs)
    verified = found["verification"]
    assert verified["is_verified"] and verified["peak"]["value"] == pytest.approx(
        found["plan"]["verified"]["peak_mib"], abs=0.1
    )
    assert verified["reached_tokens"] == 256 and _is_figure(verified["group_peak"])


def test_chat_uses_the_plan_unless_something_else_is_asked_for(
    tune: Callable[..., int], tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not _opened(tiny_checkpoint).plan.tuned
    assert tune(*QUICK) == 0
    shown = capsys.readouterr().out
    assert "trial 0" in shown and "twofold chat and run use it" in shown and "the cache type stays f16" in shown
    has_won = "the candidate won" in shown
    assert ("saved: " in shown) is has_won and ("measured, default kept: " in shown) is not has_won
    opened = _opened(tiny_checkpoint)
    assert opened.engine.plan == opened.plan and header(opened.plan).endswith("· tuned") is has_won
    assert f'"tuned": {str(has_won).lower()}' in opened.plan.to_json()
    other_threads = opened.plan.threads + 1
    for options in ({"ctx": 128}, {"kv": "q8_0"}, {"threads": other_threads}):
        assert not _opened(tiny_checkpoint, **options).plan.tuned
    assert _opened(tiny_checkpoint, threads=opened.plan.threads).plan.tuned is has_won


def test_activations_stay_as_asked_and_nothing_of_two_kinds_mixes(
    tune: Callable[..., int], tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(*QUICK) == 0
    (journal,) = (state_dir() / "studies").glob("*.journal")
    capsys.readouterr()
    assert tune(*QUICK, "--activations", "int8", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["activations"] == found["trial_0"]["activations"] == "int8"
    assert found["ab"] is None or found["ab"]["candidate"]["activations"] == "int8"
    studies = [line for line in journal.read_text().splitlines() if json.loads(line)["op_code"] == 0]
    assert len({json.loads(line)["study_name"] for line in studies}) == 2
    assert len(list(tuned_dir().glob("*.json"))) == 2
    for path in tuned_dir().glob("*.json"):
        kept = json.loads(path.read_text())
        kept["plan"]["tuned"] = True  # as if a candidate had won: which plan is opened is told apart by it
        path.write_text(json.dumps(kept))
    for activations in ("int16", "int8"):
        opened = _opened(tiny_checkpoint, activations=activations)
        assert opened.plan.tuned and opened.plan.activations == opened.engine.config.activations == activations


def test_a_plan_of_another_build_is_reported_and_not_used(
    tune: Callable[..., int], tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(*QUICK) == 0
    (path,) = tuned_dir().glob("*.json")
    kept = json.loads(path.read_text())
    kept["plan"]["tuned"] = True  # whether a candidate won is the machine's to say
    path.write_text(json.dumps(kept))
    assert _opened(tiny_checkpoint).plan.tuned
    kept["machine"]["build"] = "0000000 feedbeef"
    path.write_text(json.dumps(kept))
    capsys.readouterr()
    assert not _opened(tiny_checkpoint).plan.tuned
    warned = capsys.readouterr().err
    assert "is not used" in warned and "feedbeef" in warned and "twofold tune" in warned
    for damage in ("not JSON", json.dumps(kept | {"plan": {"draft_nodes": -1}})):
        path.write_text(damage)
        assert not _opened(tiny_checkpoint).plan.tuned


def test_the_cache_type_varies_only_above_a_stated_floor(
    tune: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(*QUICK, "--min-quality", "q8", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["k_type"] in ("f16", "q8_0")
    assert not any("cache type stays" in note for note in found["notes"])
    assert any("6 bits: another width means quantising again" in note for note in found["notes"])
    journal = next((state_dir() / "studies").glob("*.journal")).read_text()
    assert "q8_0" in journal and "q4_0" not in journal
    assert tune(*QUICK, "--kv", "q8_0", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["plan"]["k_type"] == "q8_0"


def test_a_second_run_tries_what_the_first_one_found(
    tune: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = ("--storage", f"sqlite:///{tmp_path / 'study.db'}")
    assert tune(*QUICK, *storage) == 0
    capsys.readouterr()
    assert tune("--ctx", "256", "--trials", "1", "--budget", "3", *storage, "--seed", "3", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["search"]["trials"] == 1
    assert not (state_dir() / "studies").exists()


def test_nothing_is_tried_when_only_verifying(
    tune: Callable[..., int], tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("--ctx", "256", "--trials", "0", "--verify") == 0
    shown = capsys.readouterr().out
    assert "verified: 256 tokens filled" in shown and "MiB (measured)" in shown
    plan = _opened(tiny_checkpoint).plan
    assert plan.verified is not None and plan.verified.peak_mib > 10 and not plan.tuned


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--min-quality", "best"), 2, "quality floor"),
        (("--min-quality", "q8", "--kv", "q4_0"), 2, "below the quality floor"),
        (("--min-quality", "0.001"), 2, "cannot be judged"),
        (("--ctx", "100K"), 2, "longer"),
        (("--ctx", "nonsense"), 2, "--ctx"),
        (("--trials", "-1"), 2, "--trials"),
        (("--budget", "0"), 2, "--budget"),
        (("--kv", "f8"), 2, "--kv"),
        (("--activations", "f16"), 2, "--activations"),
        (("--min-quality", "0.001", "--activations", "int8"), 2, "--activations int8 measures it"),
        (("--residual-bits", "7"), 2, "another residual width"),
        (("--storage", "redis://:hunter2secret@127.0.0.1:1/0"), 2, "storage cannot be used"),
        (("--storage", "postgresql://u:hunter2secret@127.0.0.1:1/d"), 2, "storage cannot be used"),
        (("--storage", "nonsense"), 2, "storage cannot be used"),
    ],
)
def test_bad_input_is_explained(
    arguments: tuple[str, ...], code: int, text: str, tune: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("--ctx", "256", "--budget", "2", *arguments) == code
    shown = capsys.readouterr()
    assert text in shown.err and "Traceback" not in shown.err and "hunter2" not in shown.err
    assert shown.out == ""


def test_a_damaged_journal_is_named_and_stays(tune: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(*QUICK) == 0
    (path,) = (state_dir() / "studies").glob("*.journal")
    path.write_bytes(b"\x00\x01 no journal\n")
    capsys.readouterr()
    assert tune(*QUICK) == 1
    shown = capsys.readouterr().err
    assert "study file cannot be used" in shown and f"mv {path}" in shown
    assert path.read_bytes() == b"\x00\x01 no journal\n"


def test_an_interruption_keeps_the_trials_and_exits_130(tiny_checkpoint: Path) -> None:
    command = [sys.executable, "-m", "twofold", "tune", str(tiny_checkpoint), "--ctx", "256", "--budget", "600"]
    process = subprocess.Popen(
        [*command, "--trials", "9000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    folder, deadline = state_dir() / "studies", time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        journals = list(folder.glob("*.journal"))
        if journals and journals[0].read_text().count('"op_code":6') > 3:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert "trials are kept in the state folder" in complaint and "Traceback" not in complaint
    assert out == ""
    assert not tuned_dir().exists()


def test_a_state_folder_that_cannot_be_used_is_named(
    tune: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    state_dir().mkdir(parents=True, exist_ok=True)
    (state_dir() / "studies").write_text("in the way")
    assert tune(*QUICK) == 1
    shown = capsys.readouterr().err
    assert "studies" in shown and "hint: set TWOFOLD_HOME" in shown and "Traceback" not in shown


def test_a_budget_that_trial_0_used_up_saves_nothing(
    tune: Callable[..., int], tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hours = itertools.count(step=3600.0)  # real passes on a clock that runs away
    monkeypatch.setattr(tune_job, "Tuner", functools.partial(Tuner, clock=lambda: next(hours)))
    assert tune("--ctx", "256", "--budget", "75", "--trials", "4") == 0
    shown = capsys.readouterr().out
    assert "1 plan tried, 0 did not fit" in shown and "no other plan looked faster" not in shown
    assert "nothing else was tried: the budget of 75 s was used up by measuring trial 0" in shown
    assert "give --budget 300" in shown and "nothing was saved" in shown
    assert not tuned_dir().exists() and not _opened(tiny_checkpoint).plan.tuned
    shutil.rmtree(state_dir() / "studies")  # whose trial 0 would not be tried again, but another plan
    assert tune("--ctx", "256", "--budget", "75", "--trials", "4", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["search"]["compared"] == 0 and not found["kept"] and "used up" in found["outcome"]


def test_no_trials_and_no_verifying_says_what_to_do(
    tune: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune("--ctx", "256", "--trials", "0") == 0
    shown = capsys.readouterr()
    assert "nothing was saved" in shown.out and "hint: leave out --trials 0 to tune, or add --verify" in shown.err
