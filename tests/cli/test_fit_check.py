"""A model whose memory is not there is refused before it is opened, and opened when forced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from twofold.cli import quantize_job
from twofold.cli.errors import run_app
from twofold.cli.fit_check import refuse_unless_fits
from twofold.cli.launch import launch, make_plan
from twofold.cli.launch_options import LaunchOptions
from twofold.engine.checkpoint import Checkpoint
from twofold.profiles.errors import NotEnoughSpace
from twofold.profiles.readers.shipped import shipped_spec

MIB = 1 << 20


def test_too_little_memory_is_refused_with_a_context_that_fits(tiny_checkpoint: Path) -> None:
    spec = Checkpoint.open(tiny_checkpoint).spec
    plan = make_plan(spec, 6, LaunchOptions(model=str(tiny_checkpoint), threads=1))
    with pytest.raises(NotEnoughSpace, match="does not fit the free memory") as caught:
        refuse_unless_fits(spec, plan, 20 * MIB, is_forced=False, model="my model")
    assert caught.value.found == "20 MiB free"
    assert caught.value.needed is not None and caught.value.needed.startswith(f"{plan.expected_ram_mib:,.0f} MiB")
    assert str(caught.value.hint).startswith("twofold fit 'my model'") and "--force" in str(caught.value.hint)
    refuse_unless_fits(spec, plan, None, is_forced=False)
    refuse_unless_fits(spec, plan, 1 << 40, is_forced=False)


def test_a_shorter_context_is_named_where_that_is_enough() -> None:
    spec = shipped_spec("Qwen/Qwen3-8B")
    assert spec is not None
    plan = make_plan(spec, 6, LaunchOptions(model=spec.name, ctx=40960, threads=1))
    free = int((plan.expected_ram_mib - 2000) * MIB)
    with pytest.raises(NotEnoughSpace) as caught:
        refuse_unless_fits(spec, plan, free, is_forced=False)
    hint = str(caught.value.hint).split()
    assert hint[0] == "--ctx" and 0 < int(hint[1]) < 40960
    shorter = make_plan(spec, 6, LaunchOptions(model=spec.name, ctx=int(hint[1]), threads=1))
    refuse_unless_fits(spec, shorter, free, is_forced=False)


def test_forced_or_tight_it_warns(tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = Checkpoint.open(tiny_checkpoint).spec
    plan = make_plan(spec, 6, LaunchOptions(model=str(tiny_checkpoint), threads=1))
    refuse_unless_fits(spec, plan, 20 * MIB, is_forced=True)
    assert "does not fit" in capsys.readouterr().err
    refuse_unless_fits(spec, plan, int(plan.expected_ram_mib + 1) * MIB, is_forced=False)
    assert "is tight" in capsys.readouterr().err


def test_launch_asks_before_it_opens(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize_job, "available_ram_bytes", lambda: 20 * MIB)
    with pytest.raises(NotEnoughSpace, match="does not fit"):
        launch(LaunchOptions(model=str(tiny_checkpoint), threads=1))
    launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1, is_forced=True))
    assert launched is not None
    launched.engine.close()


@pytest.mark.parametrize("command", ["chat", "run", "bench", "eval"])
def test_every_command_that_opens_a_model_has_it(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twofold", command, "--help"], check=True, capture_output=True, text=True, timeout=60
    )
    assert "--force" in done.stdout


def test_run_refuses_in_words(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from twofold.cli.app import build_app

    monkeypatch.setattr(quantize_job, "available_ram_bytes", lambda: 20 * MIB)
    assert run_app(lambda: build_app()(["run", str(tiny_checkpoint), "hello", "--raw"])) == 1
    shown = capsys.readouterr().err
    assert "does not fit the free memory" in shown and "20 MiB free" in shown and "hint: " in shown
