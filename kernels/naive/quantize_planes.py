"""Activations to one or two int8 planes with one scale per row and scale group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twofold.kernels.naive.arrays import F32, I8, check


class Planes(NamedTuple):
    """x ~ (q[0] + q[1] / 254) * scale: q int8 [planes, rows, K] within +-127, scale fp32 [rows, groups]."""

    q: I8
    scale: F32

    @property
    def unit(self) -> F32:
        """What one step of 254 * q[0] + q[1], or of q[0] alone, is worth: fp32 [rows, groups]."""
        return self.scale / np.float32(254) if len(self.q) == 2 else self.scale


def quantize_planes(x: F32, planes: int, group_size: int | None = None) -> Planes:
    """Quantise each row of fp32 [rows, K] in groups of `group_size` inputs (the last may be shorter; None: whole rows).

    Per group a = max|x|, s = a / 127 (1 where that is 0), q0 = rne(x / s), q1 = rne((x / s - q0) * 254), both clipped
    to +-127. A row with an infinity or a NaN gets codes of 0 under scales of NaN: the whole output row becomes NaN.
    """
    check(x, np.float32, (None, None), "x")
    if planes not in (1, 2):
        raise ValueError(f"activations have one or two planes, got {planes}")
    rows, inputs = x.shape
    size = inputs if group_size is None else group_size
    finite = np.reshape(np.all(np.isfinite(x), axis=1), (-1, 1))
    x = np.where(finite, x, np.float32(0))
    padded = np.pad(x, ((0, 0), (0, -inputs % size))).reshape(rows, -1, size)
    scale = np.abs(padded).max(axis=2) / np.float32(127)
    scale[scale == 0] = 1
    t = (padded / scale[:, :, None]).reshape(rows, -1)[:, :inputs]
    q0 = np.clip(np.rint(t), -127, 127)
    q = [q0]
    if planes == 2:
        q.append(np.clip(np.rint((t - q0) * np.float32(254)), -127, 127))
    return Planes(np.stack(q).astype(np.int8), np.where(finite, scale, np.float32(np.nan)))
