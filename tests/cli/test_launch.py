"""Opening a model for real: what is asked for and what a checkpoint has."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from twofold.cli.launch import launch, rank_key
from twofold.cli.launch_options import LaunchOptions
from twofold.cli.quantize_job import refuse_changed_source
from twofold.cli.repl.status import header
from twofold.engine.allocations import differences
from twofold.engine.checkpoint import Checkpoint
from twofold.kernels.cpu import missing_reason
from twofold.planner.kv import cache_bytes
from twofold.profiles.errors import InvalidOption, TwofoldError
from twofold.profiles.files import file_sha256
from twofold.profiles.sources.model_ref import ModelRef

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")


def test_a_checkpoint_is_opened_under_a_plan_of_its_own_width(tiny_checkpoint: Path) -> None:
    launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1))
    assert launched is not None and launched.checkpoint_path == tiny_checkpoint
    assert launched.plan.residual_bits == launched.engine.config.residual_bits == 6
    assert launched.plan.threads == 1
    assert launch(LaunchOptions(model=str(tiny_checkpoint), residual_bits=6)) is not None


def test_another_width_is_refused_and_not_ignored(tiny_checkpoint: Path) -> None:
    with pytest.raises(InvalidOption, match="another residual width") as refused:
        launch(LaunchOptions(model=str(tiny_checkpoint), residual_bits=7))
    assert "6 bits" in str(refused.value.needed) and "7" in str(refused.value.found)


def test_a_model_is_called_as_its_source_and_not_as_its_folder(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny-r6-s0"
    shutil.copytree(tiny_checkpoint, folder)
    _edit(folder, lambda config: config.update(source={"name": "Tiny-Instruct"}))
    launched = launch(LaunchOptions(model=str(folder), threads=1))
    assert launched is not None
    assert launched.plan.model == launched.spec.name == "Tiny-Instruct"
    assert header(launched.plan).startswith("Tiny-Instruct ")
    _edit(folder, lambda config: config.update(source={"name": "\x1b[31m"}))
    launched = launch(LaunchOptions(model=str(folder), threads=1))
    assert launched is not None and launched.plan.model == folder.name


def test_a_source_replaced_at_the_same_path_is_noticed(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "source", tmp_path / "made"
    source.mkdir()
    shutil.copy(tiny_checkpoint / "config.json", source)
    config = json.loads((source / "config.json").read_text())
    del config["quantization_config"]
    (source / "config.json").write_text(json.dumps(config))
    weights = source / "model.safetensors"
    save_file({"a": np.zeros(4, np.float32)}, weights)
    shutil.copytree(tiny_checkpoint, folder)
    _edit(folder, lambda config: config.update(source={"sha256": file_sha256(weights)}))
    ref = ModelRef("folder", str(source), "source", path=source)
    long_ago = time.time() - 1000
    dense = folder / "dense.safetensors"

    os.utime(dense, (long_ago, long_ago))
    refuse_changed_source(ref, folder, 6)
    assert dense.stat().st_mtime > long_ago + 500
    with monkeypatch.context() as patch:  # the second start reads no weights
        patch.setattr("twofold.engine.weights.open_weights", lambda _: pytest.fail("hashed again"))
        refuse_changed_source(ref, folder, 6)

    save_file({"a": np.ones(4, np.float32)}, weights)
    os.utime(dense, (long_ago, long_ago))
    with pytest.raises(TwofoldError, match="is not the model") as refused:
        refuse_changed_source(ref, folder, 6)
    assert refused.value.hint is not None and "--force" in refused.value.hint


def test_the_cache_type_is_the_settings_under_the_command_lines(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kv, setting, expected in ((None, None, "f16"), (None, "q8_0", "q8_0"), ("q4_0", "q8_0", "q4_0")):
        if setting is not None:
            monkeypatch.setenv("TWOFOLD_KV", setting)
        launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1, kv=kv))
        assert launched is not None and (launched.plan.k_type, launched.plan.v_type) == (expected, expected)
        plan = launched.plan
        slots, widest = plan.context_tokens + plan.verify_rows, max(plan.prefill_chunk, plan.verify_rows)
        planned = cache_bytes(launched.spec, slots, plan.k_type, plan.v_type, largest_pass=widest).total
        assert launched.engine.memory_report()["kv_cache"] == planned


def test_activations_are_the_command_lines_then_the_settings_then_the_checkpoints(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = shutil.copytree(tiny_checkpoint, tmp_path / "mixed")
    config = json.loads((mixed / "config.json").read_text())
    config["quantization_config"]["residual"]["planes"] = 1
    (mixed / "config.json").write_text(json.dumps(config))
    for asked, setting, folder, expected in (
        (None, None, tiny_checkpoint, "int16"),
        (None, None, mixed, "int16/int8"),
        ("int8", None, mixed, "int8"),
        (None, "int8", tiny_checkpoint, "int8"),
        ("int16", "int8", mixed, "int16"),
    ):
        if setting is not None:
            monkeypatch.setenv("TWOFOLD_ACTIVATIONS", setting)
        launched = launch(LaunchOptions(model=str(folder), threads=1, activations=asked))
        assert launched is not None and launched.plan.activations == expected
        assert launched.engine.config.activations == expected
        assert differences(launched.engine) == ()
        assert launched.rank_key == rank_key(Checkpoint.open(folder))
    monkeypatch.setenv("TWOFOLD_ACTIVATIONS", "int4")
    with pytest.raises(InvalidOption, match="TWOFOLD_ACTIVATIONS"):
        launch(LaunchOptions(model=str(tiny_checkpoint), threads=1))


def test_keys_and_values_are_typed_apart(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_KV", "q8_0")
    for asked, expected in (
        ({"kv_k": "f16", "kv_v": "q4_0"}, ("f16", "q4_0")),
        ({"kv_v": "q4_0"}, ("q8_0", "q4_0")),
        ({"kv_k": "f16"}, ("f16", "q8_0")),
    ):
        launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1, **asked))
        assert launched is not None and (launched.plan.k_type, launched.plan.v_type) == expected
        plan = launched.plan
        slots, widest = plan.context_tokens + plan.verify_rows, max(plan.prefill_chunk, plan.verify_rows)
        planned = cache_bytes(launched.spec, slots, plan.k_type, plan.v_type, largest_pass=widest).total
        assert launched.engine.memory_report()["kv_cache"] == planned


def test_a_plan_is_read_once_and_a_checkpoint_opened_once(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twofold.engine.checkpoint import Checkpoint
    from twofold.planner.plan import Plan

    launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1))
    assert launched is not None
    file = tmp_path / "plan.json"
    file.write_text(launched.plan.to_json())
    seen: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: (seen.append(name), call(*arguments))[1]

    monkeypatch.setattr(Checkpoint, "open", counted("open", Checkpoint.open))
    monkeypatch.setattr(Plan, "from_json", counted("plan", Plan.from_json))
    again = launch(LaunchOptions(model=str(tiny_checkpoint), plan_path=file))
    assert again is not None and again.plan == launched.plan
    assert sorted(seen) == ["open", "plan"]
    launch(LaunchOptions(model=str(tiny_checkpoint), threads=1))  # its pass times are known by now
    assert seen.count("open") == 2


def _edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "config.json"
    whole = json.loads(path.read_text())
    change(whole["quantization_config"])
    path.write_text(json.dumps(whole))


def test_a_device_or_a_huge_file_is_no_plan(tmp_path: Path) -> None:
    from twofold.cli.launch import MAX_PLAN_BYTES, read_plan
    from twofold.profiles.errors import InvalidProfile

    huge = tmp_path / "plan.json"
    with huge.open("wb") as file:
        file.truncate(MAX_PLAN_BYTES + 1)
    for path in (Path("/dev/zero"), tmp_path, huge):
        with pytest.raises(InvalidProfile, match="is not a plan"):
            read_plan(path)


def test_more_threads_than_can_run_are_granted_and_warned_of_once(
    tiny_checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    many = len(os.sched_getaffinity(0)) + 3
    for threads, lines in ((1, 0), (many, 1)):
        launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=threads))
        assert launched is not None and launched.plan.threads == threads
        warned = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning:")]
        assert len(warned) == lines and all(f"{many} threads take turns" in line for line in warned)
