"""Rounding a block's columns with error feedback (LDLQ, Chee et al. 2023), one column after another."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, I8, check


def round_columns(
    weights: F32, target: F32, feedback: F32, scale: F32, *, inner: int | None, highest: int, out: I8 | None = None
) -> I8:
    """Integer levels int8 [columns, rows] of fp32 weights [columns, rows], which become the error.

    For column k in turn: size = target[k] * (1 / scale, or 0 unless scale > 0); the level is the nearest of ±inner and
    ±highest (the outer one beyond (inner + highest) / 2, the sign that of the size) or, where `inner` is None, the size
    clipped to ±highest and rounded to even; error = weights[k] - level * scale. Every later column's target then gets
    feedback[k, j] * error, product and sum rounded each, in ascending k. A NaN size counts as 0.

    Args:
        weights: fp32 [columns, rows], contiguous, overwritten by the error.
        target: what the first column is rounded at: the weights and the feedback of earlier blocks; left as it is.
        feedback: fp32 [columns, columns]; only what lies above the diagonal is read.
        scale: fp32 [rows].
        inner: 1 to highest - 1, or None.
        highest: at most 127.
        out: int8 [columns, rows], contiguous.

    Raises:
        ValueError: for shapes, types or levels that do not fit.
    """
    levels = np.empty(weights.shape, np.int8) if out is None else out
    check_arguments(weights, target, feedback, scale, inner, highest, levels)
    with np.errstate(all="ignore"):
        moved = target.copy()
        inverse = np.where(scale > 0, np.float32(1) / scale, np.float32(0))
        for k, error in enumerate(weights):
            size = moved[k] * inverse
            size[np.isnan(size)] = 0
            if inner is None:
                level = np.rint(np.clip(size, -highest, highest))
            else:
                level = np.copysign(np.where(np.abs(size) > (inner + highest) / 2, highest, inner), size)
            levels[k] = level
            error -= levels[k].astype(np.float32) * scale
            moved[k + 1 :] += feedback[k, k + 1 :, None] * error
    return levels


def check_arguments(
    weights: F32, target: F32, feedback: F32, scale: F32, inner: int | None, highest: int, levels: I8
) -> None:
    """Raise ValueError unless all fits together."""
    check(weights, np.float32, (None, None), "weights")
    columns, rows = weights.shape
    check(target, np.float32, (columns, rows), "target")
    check(feedback, np.float32, (columns, columns), "feedback")
    check(scale, np.float32, (rows,), "scale")
    check(levels, np.int8, (columns, rows), "out")
    if not (weights.flags.c_contiguous and levels.flags.c_contiguous):
        raise ValueError("weights and out must be contiguous")
    if highest > 127 or highest < 1 or (inner is not None and not 0 < inner < highest):
        raise ValueError(f"levels ±{inner}, ±{highest} do not fit in int8, or are not in order")
