"""Levels of the base: the known optimum for a Gaussian, symmetric, integers."""

from __future__ import annotations

import numpy as np
import pytest

from twofold.engine.quantize.lloyd_max import GAUSSIAN, HIGHEST_LEVEL, fit, to_integers


def test_gaussian_levels_are_max_s() -> None:
    inner, outer = fit(np.random.default_rng(0).standard_normal(500_000).astype(np.float32))
    assert inner == pytest.approx(0.4528, abs=0.004)
    assert outer == pytest.approx(1.5104, abs=0.006)


def test_fit_is_a_fixed_point() -> None:
    """Moving either level away from the fit makes the sample's error larger."""
    sample = np.random.default_rng(1).laplace(size=100_000).astype(np.float32)
    inner, outer = fit(sample)

    def error(a: float, b: float) -> float:
        size = np.abs(sample)
        return float(np.minimum((size - a) ** 2, (size - b) ** 2).mean())

    best = error(inner, outer)
    for a, b in ((inner * 1.05, outer), (inner * 0.95, outer), (inner, outer * 1.05), (inner, outer * 0.95)):
        assert error(a, b) > best


def test_integers_are_small_and_symmetric() -> None:
    levels = to_integers(0.4535, 1.5066)
    assert levels.integers == (-10, -3, 3, 10)
    assert levels.step_per_rms * 10 == pytest.approx(1.5066)
    assert GAUSSIAN.integers == (-10, -3, 3, 10)


def test_small_integers_cost_next_to_nothing() -> None:
    """Whatever the proportion, a fraction is near: the inner level is off by less than 2 % of the outer one."""
    for ratio in np.linspace(0.2, 0.5, 200):
        levels = to_integers(float(ratio), 1.0)
        assert abs(levels.inner / levels.outer - ratio) < 0.02
        assert levels.outer <= HIGHEST_LEVEL


@pytest.mark.parametrize("bad", [[], [1.0, 2.0], [0.0, 1.0, np.nan, 3.0, 4.0], [np.inf, 1.0, 2.0, 3.0]])
def test_unusable_samples_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        fit(np.array(bad, np.float32))


@pytest.mark.parametrize(("inner", "outer"), [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_levels_out_of_order_are_refused(inner: float, outer: float) -> None:
    with pytest.raises(ValueError, match="inner < outer"):
        to_integers(inner, outer)
