"""What else would serve: the ranking by speed and quality, and advice that does not favour twofold."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from twofold.planner.alternatives import Choice
from twofold.planner.machine import MachineBudget, with_vram
from twofold.planner.quality import RANK
from twofold.planner.request import QualityFloor, Request
from twofold.planner.verdict import fit
from twofold.profiles.model_spec import ModelSpec

Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]


def _order(one: Choice, floor: str) -> tuple[int, bool, bool, float]:
    unsplit = one.whole_on_card and one.quality == "q8"
    speed = one.compared.number if one.compared.is_known else 0.0
    below = one.quality is not None and RANK[one.quality] < RANK[floor]
    return {True: 0, None: 1, False: 2}[one.serves], below, not unsplit, -speed


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


def test_beaten_by_is_true(shipped: Shipped, card_and_host: Machines) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090"), Request(context_tokens=32768))
    beaten = {one.what: one.beaten_by for one in report.choices}
    q8, own = (next(c for c in report.choices if c.what.startswith(word)) for word in ("Q8_0", "2-bit"))
    assert own.compared.number > q8.compared.number and own.quality == q8.quality
    assert beaten["Q8_0"] == "twofold, 2-bit base + 6-bit residual"
    assert beaten["Q4_K_M"] is None, "nothing of its speed is better"


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
