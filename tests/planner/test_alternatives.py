"""What else would serve: the ranking by speed and quality, and advice that does not favour twofold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.planner.alternatives import Choice, name_of, ranked
from twofold.planner.machine import MachineBudget, with_vram
from twofold.planner.quality import RANK
from twofold.planner.request import QualityFloor, Request
from twofold.planner.verdict import fit
from twofold.profiles.model_spec import ModelSpec

Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]


def _order(one: Choice, floor: str) -> tuple[bool, bool, int, bool, bool, float]:
    unsplit = one.whole_on_card and one.quality in ("q8", None)
    speed = one.compared.number if one.compared.is_known else 0.0
    below = one.quality is not None and RANK[one.quality] < RANK[floor]
    severity = {True: 0, None: 1, False: 2}[one.serves]
    return one.serves is False, not one.runnable, severity, below, not unsplit, -speed


@pytest.mark.parametrize("floor", ["q8", "q6", "q4"])
@pytest.mark.parametrize("card", ["RTX 3060 12GB", "RTX 4080", "RTX 4090", "RTX 5090"])
def test_ranked_by_memory_floor_and_speed(shipped: Shipped, card_and_host: Machines, card: str, floor: str) -> None:
    request = Request(context_tokens=16384, quality=QualityFloor.parse(floor))
    report = fit(shipped("google/gemma-4-31B-it"), card_and_host(card), request)
    keys = [_order(one, floor) for one in report.choices]
    assert keys == sorted(keys)
    assert {one.engine for one in report.choices} == {"twofold", "llama.cpp"}
    assert [one.command for one in report.choices if one.engine == "llama.cpp"] == [
        one.command for one in report.alternatives
    ]


def test_every_way_says_mib_speed_and_a_command(shipped: Shipped, card_and_host: Machines) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090"), Request(context_tokens=32768))
    found = json.loads(json.dumps(report.to_json()))
    assert [one["quant"] for one in found["alternatives"]] == [
        one["what"] for one in found["choices"] if one["engine"] == "llama.cpp"
    ]
    for one in found["alternatives"]:
        assert one["vram_mib"]["low"] < one["vram_mib"]["high"]
        assert one["tok_s"]["low"] < one["tok_s"]["high"]
        assert one["quality"] in RANK
        layers = 99 if one["fits_card"] else one["layers_on_card"]
        kind = report.plan.k_type
        assert one["command"].endswith(f"-c 32768 -ctk {kind} -ctv {kind} -fa on -ngl {layers}")


@pytest.mark.parametrize("ram_gib", [None, 8, 64])
@pytest.mark.parametrize("card", ["RTX 3060 12GB", "RTX 4090", "RTX 5090"])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "google/gemma-4-31B-it", "Qwen/Qwen3.8-27B"])
def test_order_remarks_and_advice_agree(
    shipped: Shipped, card_and_host: Machines, card_alone: Machines, model: str, card: str, ram_gib: int | None
) -> None:
    machine = card_alone(card) if ram_gib is None else card_and_host(card, ram_gib=ram_gib)
    report = fit(shipped(model), machine, Request(context_tokens=8192))
    names = [name_of(one) for one in report.choices]
    for rank, one in enumerate(report.choices):
        if one.beaten_by is None:
            continue
        better = names.index(one.beaten_by)
        assert better < rank, "what beats a way stands above it"
        assert report.choices[better].runnable
        low, high = report.choices[better].compared.low, one.compared.high
        assert low is not None and high is not None and one.beaten_how is not None
        assert "likely" in one.beaten_how or low > high
    first = report.choices[0]
    assert first.runnable or all(not one.runnable or one.serves is False for one in report.choices)
    if report.advice is not None:
        advised = next(one for one in report.choices if report.advice.endswith(one.command))
        assert advised is first or first.what in report.advice


def test_a_way_that_does_not_run_beats_none(shipped: Shipped, card_alone: Machines) -> None:
    """Q8_0 wholly on the card, and a plan of the same class with wider and higher figures that nothing runs yet."""
    report = fit(shipped("Qwen/Qwen3-8B"), card_alone("RTX 3060 12GB"), Request(context_tokens=8192))
    q8, own = (next(c for c in report.choices if c.what.startswith(word)) for word in ("Q8_0", "2-bit"))
    assert q8.whole_on_card and not own.runnable and own.compared.number > 1.05 * q8.compared.number
    assert report.choices[0] is q8 and q8.beaten_by is None
    assert report.advice is not None and report.advice.startswith("Q8_0 fits this card: use llama.cpp: ")


def test_once_it_runs_a_faster_way_beats_a_split_file(shipped: Shipped, card_and_host: Machines) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090"), Request(context_tokens=32768))
    assert all(one.beaten_by is None or not one.beaten_by.startswith("twofold") for one in report.choices)
    able = [replace(one, runnable=True) for one in report.choices]
    found = {one.what: one for one in ranked(able, Request())}
    q8, own = found["Q8_0"], next(one for one in found.values() if one.engine == "twofold")
    assert own.compared.number > q8.compared.number and own.quality == q8.quality
    assert q8.beaten_by == "twofold, 2-bit base + 6-bit residual"
    assert q8.beaten_how is not None and q8.beaten_how.startswith("of the same class and ")
    assert found["Q4_K_M"].beaten_by is None, "nothing of its speed is better"


def test_the_advice_says_whose_speed_it_compares(shipped: Shipped, card_alone: Machines) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_alone("RTX 4090"), Request(context_tokens=32768))
    assert report.advice is not None and report.advice.startswith("Q4_K_M fits this card wholly, at lower quality")
    own = next(one for one in report.choices if one.engine == "twofold").compared
    assert f"{own.low:.3g} to {own.high:.3g} tok/s* of twofold's plan" in report.advice  # * the host's speed is assumed


def test_a_27b_on_a_5090_is_for_llama_cpp(shipped: Shipped, card_alone: Machines) -> None:
    for context in (8192, 16384):
        report = fit(shipped("Qwen/Qwen3.8-27B"), card_alone("RTX 5090"), Request(context_tokens=context))
        assert report.advice is not None
        assert report.advice.startswith("Q8_0 fits this card: use llama.cpp: llama-server -hf ")
        assert report.choices[0].what == "Q8_0"


def test_on_the_cpu_the_faster_engine_is_named(shipped: Shipped, machine: Machines) -> None:
    report = fit(shipped("Qwen/Qwen3-8B"), machine(), Request())
    own = next(one for one in report.choices if one.engine == "twofold")
    q8 = next(one for one in report.choices if one.what == "Q8_0")
    assert report.advice is not None
    is_faster = q8.compared.number > 1.05 * own.compared.number
    assert report.advice.startswith("use llama.cpp: ") == is_faster


def test_where_nothing_fits_no_way_is_praised(shipped: Shipped, card_and_host: Machines) -> None:
    machine = with_vram(card_and_host("RTX 3060 12GB", ram_gib=4), 4000)
    report = fit(shipped("google/gemma-4-31B-it"), machine, Request())
    assert report.verdict == "does_not_fit"
    assert all(one.serves is False for one in report.choices)
    assert report.advice is None


def test_without_a_host_speeds_are_compared_on_a_nominal_one_and_not_claimed(
    shipped: Shipped, card_alone: Machines
) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_alone("RTX 4090"), Request(context_tokens=32768))
    own = next(one for one in report.choices if one.engine == "twofold")
    assert not own.tok_s.is_known and own.compared.is_known
    assert report.evaluation.speed.decode_tok_s.source == "unknown"


def test_kl_is_reported_or_unknown(shipped: Shipped, card_and_host: Machines) -> None:
    machine = card_and_host("RTX 3060 12GB")
    known = fit(shipped("google/gemma-4-12B-it"), machine, Request(kv_type="f16"))
    assert known.kl.source == "reported" and known.kl.number == 0.0020
    assert "without the rounding" not in known.kl.by
    cached = fit(shipped("google/gemma-4-12B-it"), machine, Request(kv_type="q8_0"))
    assert "without the rounding of a K q8_0, V q8_0 cache" in cached.kl.by
    assert fit(shipped("google/gemma-4-31B-it"), machine, Request()).kl.source == "unknown"
