"""The benchmark on random checkpoints: checks before speeds, drafts keep the text, passes commit nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twofold.engine.backend import choose_backend
from twofold.engine.bench.decode import Answer, Setting, check_same_text, time_decoding, time_prefill, tokens_per_check
from twofold.engine.bench.kernels import kernel_rule, time_kernels, weight_bytes
from twofold.engine.bench.operations import time_operations
from twofold.engine.bench.passes import time_passes
from twofold.engine.bench.prompts import KINDS, BenchTexts, shipped_prompts
from twofold.engine.bench.report import BenchOptions
from twofold.engine.bench.rounds import Rule
from twofold.engine.bench.self_check import check_kernels
from twofold.engine.checkpoint import Checkpoint
from twofold.engine.engine import Engine
from twofold.kernels.cpu import missing_reason
from twofold.kernels.naive import ops as naive
from twofold.profiles.errors import EngineFailed, EngineUnavailable, InvalidOption

needs_native = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
ONCE = Rule(repeats=1)
TWICE = Rule(repeats=2)


@pytest.fixture
def folder(make_checkpoint: Callable[..., Path]) -> Path:
    return make_checkpoint()


def _texts(n_long: int = 40) -> dict[Any, BenchTexts]:
    rng = np.random.default_rng(3)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, 117, n).tolist())

    return {kind: BenchTexts((draw(9), draw(14), draw(5)), draw(n_long)) for kind in KINDS}


def _broken(name: str) -> SimpleNamespace:
    """numpy's operations, one of them off by the last bit of one value."""
    ops = {one: getattr(naive, one) for one in naive.__all__ if one != "SplitWeights"}
    right = ops[name]

    def wrong(*arguments: Any, out: Any = None, **options: Any) -> Any:
        y = right(*arguments, out=out, **options)
        y.reshape(-1).view(np.uint32)[-1] ^= 1
        return y

    return SimpleNamespace(**(ops | {name: wrong}))


@pytest.mark.parametrize("kernels", ["naive", pytest.param("cpu", marks=needs_native)])
def test_right_kernels_pass_the_check(folder: Path, kernels: Any) -> None:
    check = check_kernels(Checkpoint.open(folder), choose_backend(kernels, 1, "auto").ops, range(3, 8))
    assert check.to_json()["equal_bits"] is True


@pytest.mark.parametrize("name", ["split_linear", "rms_norm", "rope", "attention", "silu_mul", "add", "embed"])
def test_one_wrong_bit_in_any_operation_refuses_a_speed(folder: Path, name: str) -> None:
    with pytest.raises(EngineFailed, match="no speed is reported"):
        check_kernels(Checkpoint.open(folder), _broken(name), range(3, 8))


@needs_native
def test_operations_are_profiled_on_the_native_tape_alone(folder: Path, make_plan: Callable[..., Any]) -> None:
    text = list(range(20))
    found = time_operations(Engine.load(folder, make_plan(), kernels="cpu"), text, (1, 4), 2)
    assert {one.rows for one in found} == {1, 4} and {one.time_us.n for one in found} == {2}
    assert [one.share for one in found if one.rows == 4] == sorted(one.share for one in found if one.rows == 4)[::-1]
    with pytest.raises(EngineUnavailable, match="native kernels"):
        time_operations(Engine.load(folder, make_plan(), kernels="naive"), text, (1,), 2)


def test_wrong_draft_products_alone_are_found(folder: Path) -> None:
    ops = _broken("split_linear")
    wrong = ops.split_linear
    ops.split_linear = lambda x, w, residual, out=None: (naive.split_linear if residual else wrong)(
        x, w, residual, out=out
    )
    with pytest.raises(EngineFailed, match="without the residual"):
        check_kernels(Checkpoint.open(folder), ops, range(3, 8))


def _settings(folder: Path, make_plan: Callable[..., Any], **chain: int) -> list[Setting]:
    plain = Setting("plain", Engine.load(folder, make_plan(), kernels="naive"))
    return [plain, Setting("chain", Engine.load(folder, make_plan(**chain), kernels="naive"))]


def test_answers_are_timed_and_a_chain_keeps_the_text(folder: Path, make_plan: Callable[..., Any]) -> None:
    settings = _settings(folder, make_plan, draft_nodes=4, draft_depth=4)
    speeds = time_decoding(settings, _texts(), 7, TWICE)
    plain, chain = settings
    assert set(plain.answers) == set(chain.answers) == {(kind, i) for kind in KINDS for i in (0, 1)}
    for key, answer in plain.answers.items():
        assert len(answer.tokens) == answer.checks == 7
        assert chain.answers[key].tokens == answer.tokens
    both = speeds["chain"].both
    slow, fast = sorted(speeds["chain"].kinds[kind].samples[0] for kind in KINDS)
    assert slow <= both.samples[0] <= fast and len(both.samples) == 2
    assert tokens_per_check(plain).value == 1
    figure = tokens_per_check(chain)
    checks = sum(answer.checks for answer in chain.answers.values())
    accepted = sum(answer.accepted for answer in chain.answers.values())
    assert (figure.n, figure.value) == (checks, pytest.approx(1 + accepted / checks, rel=1e-3))
    assert 1 <= figure.number <= 5
    one = tokens_per_check(chain, "code")
    assert one.n == sum(answer.checks for (kind, _), answer in chain.answers.items() if kind == "code")


def test_a_text_changed_by_drafts_refuses_a_speed(folder: Path, make_plan: Callable[..., Any]) -> None:
    plain, chain = _settings(folder, make_plan, draft_nodes=4, draft_depth=4)
    time_decoding([plain, chain], _texts(), 5, ONCE)
    right = chain.answers["code", 0]
    chain.answers["code", 0] = Answer((*right.tokens[:3], right.tokens[3] ^ 1, right.tokens[4]), 2, 3)
    with pytest.raises(EngineFailed, match="differs from the plain text") as caught:
        check_same_text(plain, chain)
    assert "code prompt 1, token 4" in str(caught.value.found)
    chain.answers["code", 0] = Answer(right.tokens[:3], 2, 1)
    with pytest.raises(EngineFailed):
        check_same_text(plain, chain)


def test_a_prompt_is_computed_whole_every_round(folder: Path, make_plan: Callable[..., Any]) -> None:
    engine = Engine.load(folder, make_plan(), kernels="naive")
    computed: list[int] = []
    prefill = engine.prefill
    engine.prefill = lambda text, *rest: computed.append(len(text) - 1 - prefill(text, *rest)) or 0  # type: ignore[method-assign]
    speed = time_prefill(engine, _texts(), 30, TWICE)
    assert computed[-4:] == [30] * 4
    assert all(sample > 0 for sample in speed.both.samples)


def test_passes_are_timed_behind_the_stated_depth_and_commit_nothing(
    folder: Path, make_plan: Callable[..., Any]
) -> None:
    engine = Engine.load(folder, make_plan(draft_nodes=4), kernels="naive")
    text = _texts(25)["prose"].long
    found = time_passes(engine, text, (1, 5), Rule(repeats=3, warm_rounds=2))
    assert [(one.rows, one.residual) for one in found] == [(1, True), (1, False), (5, True), (5, False)]
    assert engine.cached_tokens == 20
    for one in found:
        assert one.latency_us.number > 0 and one.latency_us.n == 3
        assert "20 cached tokens" in one.latency_us.by
    with pytest.raises(ValueError, match="cannot hold"):
        time_passes(engine, text[:5], (1, 5), ONCE)


def test_a_dry_pass_gives_the_logits_of_the_real_one(folder: Path, make_plan: Callable[..., Any]) -> None:
    engine = Engine.load(folder, make_plan(draft_nodes=4), kernels="naive")
    text = _texts(12)["code"].long
    for use_residual in (True, False):
        expected = engine.forward_logits(text, use_residual=use_residual)
        found = engine.dry_pass(text[:5], use_residual=use_residual).copy()
        assert np.array_equal(found, expected[:5])
        assert engine.cached_tokens == 0


@needs_native
def test_kernels_are_timed_for_every_shape_width_and_product(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    times, _ = time_kernels(checkpoint, ["generic"], 1, (1, 3), repeats=3)
    keys = {(one.group, one.rows, one.residual) for one in times}
    names = ("self_attn.qkv", "self_attn.o", "mlp.gate_up", "mlp.down", "lm_head")
    assert keys == {(name, rows, residual) for name in names for rows in (1, 3) for residual in (True, False)}
    down = checkpoint.group("model.layers.0.mlp.down")
    for one in times:
        assert one.gb_s.number == pytest.approx(one.weight_bytes / one.latency_us.number / 1e3, rel=2e-3)
        if one.group == "mlp.down":
            assert one.weight_bytes == weight_bytes(down, one.residual)
            assert (one.out_features, one.in_features) == (72, 96)
    # 2 bits and a scale for 96 inputs of 80 padded rows; the residual adds 6 bits and its scale
    assert weight_bytes(down, False) == 80 * (96 // 4 + 2)
    assert weight_bytes(down, True) - weight_bytes(down, False) == 80 * (96 * 6 // 8 + 2)


def test_prompts_of_both_kinds_ship() -> None:
    for kind in KINDS:
        prompts = shipped_prompts(kind)
        assert len(prompts) == 8 == len(set(prompts))
        assert min(map(len, prompts)) > 100


def test_options_that_cannot_be_timed_are_refused() -> None:
    for wrong in (
        {"tokens": 0},
        {"prompt_tokens": 0},
        {"repeats": 0},
        {"widths": ()},
        {"widths": (1, 1)},
        {"widths": (0,)},
        {"widths": (1, 4096)},
    ):
        with pytest.raises(InvalidOption):
            BenchOptions(**wrong)  # type: ignore[arg-type]


def test_few_rounds_shorten_warming_up_as_well() -> None:
    assert kernel_rule(1, 20.0).warm_rounds == 1 == kernel_rule(1, 20.0).repeats
    assert kernel_rule(None, 2.0).warm_rounds == kernel_rule(9, 2.0).warm_rounds == 3
