"""Calibration by reported peaks: every public run predicted from the other runs of its file."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.planner.llama_run import LlamaRun, run_mib, run_terms
from twofold.planner.observed import Calibration, calibrate, is_of, is_same_card, observed_run, stated_weights_mib
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.observations import Observation, shipped_observations
from twofold.profiles.units import MIB

Shipped = Callable[[str], ModelSpec]
KNOWN_OUTLIER = "A12"
"""440 MiB more than another run of the same settings on the same card: a desktop, or another build."""


@pytest.fixture
def qwen(shipped: Shipped) -> ModelSpec:
    return shipped("Qwen/Qwen3.8-27B")


def _predicted(spec: ModelSpec, run: LlamaRun, found: Calibration) -> float:
    return found.weights_and_constant_mib + found.head_mib + run_mib(spec, run)


def _errors(spec: ModelSpec, prefix: str) -> dict[str, tuple[float, Calibration]]:
    """Each run from the others: predicted less measured, MiB."""
    every = shipped_observations()
    errors = {}
    for one in every:
        run = observed_run(one)
        if run is None or not one.id.startswith(prefix) or not is_of(spec, one) or one.measured_mib is None:
            continue
        others = [other for other in every if other.id != one.id]
        found = calibrate(spec, run, one.model, others, one.gpu)
        if found is not None:
            errors[one.id] = (_predicted(spec, run, found) - one.measured_mib, found)
    return errors


def test_each_reported_peak_is_predicted_from_the_others_of_its_file(qwen: ModelSpec) -> None:
    errors = _errors(qwen, "A")
    assert len(errors) >= 19
    for name, (error, found) in errors.items():
        if name != KNOWN_OUTLIER:
            assert abs(error) <= (200 if found.head_mib > 0 else 100), name
    assert statistics.median(abs(error) for error, _ in errors.values()) <= 40


def test_the_constant_of_one_file_is_the_same_over_cards_types_and_contexts(qwen: ModelSpec) -> None:
    rows = {one.id: one for one in shipped_observations()}
    left = []
    for name in ("A01", "A05", "A09"):
        run = observed_run(rows[name])
        assert run is not None and rows[name].measured_mib is not None
        left.append(float(rows[name].measured_mib or 0) - run_mib(qwen, run))
    assert max(left) - min(left) <= 50


def test_terms_are_those_of_the_engines_own_log(qwen: ModelSpec) -> None:
    terms = {term.name: term.bytes for term in run_terms(qwen, LlamaRun(262144, "f16", 2))}
    assert terms["kv"] == 16384 * MIB
    assert terms["recurrent_state"] / MIB == pytest.approx(448.9, abs=0.05)
    assert terms["draft_kv"] == 1024 * MIB
    assert "dequantised_kv" not in terms


def test_an_outlier_is_set_aside_and_named(qwen: ModelSpec) -> None:
    others = [one for one in shipped_observations() if one.id != "A11n0"]
    found = calibrate(qwen, LlamaRun(131072, "q4_0"), "qwen3.8-27b UNSLOTH ud-q4_k_xl", others, "RTX 5090")
    assert found is not None and found.set_aside == (KNOWN_OUTLIER,)


def test_slots_multiply_the_state(qwen: ModelSpec) -> None:
    one, two = (run_mib(qwen, LlamaRun(8192, "q4_0", 2, slots)) for slots in (1, 2))
    assert two - one == pytest.approx(3 * 149.625)


def test_runs_that_are_not_one_whole_run_are_no_calibration(qwen: ModelSpec) -> None:
    rows = {one.id: one for one in shipped_observations()}
    for name in ("A23", "A34", "C15", "C24", "C26", "C28"):
        assert observed_run(rows[name]) is None, name
    assert calibrate(qwen, LlamaRun(8192, "f16"), "no such file", list(rows.values()), None) is None


def test_another_models_file_is_not_taken(shipped: Shipped, qwen: ModelSpec) -> None:
    gemma = shipped("google/gemma-4-31B-it")
    every = shipped_observations()
    assert calibrate(gemma, LlamaRun(8192, "f16"), "Qwen3.8-27B Q6_K", every, None) is None
    mine = replace(next(one for one in every if one.id == "A16"), model="gemma-4-31B-it Q6_K", arch="gemma4")
    assert calibrate(gemma, LlamaRun(8192, "f16"), "gemma-4-31B-it Q6_K", [mine], None) is not None


def test_a_reported_size_serves_where_no_peak_is_known(qwen: ModelSpec) -> None:
    stated = stated_weights_mib(qwen, "Qwen3.8-27B IQ4_NL", shipped_observations())
    assert stated is not None and 14_500 < stated < 15.22 * 1024
    assert stated_weights_mib(qwen, "Qwen3.8-27B UD-Q4_K_XL unknown", shipped_observations()) is None
    on_card = [_row("x", weights="17.92 GB file; 16,386 MiB on GPU")]
    assert stated_weights_mib(qwen, "x", on_card) == 16386


@pytest.mark.parametrize(
    "gpu, same",
    [("RTX 3090 @250 W", True), ("RTX 3090 Ti", False), ("RTX 3080 10 GB headless, Win11, PCIe4 x16", False)],
)
def test_reporters_words_for_cards(gpu: str, same: bool) -> None:
    assert is_same_card("NVIDIA GeForce RTX 3090", gpu) is same


def _row(model: str, weights: str) -> Observation:
    first = shipped_observations()[0]
    return replace(first, model=model, weights=weights)
