"""Kernel timings on the command line: `fit` and a start use this machine's, a profile's are reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app
from twofold.cli.fit_options import local_machine
from twofold.cli.launch import launch
from twofold.cli.launch_options import LaunchOptions
from twofold.engine.checkpoint import Checkpoint
from twofold.kernels.cpu import missing_reason, native
from twofold.planner.timed import names
from twofold.probes import probe
from twofold.profiles.export import document_of, to_bytes
from twofold.profiles.kernel_store import save_timings
from twofold.profiles.pass_store import passes_dir

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")


@pytest.fixture(scope="session")
def tiny_checkpoint(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model with base levels as they are made now: one with far ones is timed itself under AVX2."""
    folder = shutil.copytree(tiny_checkpoint, tmp_path_factory.mktemp("near") / "tiny")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["base"]["levels"] = [-10, -3, 3, 10]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    threads = native().threads()
    yield
    native().force_isa("")
    native().set_threads(threads)


def _fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run_app(lambda: build_app()(["fit", *arguments, "--format", "json"])) in (0, 3)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _table(timed_tables: Any, checkpoint: Path, *, cheap_drafts: bool = False) -> Any:
    """Timings of the checkpoint as this machine would run it: its best kernels, all of its cores."""
    host = local_machine().host
    assert host is not None

    def cost(op: str, size: int, rows: int) -> float:
        is_draft = op in (names.LINEAR_BASE, names.HEAD_BASE, names.GUESS)
        return float(size * (0.001 if is_draft and cheap_drafts else 1) * (1 + (0.001 if cheap_drafts else 1) * rows))

    spec = Checkpoint.open(checkpoint).spec
    return timed_tables.table(spec, cost, isa=host.isa_tier, threads=host.threads)


def test_fit_says_that_it_added_up_what_was_measured_here(
    tiny_checkpoint: Path, timed_tables: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _fit(capsys, str(tiny_checkpoint))["speed"]
    assert "kernels" not in before["decode_tok_s"]["by"]
    assert save_timings(_table(timed_tables, tiny_checkpoint))
    after = _fit(capsys, str(tiny_checkpoint))["speed"]
    for name in ("decode_tok_s", "decode_full_tok_s", "check_ms", "draft_pass_ms"):
        assert after[name]["source"] == "reasoned" and "kernels measured here" in after[name]["by"]
        assert after[name]["low"] < after[name]["value"] < after[name]["high"]
    assert run_app(lambda: build_app()(["fit", str(tiny_checkpoint)])) in (0, 3)
    assert "kernels measured here" in capsys.readouterr().out


def test_a_profiles_timings_are_reported_and_nothing_is_borrowed_between_machines(
    tiny_checkpoint: Path, timed_tables: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = _table(timed_tables, tiny_checkpoint)
    friend = tmp_path / "friend.json"
    own = probe(bandwidth=False)
    friend.write_bytes(to_bytes(document_of(own.model_copy(update={"kernels": table}))))
    theirs = _fit(capsys, str(tiny_checkpoint), "--profile", str(friend))["speed"]["decode_tok_s"]
    assert "kernels reported by profile" in theirs["by"] and "measured here" not in theirs["by"]
    # a profile on this disk changes nothing about this machine, and this machine's times nothing about a profile's
    assert "kernels" not in _fit(capsys, str(tiny_checkpoint))["speed"]["decode_tok_s"]["by"]
    save_timings(table)
    friend.write_bytes(to_bytes(document_of(own)))
    bare = _fit(capsys, str(tiny_checkpoint), "--profile", str(friend))["speed"]["decode_tok_s"]
    assert "kernels" not in bare["by"]


def test_timings_serve_plans_of_their_activations_alone(
    tiny_checkpoint: Path, timed_tables: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table = _table(timed_tables, tiny_checkpoint)
    save_timings(table)
    int8 = (str(tiny_checkpoint), "--activations", "int8")
    assert "kernels" not in _fit(capsys, *int8)["speed"]["decode_tok_s"]["by"]
    save_timings(one.model_copy(update={"activations": "int8"}) for one in table)
    assert "int8 activations" in _fit(capsys, *int8)["speed"]["decode_tok_s"]["by"]
    usual = _fit(capsys, str(tiny_checkpoint))["speed"]["decode_tok_s"]["by"]
    assert "kernels measured here" in usual and "int8" not in usual


@pytest.mark.parametrize("cheap", [True, False])
def test_a_start_chooses_its_draft_by_timed_kernels(tiny_checkpoint: Path, timed_tables: Any, cheap: bool) -> None:
    save_timings(_table(timed_tables, tiny_checkpoint, cheap_drafts=cheap))
    launched = launch(LaunchOptions(model=str(tiny_checkpoint)))
    assert launched is not None
    assert (launched.plan.draft_nodes > 0) is cheap
    assert not list(passes_dir().glob("*.json"))  # nothing had to be measured at the start
    launched.engine.close()


def test_without_them_a_start_measures_passes_as_before(tiny_checkpoint: Path, timed_tables: Any) -> None:
    table = _table(timed_tables, tiny_checkpoint)
    save_timings(one.model_copy(update={"threads": one.threads + 1}) for one in table)
    for activations, n_measured in (("int16", 1), ("int8", 2), ("int8", 2)):
        launched = launch(LaunchOptions(model=str(tiny_checkpoint), activations=activations))
        assert launched is not None and len(list(passes_dir().glob("*.json"))) == n_measured
        launched.engine.close()
