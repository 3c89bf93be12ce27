"""Rounding with error feedback: numpy against scalar Python, and every native tier against numpy to the bit."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive

f32 = np.float32
Make = Callable[..., Any]
GRIDS = [(38, 127), (None, 31), (None, 127), (None, 1)]


def case(columns: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weights, target, feedback (its unused half poisoned) and scales, one of them zero."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(columns, rows)).astype(f32)
    target = weights + rng.normal(scale=0.3, size=weights.shape).astype(f32)
    feedback = rng.normal(scale=columns**-0.5, size=(columns, columns)).astype(f32)
    feedback[np.tril_indices(columns)] = np.nan
    scale = rng.uniform(0.005, 0.05, rows).astype(np.float16).astype(f32)
    scale[rows // 2] = 0 if rows > 1 else scale[0]
    return weights, target, feedback, scale


@pytest.mark.parametrize(("inner", "highest"), GRIDS)
def test_numpy_does_as_the_definition_says(inner: int | None, highest: int) -> None:
    weights, target, feedback, scale = case(9, 4)
    error = weights.copy()
    levels = naive.round_columns(error, target, feedback, scale, inner=inner, highest=highest)
    for row in range(4):
        moved = list(target[:, row])
        inverse = f32(f32(1) / scale[row]) if scale[row] > 0 else f32(0)
        for k in range(9):
            size = f32(moved[k] * inverse)
            if inner is None:
                level = round(float(min(max(size, f32(-highest)), f32(highest))))
            else:
                level = highest if abs(size) > (inner + highest) / 2 else inner
                level = -level if np.signbit(size) else level
            assert levels[k, row] == level
            assert error[k, row] == f32(weights[k, row] - f32(f32(level) * scale[row]))
            for j in range(k + 1, 9):
                moved[j] = f32(moved[j] + f32(feedback[k, j] * error[k, row]))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("columns", [1, 5, 64, 128])
@pytest.mark.parametrize("rows", [1, 7, 64, 100, 961])
def test_native_is_numpy_to_the_bit(
    native_ops: ModuleType, guarded: Make, same_bits: Make, rows: int, columns: int, threads: int
) -> None:
    cpu.native().set_threads(threads)
    inner, highest = GRIDS[(rows + columns) % 3]
    weights, target, feedback, scale = case(columns, rows)
    expected = weights.copy()
    expected_levels = naive.round_columns(expected, target, feedback, scale, inner=inner, highest=highest)
    error = guarded((columns, rows))
    error.array[...] = weights
    whole = np.full(columns * rows + 128, -128, np.int8)
    levels = whole[64:-64].reshape(columns, rows)
    kept = target.copy()
    assert (
        native_ops.round_columns(error.array, target, feedback, scale, inner=inner, highest=highest, out=levels)
        is levels
    )
    same_bits(error.check(), expected)
    np.testing.assert_array_equal(levels, expected_levels)
    assert (whole[:64] == -128).all() and (whole[-64:] == -128).all()
    assert target.tobytes() == kept.tobytes()
    assert np.isfinite(expected).all()


@pytest.mark.parametrize(("inner", "highest"), GRIDS)
def test_hostile_values(native_ops: ModuleType, same_bits: Make, inner: int | None, highest: int) -> None:
    values = [0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, 82.5, -82.5]
    scales = [0.0, 1.0, 6e-8, 65504.0, np.inf, np.nan, -1.0]
    weights, scale = (np.ascontiguousarray(a.reshape(-1), f32) for a in np.meshgrid(values, scales))
    weights = np.stack([weights, weights[::-1]])
    feedback = np.array([[0, 0.5], [0, 0]], f32)
    error, expected = weights.copy(), weights.copy()
    levels = native_ops.round_columns(error, weights, feedback, scale, inner=inner, highest=highest)
    np.testing.assert_array_equal(
        levels, naive.round_columns(expected, weights, feedback, scale, inner=inner, highest=highest)
    )
    same_bits(error, expected)


def test_what_does_not_fit_is_refused_alike(native_ops: ModuleType) -> None:
    weights, target, feedback, scale = case(4, 6)
    for ops in (naive, native_ops):
        for inner, highest in ((127, 127), (0, 127), (None, 128), (None, 0)):
            with pytest.raises(ValueError, match="int8"):
                ops.round_columns(weights, target, feedback, scale, inner=inner, highest=highest)
        for bad in ((target[:3], feedback, scale), (target, feedback[:3], scale), (target, feedback, scale[:5])):
            with pytest.raises(ValueError, match="must be float32"):
                ops.round_columns(weights, *bad, inner=None, highest=7)
        with pytest.raises(ValueError, match="contiguous"):
            ops.round_columns(np.asfortranarray(weights), target, feedback, scale, inner=None, highest=7)
        with pytest.raises(ValueError, match="out must be int8"):
            ops.round_columns(weights, target, feedback, scale, inner=None, highest=7, out=np.empty((4, 6), np.int16))
