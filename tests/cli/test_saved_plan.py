"""`--plan FILE`: for this model, followed exactly or refused, its memory counted from its knobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.launch import Launched, launch
from twofold.cli.launch_options import LaunchOptions
from twofold.cli.saved_plan import refuse_other_model
from twofold.cli.tuned import machine_identity
from twofold.kernels.cpu import missing_reason
from twofold.planner.plan import Plan
from twofold.profiles.errors import EngineUnavailable, InvalidOption, TwofoldError
from twofold.profiles.plan_store import ANY_CACHE, TunedPlan, save_tuned
from twofold.profiles.units import MIB

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
Saved = Callable[..., Path]


@pytest.fixture
def opened(tiny_checkpoint: Path) -> Launched:
    launched = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1, ctx=256))
    assert launched is not None
    return launched


@pytest.fixture
def saved(opened: Launched, tmp_path: Path) -> Saved:
    """`saved(**changes)` writes the plan of a session with these changes."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(json.loads(opened.plan.to_json()) | changes))
        return path

    return write


def test_a_plan_for_another_model_is_refused(tiny_checkpoint: Path, saved: Saved) -> None:
    path = saved(model="meta-llama/Llama-3.1-8B")
    with pytest.raises(InvalidOption, match="made for another model") as refused:
        launch(LaunchOptions(model=str(tiny_checkpoint), plan_path=path))
    assert "Llama-3.1-8B" in str(refused.value.found) and "--plan" in str(refused.value.hint)


def test_it_is_refused_before_anything_is_quantised(saved: Saved, tiny_llama_folder: Path) -> None:
    with pytest.raises(InvalidOption, match="made for another model"):
        launch(LaunchOptions(model=str(tiny_llama_folder), plan_path=saved(), assume_yes=True))
    name = tiny_llama_folder.name
    with pytest.raises(EngineUnavailable, match="keeps no residual in VRAM"):
        launch(LaunchOptions(model=str(tiny_llama_folder), plan_path=saved(model=name, resident_linears=["x"])))


@pytest.mark.parametrize(
    ("plan", "names", "is_same"),
    [
        ("Qwen/Qwen3-8B", ("Qwen/Qwen3-8B",), True),
        ("Qwen/Qwen3-8B", ("/models/Qwen3-8B",), True),
        ("Qwen3-8B", ("Qwen--Qwen3-8B",), True),
        ("Qwen/Qwen3-8B", ("other/Qwen3-8B",), False),
        ("Qwen/Qwen3-8B", ("Qwen/Qwen3-4B",), False),
        ("smollm2", ("/x/SmolLM2-135M-Instruct.Q4_1.gguf",), True),
        ("smollm2", ("gemma3-270m",), False),
    ],
)
def test_which_names_are_the_same_model(opened: Launched, plan: str, names: tuple[str, ...], is_same: bool) -> None:
    asked = opened.plan.model_copy(update={"model": plan})
    if is_same:
        refuse_other_model(asked, names, names[0])
        return
    with pytest.raises(InvalidOption, match="another model"):
        refuse_other_model(asked, names, names[0])


def test_memory_is_counted_from_the_knobs(
    opened: Launched, tiny_checkpoint: Path, saved: Saved, capfd: pytest.CaptureFixture[str]
) -> None:
    need = opened.plan.expected_ram_mib
    for stated, is_told in ((1.0, True), (50000.0, True), (need * 1.01, False), (need, False)):
        capfd.readouterr()
        again = launch(LaunchOptions(model=str(tiny_checkpoint), plan_path=saved(expected_ram_mib=stated)))
        assert again is not None
        assert again.plan == again.engine.plan == opened.plan
        told = capfd.readouterr().err
        assert ("the plan's file expects" in told) == is_told and (not is_told or f"{stated:,.0f} MiB" in told)


def test_what_a_file_expects_does_not_get_it_past_the_memory_check(
    tiny_checkpoint: Path, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.cli.quantize_job.available_ram_bytes", lambda: 8 * MIB)
    with pytest.raises(TwofoldError, match="does not fit"):
        launch(LaunchOptions(model=str(tiny_checkpoint), plan_path=saved(expected_ram_mib=1.0)))


@pytest.mark.parametrize("change", [{"resident_linears": ["x"]}, {"device": "cuda"}, {"residual_bits": 7}])
def test_what_cannot_be_followed_comes_with_a_hint(tiny_checkpoint: Path, saved: Saved, change: dict[str, Any]) -> None:
    with pytest.raises(TwofoldError) as refused:
        launch(LaunchOptions(model=str(tiny_checkpoint), plan_path=saved(**change)))
    assert refused.value.hint and "twofold " in refused.value.hint


@pytest.mark.parametrize(
    ("change", "is_used"),
    [({}, True), ({"resident_linears": ["x"]}, False), ({"expected_ram_mib": 1e300}, False), ({"threads": "1"}, False)],
)
def test_a_tuned_plan_that_cannot_be_followed_is_dropped(
    opened: Launched,
    tiny_checkpoint: Path,
    capfd: pytest.CaptureFixture[str],
    change: dict[str, Any],
    is_used: bool,
) -> None:
    plan = json.loads(opened.plan.to_json()) | {"tuned": True} | change
    key = (opened.rank_key, 256, ANY_CACHE, "int16")
    save_tuned(TunedPlan(*key, machine_identity(), date.today().isoformat(), plan))
    capfd.readouterr()
    again = launch(LaunchOptions(model=str(tiny_checkpoint), threads=1, ctx=256))
    assert again is not None and again.plan.tuned is is_used
    assert ("is not used" in capfd.readouterr().err) is not is_used
    assert Plan.from_json(again.plan.to_json()) == again.plan
