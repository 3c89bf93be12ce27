"""The engine: speed knobs never change a bit, quality knobs do, and every misuse is a clear error."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from twofold.engine import backend
from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.engine.sampling import SamplingParams
from twofold.planner.plan import Plan
from twofold.profiles.activations import CHOICES, PLANES, Activations
from twofold.profiles.errors import ContextFull, EngineFailed, EngineUnavailable, InvalidOption

Make = Callable[..., Path]
MakePlan = Callable[..., Plan]
PROMPT = np.random.default_rng(3).integers(0, 117, 75).tolist()
SAMPLED = SamplingParams(temperature=1.1, top_p=0.95, repetition_penalty=1.1, seed=4)
pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")


def native_is_there() -> bool:
    return backend._native()[0] is not None


needs_native = pytest.mark.skipif(not native_is_there(), reason="the native kernels are not built")


def text(engine: Engine, params: SamplingParams, n: int = 24) -> list[int]:
    return [token for result in generate(engine, PROMPT, params, max_tokens=n) for token in result.tokens]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("kernels", ["naive", pytest.param("cpu", marks=needs_native)])
def test_speed_knobs_never_change_logits(make_checkpoint: Make, make_plan: MakePlan, kind: str, kernels: Any) -> None:
    folder = make_checkpoint(model_type=kind)
    expected = Engine.load(folder, make_plan(prefill_chunk=1), kernels="naive").forward_logits(PROMPT)
    assert np.isfinite(expected).all() and expected.std() > 0.1
    for knobs in ({"prefill_chunk": 7}, {"prefill_chunk": 32, "threads": 2}, {"prefill_chunk": 256, "threads": 3}):
        found = Engine.load(folder, make_plan(**knobs), kernels=kernels).forward_logits(PROMPT)
        assert np.array_equal(found, expected), knobs


@needs_native
def test_every_tier_gives_the_same_text(
    make_checkpoint: Make, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twofold.kernels.cpu import native

    monkeypatch.delenv("TWOFOLD_CPU_ISA", raising=False)
    folder = make_checkpoint()
    expected = text(Engine.load(folder, make_plan(), kernels="naive"), SAMPLED)
    try:
        for tier in native().available_tiers():
            engine = Engine.load(folder, make_plan(cpu_isa=tier, draft_nodes=2), kernels="cpu")
            assert native().isa() == tier and text(engine, SAMPLED) == expected
        with pytest.raises(InvalidOption) as error:
            Engine.load(folder, make_plan(cpu_isa="avx4096"), kernels="cpu")
        assert error.value.found == "avx4096" and "generic" in (error.value.needed or "")
    finally:
        native().force_isa("")


@needs_native
def test_the_variable_wins_over_the_plans_tier(
    make_checkpoint: Make, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twofold.kernels.cpu import native

    folder = make_checkpoint()
    monkeypatch.setenv("TWOFOLD_CPU_ISA", native().isa())
    Engine.load(folder, make_plan(cpu_isa="generic"), kernels="cpu")
    assert native().isa() == native().active_tier()


@pytest.mark.parametrize("activations", CHOICES)
@pytest.mark.parametrize("params", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
def test_drafting_never_changes_the_text(
    make_checkpoint: Make, make_plan: MakePlan, params: SamplingParams, activations: Activations
) -> None:
    folder = make_checkpoint()
    expected = text(Engine.load(folder, make_plan(activations=activations)), params)
    assert len(set(expected)) > 4
    for knobs in (
        {"draft_nodes": 1},
        {"draft_nodes": 4, "prefill_chunk": 7, "threads": 2},
        {"draft_nodes": 9, "prefill_chunk": 3},
        {"draft_nodes": 9, "draft_depth": 2},
        {"draft_nodes": 4, "draft_depth": 4},
        {"draft_nodes": 40, "draft_depth": 3},
    ):
        engine = Engine.load(folder, make_plan(**knobs, activations=activations))
        assert text(engine, params) == expected, knobs
    assert engine.n_draft == 40 and engine.tree.depth == 3


def test_a_draft_is_sometimes_accepted_and_then_saves_checks(make_checkpoint: Make, make_plan: MakePlan) -> None:
    generation = generate(
        Engine.load(make_checkpoint(), make_plan(draft_nodes=3)), PROMPT, SamplingParams(), max_tokens=40
    )
    list(generation)
    assert generation.stats.accepted > 0 and generation.stats.generated_tokens == 40
    assert generation.stats.tokens_per_check is not None and generation.stats.tokens_per_check > 1


def test_a_row_in_a_wide_pass_equals_a_pass_of_one(make_checkpoint: Make, make_plan: MakePlan) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(prefill_chunk=64))
    whole = engine.forward_logits(PROMPT)
    for n in (1, 2, 33, 75):
        engine.prefill(PROMPT[:n])
        engine._catch_up()
        row = engine._logits(engine._pass((PROMPT[n - 1],), (-1,)))[0]
        assert np.array_equal(row, whole[n - 1])


def test_quality_knobs_change_logits(make_checkpoint: Make, make_plan: MakePlan) -> None:
    two_planes = Engine.load(make_checkpoint(name="a"), make_plan()).forward_logits(PROMPT)
    folder = make_checkpoint(name="b")
    engine = Engine.load(folder, make_plan(activations="int16/int8"))
    one_plane = engine.forward_logits(PROMPT)
    assert not np.array_equal(two_planes, one_plane)
    assert not np.array_equal(engine.forward_logits(PROMPT, use_residual=False), one_plane)


@pytest.mark.parametrize("activations", ["int16", "int8", "int16/int8", "int8/int16"])
def test_the_plan_decides_on_activations_whatever_the_checkpoint_says(
    make_checkpoint: Make, make_plan: MakePlan, activations: Activations
) -> None:
    base, residual = PLANES[activations]
    plan = make_plan(activations=activations, draft_nodes=2)
    made = make_checkpoint(name="made", quantization={"base_planes": base, "residual_planes": residual})
    other = make_checkpoint(name="other", quantization={"base_planes": 3 - base, "residual_planes": residual})
    before = (other / "config.json").read_bytes()
    engines = [Engine.load(folder, plan, kernels="naive") for folder in (made, other)]
    expected, found = (engine.forward_logits(PROMPT) for engine in engines)
    assert np.array_equal(found, expected)
    drafts = [engine.forward_logits(PROMPT, use_residual=False) for engine in engines]
    assert np.array_equal(*drafts)
    assert text(engines[1], SAMPLED) == text(engines[0], SAMPLED)
    assert engines[1].config.activations == activations != engines[1].checkpoint.stored.activations
    assert (other / "config.json").read_bytes() == before


def test_a_draft_pass_reads_one_plane_under_every_activations(make_checkpoint: Make, make_plan: MakePlan) -> None:
    first = Engine.load(make_checkpoint(), make_plan())
    drafts, checks = [], []
    for activations in PLANES:
        engine = Engine.of(first.checkpoint, make_plan(activations=activations))
        drafts.append(engine._pass(PROMPT[:5], range(-1, 4), use_residual=False).copy())
        checks.append(engine._pass(PROMPT[:5], range(-1, 4)).copy())
    assert all(np.array_equal(one, drafts[0]) for one in drafts)
    assert all(not np.array_equal(*pair) for pair in itertools.combinations(checks, 2))


def test_engines_of_one_checkpoint_round_each_for_itself(make_checkpoint: Make, make_plan: MakePlan) -> None:
    first = Engine.load(make_checkpoint(), make_plan())
    second = Engine.of(first.checkpoint, make_plan(activations="int8"))
    third = Engine.of(second.checkpoint, make_plan())
    logits = [engine.forward_logits(PROMPT) for engine in (first, second, third, first)]
    assert np.array_equal(logits[0], logits[2]) and np.array_equal(logits[0], logits[3])
    assert not np.array_equal(logits[0], logits[1])
    groups = first.checkpoint.weights()
    assert {name: one.base_planes for name, one in second.checkpoint.weights().items()} == dict.fromkeys(groups, 1)
    assert first.checkpoint.group("lm_head").base_codes is not None and second.checkpoint.path == first.checkpoint.path


def test_the_cache_is_reused_between_prompts(make_checkpoint: Make, make_plan: MakePlan) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(prefill_chunk=16))
    fresh = Engine.load(engine._checkpoint.path, make_plan(prefill_chunk=16))
    done: list[tuple[int, int]] = []
    assert engine.prefill(PROMPT[:40], lambda *step: done.append(step)) == 0
    assert done == [(0, 39), (16, 39), (32, 39), (39, 39)]
    assert engine.prefill(PROMPT[:40]) == 39
    assert engine.prefill([*PROMPT[:25], 1, 2, 3]) == 25
    fresh.prefill([*PROMPT[:25], 1, 2, 3])
    assert engine.step().tokens == fresh.step().tokens
    assert engine.prefill([9]) == 0 and engine.cached_tokens == 0
    engine.prefill(PROMPT[:40])
    engine.truncate(10)
    assert engine.tokens == PROMPT[:10] and engine.cached_tokens == 9
    engine.reset()
    assert (engine.tokens, engine.cached_tokens, engine.room) == ([], 0, 128)


@pytest.mark.parametrize(
    ("kernels", "stop_ats"),
    [
        ("naive", (6, 80, 111, 180, 261, 500, 777, 1000)),
        pytest.param("cpu", (1, 2, 5, 14, 17, 24, 39, 60), marks=needs_native),
    ],
)
def test_an_interruption_anywhere_leaves_an_engine_that_continues(
    make_checkpoint: Make, make_plan: MakePlan, kernels: Any, stop_ats: tuple[int, ...]
) -> None:
    folder = make_checkpoint()
    expected = text(Engine.load(folder, make_plan(draft_nodes=2)), SAMPLED)
    engine = Engine.load(folder, make_plan(draft_nodes=2, prefill_chunk=10), kernels=kernels)
    calls = {"n": 0, "stop_at": 0}

    def counted(run: Callable[[Any], None]) -> Callable[[Any], None]:
        def tick() -> None:
            calls["n"] += 1
            if calls["n"] == calls["stop_at"]:
                raise KeyboardInterrupt

        def call(what: Any) -> None:
            tick()
            run(what)
            tick()

        return call

    player: Any = engine._player
    if kernels == "naive":  # between the operations of a pass
        player._run = {name: counted(run) for name, run in player._run.items()}
    else:  # a native pass is never interrupted in its middle
        player.play = counted(player.play)
    stops = 0
    for stop_at in stop_ats:
        engine.reset()
        calls.update(n=0, stop_at=stop_at)
        found: list[int] = []
        try:
            for result in generate(engine, PROMPT, SAMPLED, max_tokens=24):
                found += result.tokens
        except KeyboardInterrupt:
            stops += 1
            assert engine.tokens == [*PROMPT, *found][: len(engine.tokens)]
            assert engine.cached_tokens < max(len(engine.tokens), 1)
        while len(found) < 24:
            found += generate(engine, [*PROMPT, *found], SAMPLED, max_tokens=1).__next__().tokens
        assert found == expected
    assert stops >= 6


def test_the_context_fills(make_checkpoint: Make, make_plan: MakePlan) -> None:
    folder = make_checkpoint()
    expected = text(Engine.load(folder, make_plan()), SamplingParams(), 15)
    engine = Engine.load(folder, make_plan(context_tokens=90, draft_nodes=6))
    results = list(generate(engine, PROMPT, SamplingParams()))
    assert results[-1].finish == "context" and [t for r in results for t in r.tokens] == expected
    assert len(engine.tokens) == 90 and engine.room == 0
    with pytest.raises(ContextFull, match="the context is full") as error:
        engine.step()
    assert error.value.hint
    with pytest.raises(ContextFull) as error:
        engine.prefill([1] * 91)
    assert (error.value.found, error.value.needed) == ("91 tokens", "at most 90 tokens")
    assert engine.tokens[:75] == PROMPT  # a refused prompt changes nothing


def test_misuse(make_checkpoint: Make, make_plan: MakePlan) -> None:
    engine = Engine.load(make_checkpoint(), make_plan())
    with pytest.raises(ValueError, match="prefill first"):
        engine.step()
    for tokens in ([], [-1], [117]):
        with pytest.raises(ValueError, match="0 to 116"):
            engine.prefill(tokens)
    with pytest.raises(ValueError, match="cannot keep"):
        engine.truncate(1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"device": "cuda"}, EngineUnavailable),
        ({"resident_linears": ("lm_head",)}, EngineUnavailable),
        ({"context_tokens": 513}, InvalidOption),
        ({"residual_bits": 5}, InvalidOption),
    ],
)
def test_plans_that_cannot_be_followed(
    make_checkpoint: Make, make_plan: MakePlan, change: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Engine.load(make_checkpoint(), make_plan(**change))


def test_a_planted_bad_scale_is_an_error_never_a_token(make_checkpoint: Make, make_plan: MakePlan) -> None:
    folder = make_checkpoint()
    path = folder / "residual-00001-of-00003.safetensors"
    tensors = dict(load_file(path))
    name = "model.layers.0.mlp.down.residual_scales"
    scales = tensors[name].copy()
    scales[0, 0, 0] = np.nan
    tensors[name] = scales
    save_file(tensors, path)
    engine = Engine.load(folder, make_plan(draft_nodes=2))
    engine.prefill(PROMPT)
    with pytest.raises(EngineFailed, match="not finite"):
        engine.step()
    with pytest.raises(EngineFailed, match="not finite"):
        engine.forward_logits(PROMPT[:3])


def test_memory_is_what_was_allocated(make_checkpoint: Make, make_plan: MakePlan) -> None:
    folder = make_checkpoint()
    report = Engine.load(folder, make_plan(context_tokens=100, draft_nodes=3)).memory_report()
    assert report["weights_mapped"] == sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert report["kv_cache"] == 2 * (100 + 4) * 2 * (12 + 12) * 2
    assert all(value > 0 for value in report.values())
    wide = Engine.load(folder, make_plan(context_tokens=100, prefill_chunk=64)).memory_report()
    assert wide["buffers"] > report["buffers"]


def test_missing_native_kernels_are_announced_once(
    make_checkpoint: Make, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint()
    monkeypatch.setattr(backend, "_native", lambda: (None, "no compiler was found"))
    monkeypatch.setattr(backend, "_announced", set())
    with pytest.warns(backend.SlowKernels, match="no compiler was found"):
        engine = Engine.load(folder, make_plan())
    assert (engine.backend.name, engine.backend.reason) == ("naive", "no compiler was found")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Engine.load(folder, make_plan())
    with pytest.raises(EngineUnavailable, match="no compiler was found") as error:
        Engine.load(folder, make_plan(), kernels="cpu")
    assert error.value.hint and "pip install" in error.value.hint


def test_running_does_not_import_torch(make_checkpoint: Make, make_plan: MakePlan, tmp_path: Path) -> None:
    folder = make_checkpoint()
    (tmp_path / "plan.json").write_text(make_plan(draft_nodes=1).to_json())
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from twofold.engine.engine import Engine\n"
        "from twofold.engine.generate import generate\n"
        "from twofold.planner.plan import Plan\n"
        "engine = Engine.load(sys.argv[1], Plan.from_json(Path(sys.argv[2]).read_text()))\n"
        "print(sum(len(r.tokens) for r in generate(engine, [1, 2, 3], max_tokens=5)))\n"
        "print([name for name in ('torch', 'transformers', 'twofold.probes', 'twofold.cli') if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", code, str(folder), str(tmp_path / "plan.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[:2] == ["5", "[]"]


def test_closing_lets_go(make_checkpoint: Make, make_plan: MakePlan) -> None:
    engine = Engine.load(make_checkpoint(), make_plan())
    engine.prefill(PROMPT)
    engine.close()
    engine.close()
    assert engine.tokens == []
