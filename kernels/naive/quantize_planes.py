"""Activations to one or two int8 planes with one scale per row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twofold.kernels.naive.arrays import F32, I8, check


class Planes(NamedTuple):
    """x ~ (q[0] + q[1] / 254) * scale: q int8 [planes, rows, K] within +-127, scale fp32 [rows]."""

    q: I8
    scale: F32


def quantize_planes(x: F32, planes: int) -> Planes:
    """Quantise each row of fp32 [rows, K].

    a = max|x|, s = a / 127 (1 where that is 0), q0 = rne(x / s), q1 = rne((x / s - q0) * 254), both clipped to +-127.
    A row with an infinity or a NaN gets codes of 0 under a scale of NaN: the whole output row becomes NaN.
    """
    check(x, np.float32, (None, None), "x")
    if planes not in (1, 2):
        raise ValueError(f"activations have one or two planes, got {planes}")
    finite = np.all(np.isfinite(x), axis=1)
    x = np.where(np.reshape(finite, (-1, 1)), x, np.float32(0))
    scale = np.abs(x).max(axis=1) / np.float32(127)
    scale[scale == 0] = 1
    t = x / scale[:, None]
    q0 = np.clip(np.rint(t), -127, 127)
    q = [q0]
    if planes == 2:
        q.append(np.clip(np.rint((t - q0) * np.float32(254)), -127, 127))
    return Planes(np.stack(q).astype(np.int8), np.where(finite, scale, np.float32(np.nan)))
