"""A quality floor that is a KL: met, missed, or not judged, and what it leaves to plan with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.machine import MachineBudget
from twofold.planner.quality_floor import judge_floor, with_known_kl
from twofold.planner.rank import rank_models
from twofold.planner.report import FitReport
from twofold.planner.request import QualityFloor, Request
from twofold.planner.verdict import fit
from twofold.profiles.errors import InvalidOption
from twofold.profiles.figures import reported, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.shipped import shipped_specs

Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]
SMOL = "HuggingFaceTB/SmolLM2-135M-Instruct"  # 6 bits: 0.00101, with int8 activations 0.00187, Q8_0 0.00109


def floored(text: str, **asked: object) -> Request:
    return Request(quality=QualityFloor.parse(text), **asked)  # type: ignore[arg-type]


def judged(shipped: Shipped, machine: MachineBudget, model: str, text: str) -> FitReport:
    return fit(shipped(model), machine, floored(text))


def test_a_floor_that_nobody_can_judge_does_not_look_met(shipped: Shipped, card_and_host: Machines) -> None:
    report = judged(shipped, card_and_host("RTX 4090"), "meta-llama/Llama-3.1-8B", "0.00001")
    assert (report.verdict, report.exit_code) == ("fits", 0)
    assert (report.floor.state, report.floor.clause) == ("not_judged", "quality floor not judged")
    assert report.floor.words is not None
    assert "twofold eval meta-llama/Llama-3.1-8B --residual-bits 8 measures it" in report.floor.words
    document = report.to_json()
    assert (document["quality_floor"], document["min_quality"]) == ("not_judged", "KL 1e-05")


def test_a_floor_that_is_known_to_be_missed_is_no_success(shipped: Shipped, card_and_host: Machines) -> None:
    report = judged(shipped, card_and_host("RTX 4090"), "google/gemma-4-12B-it", "0.0005")
    assert (report.verdict, report.exit_code) == ("fits", 4)
    assert report.to_json()["quality_floor"] == "not_met"
    assert report.floor.clause == "below the quality floor"


@pytest.mark.parametrize("floor", ["q8", "q6", "q4"])
def test_a_class_is_kept_by_the_plan_itself(shipped: Shipped, card_and_host: Machines, floor: str) -> None:
    report = judged(shipped, card_and_host("RTX 4090"), "meta-llama/Llama-3.1-8B", floor)
    assert report.to_json()["quality_floor"] == "met" and report.floor.words is None


@pytest.mark.parametrize(
    ("model", "floor", "bits"),
    [
        (SMOL, "0.002", 6),
        (SMOL, "0.00101", 6),
        (SMOL, "0.001", 8),
        ("google/gemma-4-12B-it", "0.002", 6),
        ("google/gemma-4-12B-it", "0.001", 7),
        ("google/gemma-4-12B-it", "0.00088", 8),
        ("Qwen/Qwen3-8B", "0.1", 8),
    ],
)
def test_the_fewest_bits_that_are_known_to_meet_it(
    shipped: Shipped, card_and_host: Machines, model: str, floor: str, bits: int
) -> None:
    report = judged(shipped, card_and_host("RTX 4090"), model, floor)
    assert report.plan.residual_bits == bits
    assert (report.floor.state == "met") is report.kl.is_known
    assert report.plan.k_type == "f16"


def test_what_was_measured_here_counts(shipped: Shipped, card_and_host: Machines) -> None:
    kl = reported(0.004, "nats", "twofold eval of this checkpoint")
    spec, machine = shipped("Qwen/Qwen3-8B"), card_and_host("RTX 4090")
    report = fit(spec, machine, floored("0.005"), measured_kl={(5, "int16"): kl})
    assert (report.plan.residual_bits, report.floor.state, report.kl) == (5, "met", kl)
    missed = fit(spec, machine, floored("0.003"), measured_kl={(5, "int16"): kl})
    assert (missed.plan.residual_bits, missed.floor.state) == (8, "not_judged")


def test_a_width_that_was_asked_for_is_refused_only_where_its_kl_is_known() -> None:
    with pytest.raises(InvalidOption, match="6 residual bits are below the quality floor"):
        with_known_kl(floored("0.001", residual_bits=6), SMOL, {}).bits()
    with pytest.raises(InvalidOption, match="below the quality floor") as refused:
        with_known_kl(floored("0.001", fixed_bits=6), SMOL, {}).bits()
    assert "quantize" in str(refused.value.hint)
    assert with_known_kl(floored("0.001", residual_bits=5), SMOL, {}).bits() == 5
    assert with_known_kl(floored("0.002", fixed_bits=6), SMOL, {}).bits() == 6


def test_int8_activations_where_their_kl_is_known() -> None:
    assert with_known_kl(floored("0.0019", activations="int8"), SMOL, {}).rounding() == "int8"
    for model, floor in ((SMOL, "0.0018"), ("Qwen/Qwen3-8B", "0.1")):
        with pytest.raises(InvalidOption, match="or nobody measured their KL"):
            with_known_kl(floored(floor, activations="int8"), model, {}).rounding()


def test_a_class_floor_is_left_alone() -> None:
    request = Request(quality=QualityFloor.parse("q6"))
    assert with_known_kl(request, SMOL, {}) is request


def test_ways_below_a_kl_floor_stand_below_those_above_it(shipped: Shipped, card_and_host: Machines) -> None:
    """Q8_0's 0.00109 misses a floor of 0.00105 that 6 bits with 0.00101 meet."""
    report = judged(shipped, card_and_host("RTX 4090"), SMOL, "0.00105")
    found = {one.what if one.engine == "llama.cpp" else "twofold": one.meets_floor for one in report.choices}
    assert found == {"twofold": True, "Q8_0": False, "Q6_K": None, "Q4_K_M": None}
    order = [one.meets_floor for one in report.choices if one.runnable]
    assert order == [None, None, False]
    assert next(one for one in report.choices if one.what == "Q8_0").floor_words == "below the quality floor"
    assert report.advice is None or "Q8_0 fits" not in report.advice


def test_without_a_floor_the_order_says_nothing_of_it(shipped: Shipped, card_and_host: Machines) -> None:
    report = fit(shipped(SMOL), card_and_host("RTX 4090"), Request(quality=QualityFloor.parse("q4")))
    assert all(one.floor_words is None for one in report.choices)


def test_the_ranking_says_which_models_were_judged(card_and_host: Machines) -> None:
    rows = rank_models(shipped_specs(), card_and_host("RTX 5090"), floored("0.0005"))
    states = {row.model: row.floor.state for row in rows}
    assert states["google/gemma-4-12B-it"] == "not_met" and states["Qwen/Qwen3.5-4B"] == "met"
    assert states["Qwen/Qwen3-8B"] == "not_judged"
    fitting = [row.floor.state for row in rows if row.verdict == "fits"]
    assert fitting.index("not_met") > max(i for i, state in enumerate(fitting) if state != "not_met")


def test_how_a_kl_is_measured_is_said_only_where_this_version_can() -> None:
    nobody = unknown("nats", "not measured")
    found = judge_floor(QualityFloor.parse("0.01"), 8, nobody)
    assert found.words is not None and "cannot measure it" in found.words
