"""Seconds: ordered ranges, unknown where a bandwidth is, and one reported case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.planner.knobs import Knobs
from twofold.planner.latency import Speed, SpeedModel, estimate_speed
from twofold.planner.machine import MachineBudget
from twofold.planner.propose import place_on_card
from twofold.planner.rates import PRODUCTS
from twofold.profiles.figures import Figure
from twofold.profiles.model_spec import ModelSpec

CPU = Knobs("cpu", 8192, 6, "f16", "f16", (), 0, 0, 64, 8, "avx512")


def _figures(speed: Speed) -> list[Figure]:
    return [getattr(speed, name) for name in speed.__dataclass_fields__]


def test_ranges_are_ordered(shipped: Callable[[str], ModelSpec], card_and_host: Callable[..., MachineBudget]) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090")
    card = machine.cards[0]
    knobs = place_on_card(spec, CPU.with_(device="cuda", draft_nodes=8, draft_depth=4), card, 512)
    for figure in _figures(estimate_speed(spec, knobs, card, machine.host)):
        assert figure.source == "reasoned", figure
        assert figure.low is not None and figure.high is not None
        assert figure.low < figure.number < figure.high


def test_unknown_bandwidth_gives_unknown_speed(
    shipped: Callable[[str], ModelSpec], machine: Callable[..., MachineBudget]
) -> None:
    speed = estimate_speed(shipped("Qwen/Qwen3-8B"), CPU, None, machine(gb_s=None).host)
    assert not speed.decode_tok_s.is_known
    assert "RAM bandwidth" in speed.decode_tok_s.by
    assert not speed.ttft_1k_s.is_known


def test_a_card_alone_knows_its_draft_but_not_its_check(
    shipped: Callable[[str], ModelSpec], card_alone: Callable[[str], MachineBudget]
) -> None:
    card = card_alone("RTX 4090").cards[0]
    speed = estimate_speed(shipped("google/gemma-4-31B-it"), CPU.with_(device="cuda"), card, None)
    assert speed.draft_pass_ms.is_known
    assert not speed.check_ms.is_known
    assert "host is unknown" in speed.decode_tok_s.by


def test_cpu_decode_is_bytes_over_bandwidth(
    shipped: Callable[[str], ModelSpec], machine: Callable[..., MachineBudget]
) -> None:
    """An 8B at 6 + 2 bits moves about 7.6 GiB a token: at 40 GB/s never above 5 tok/s, and twice the speed with twice
    the RAM.
    """
    spec = shipped("meta-llama/Llama-3.1-8B")
    slow = estimate_speed(spec, CPU, None, machine(gb_s=40.0).host).decode_tok_s
    fast = estimate_speed(spec, CPU, None, machine(gb_s=80.0).host).decode_tok_s
    assert slow.high is not None and slow.high < 40e9 / 7.6e9
    assert 1.7 < fast.number / slow.number <= 2.01


def test_longer_contexts_are_slower(shipped: Callable[[str], ModelSpec], machine: Callable[..., MachineBudget]) -> None:
    speed = estimate_speed(shipped("Qwen/Qwen3-8B"), CPU, None, machine().host)
    assert speed.decode_full_tok_s.number < speed.decode_tok_s.number
    assert speed.ttft_8k_s.number > 7 * speed.ttft_1k_s.number


def test_a_prompt_longer_than_the_context_has_no_first_token(
    shipped: Callable[[str], ModelSpec], machine: Callable[..., MachineBudget]
) -> None:
    speed = estimate_speed(shipped("Qwen/Qwen3-8B"), CPU.with_(context_tokens=4096), None, machine().host)
    assert speed.ttft_1k_s.is_known
    assert not speed.ttft_8k_s.is_known


def test_arithmetic_follows_the_planes(
    shipped: Callable[[str], ModelSpec], machine: Callable[..., MachineBudget]
) -> None:
    """Where it is the bound: a prompt's passes, and a check of many rows, but no draft; memory-bound passes are as they
    were.
    """
    spec, host = shipped("Qwen/Qwen3-8B"), machine(gb_s=1e4).host
    knobs = CPU.with_(draft_nodes=32, draft_depth=4)
    seconds = {
        activations: SpeedModel(spec, knobs.with_(activations=activations), None, host)
        for activations in ("int16", "int8", "int16/int8")
    }
    rate = replace(seconds["int16"].cases[1], layer_s=0.0)
    checks = {name: model.work.verify_seconds(0, rate) for name, model in seconds.items()}
    prompts = {name: model.work.prefill_seconds(64, rate) for name, model in seconds.items()}
    drafts = {name: model.work.draft_seconds(0, rate) for name, model in seconds.items()}
    assert checks["int16"] and prompts["int16"] and drafts["int16"]
    share = PRODUCTS[1] / PRODUCTS[2]
    assert 0.5 < share < 1  # weights are decoded once for both planes
    assert checks["int8"] == pytest.approx(checks["int16"] * share) == pytest.approx(prompts["int8"] * 33 / 64)
    assert checks["int16/int8"] == pytest.approx(checks["int16"] * (1 + share) / 2)
    assert drafts["int16"] == drafts["int16/int8"] == drafts["int8"] == pytest.approx(checks["int8"] / 66)
    slow = machine(gb_s=1.0).host
    found = [estimate_speed(spec, CPU.with_(activations=one), None, slow).decode_tok_s for one in ("int16", "int8")]
    assert found[0].number == found[1].number
