"""Choosing tokens: exact filters, the right distribution, and noise that depends on seed and position only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from twofold.engine.sampling import SamplingParams
from twofold.engine.sampling import choose as choose_with
from twofold.kernels.cpu import missing_reason
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive.uniform import uniform
from twofold.profiles.errors import EngineFailed, InvalidOption


def choose(logits: np.ndarray, params: SamplingParams, position: int, history: Sequence[int]) -> int:
    """By numpy's kernels, and the same by the native ones."""
    best = int(naive.argmax(logits[None])[0])
    chosen = choose_with(logits, best, params, position, history, naive)
    if missing_reason() is None:
        from twofold.kernels.cpu import ops

        assert choose_with(logits, best, params, position, history, ops) == chosen
    return chosen


def reference(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Probabilities after temperature, top-k, top-p and min-p, written plainly over the whole sorted vocabulary."""
    order = sorted(range(len(logits)), key=lambda token: (-float(logits[token]), token))
    kept = order[: params.top_k] if params.top_k else order
    weights = np.exp((logits[kept].astype(np.float64) - float(logits.max())) / params.temperature)
    shares = weights / weights.sum()
    before = np.concatenate([[0.0], np.cumsum(shares)[:-1]])
    keep = (before < params.top_p) & (shares >= params.min_p * shares[0])
    probabilities = np.zeros(len(logits))
    probabilities[np.array(kept)[keep]] = shares[keep]
    return probabilities / probabilities.sum()


CASES = {
    "plain": SamplingParams(temperature=1.0),
    "hot": SamplingParams(temperature=1.7),
    "cold": SamplingParams(temperature=0.4),
    "top-k": SamplingParams(temperature=1.0, top_k=5),
    "top-p": SamplingParams(temperature=1.0, top_p=0.7),
    "min-p": SamplingParams(temperature=1.2, min_p=0.15),
    "all": SamplingParams(temperature=0.9, top_k=8, top_p=0.9, min_p=0.05),
}


def draws(logits: np.ndarray, params: SamplingParams, n: int) -> np.ndarray:
    counts = np.zeros(len(logits))
    for position in range(n):
        counts[choose(logits, params, position, ())] += 1
    return counts


@pytest.mark.parametrize("case", CASES)
def test_chi_square_of_a_small_vocabulary(case: str) -> None:
    logits = np.random.default_rng(5).normal(0, 1.5, 17).astype(np.float32)
    expected = reference(logits, CASES[case]) * 6000
    counts = draws(logits, CASES[case], 6000)
    assert counts[expected == 0].sum() == 0
    common = expected >= 5
    rare_expected, rare_found = expected[~common].sum(), counts[~common].sum()
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum()
    statistic += (rare_found - rare_expected) ** 2 / rare_expected if rare_expected > 0 else 0
    freedom = common.sum() - 1 + (rare_expected > 0)
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)  # about the 99.9 % quantile; seeds are fixed


@pytest.mark.parametrize("case", CASES)
def test_a_large_vocabulary_draws_the_inverse_of_the_cdf(case: str) -> None:
    """Longer than the first prefix, nearly flat, so that growing prefixes are needed."""
    logits = np.random.default_rng(6).normal(0, 0.3, 9000).astype(np.float32)
    params = CASES[case]
    probabilities = reference(logits, params)
    order = sorted(range(len(logits)), key=lambda token: (-float(logits[token]), token))
    cdf = np.cumsum(probabilities[order])
    for position in range(60):
        rank = order.index(choose(logits, params, position, ()))
        u = uniform(params.seed, position)
        slack = 1e-6  # weights are fp32
        assert (cdf[rank - 1] if rank else 0.0) - slack <= u <= cdf[rank] + slack


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = np.array([0, 3, 1, 3], np.float32)
    assert choose(logits, SamplingParams(), 9, ()) == 1
    assert choose(logits, SamplingParams(temperature=1.0, top_k=1), 9, ()) == 1


def test_top_k_with_ties_keeps_the_lowest_ids() -> None:
    seen = {choose(np.zeros(10, np.float32), SamplingParams(temperature=1.0, top_k=3), i, ()) for i in range(200)}
    assert seen == {0, 1, 2}


def test_repetition_penalty_uses_the_given_history() -> None:
    logits = np.array([2.0, 1.9, -1.0, -1.05], np.float32)
    params = SamplingParams(repetition_penalty=1.5)
    assert choose(logits, params, 0, ()) == 0
    assert choose(logits, params, 0, [0, 0]) == 1
    negative = np.array([-1.0, -1.2], np.float32)
    assert choose(negative, params, 0, [0]) == 1
    assert logits[0] == 2.0  # the caller's logits stay


def test_noise_depends_on_seed_and_position_alone() -> None:
    assert uniform(1, 5) == uniform(1, 5)
    values = {uniform(seed, position) for seed in range(20) for position in range(20)}
    assert len(values) == 400 and all(0 <= value < 1 for value in values)
    assert abs(np.mean([uniform(3, position) for position in range(4000)]) - 0.5) < 0.02


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    logits = np.zeros(6, np.float32)
    logits[4] = bad
    for params in (SamplingParams(), SamplingParams(temperature=1.0)):
        with pytest.raises(EngineFailed, match="position 12 is not finite"):
            choose(logits, params, 12, ())


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 1.0},
        {"min_p": -0.1},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 1e-46},
        {"repetition_penalty": 1e-38},
        {"repetition_penalty": 0.0099},
        {"repetition_penalty": 100.1},
        {"seed": -1},
        {"seed": 1 << 64},
    ],
)
def test_values_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as error:
        SamplingParams(**bad)
    assert next(iter(bad)) in str(error.value) and error.value.needed


@pytest.mark.parametrize("penalty", [0.01, 100.0])
@pytest.mark.filterwarnings("error")
def test_logits_stay_finite_under_any_penalty(penalty: float) -> None:
    logits = np.array([1e30, -1e30, 3.0], np.float32)
    assert choose(logits, SamplingParams(repetition_penalty=penalty), 3, [0, 1, 2]) == 0


def test_defaults_of_a_generation_config() -> None:
    make = SamplingParams.from_generation_config
    assert make({}) == SamplingParams()
    assert make({"temperature": 0.7, "top_p": 0.9}).greedy  # without do_sample
    sampled = make({"do_sample": True, "top_k": 40, "top_p": None, "repetition_penalty": 1.1})
    assert sampled == SamplingParams(temperature=1.0, top_k=40, repetition_penalty=1.1)
    assert make({"do_sample": True, "temperature": 0.6}, temperature=0.2, seed=9, top_k=None) == SamplingParams(
        temperature=0.2, seed=9
    )
    with pytest.raises(InvalidOption, match="top_p is not a number"):
        make({"top_p": "0.9"})
