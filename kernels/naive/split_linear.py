"""A split Linear group from activations to outputs: rotate, quantise, multiply, rotate back, add the bias."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, check, result
from twofold.kernels.naive.quantize_planes import quantize_planes
from twofold.kernels.naive.rotation import rotate, unrotate
from twofold.kernels.naive.split_product import split_product
from twofold.kernels.naive.split_weights import SplitWeights

DRAFT_PLANES = 1
"""int8 planes of activations where the base multiplies alone, whatever the weights say of the verifier's products."""


def split_linear(x: F32, weights: SplitWeights, use_residual: bool, *, out: F32 | None = None) -> F32:
    """fp32 [rows, in_features] to [rows, sum of member rows]: base and residual (verify), or the base alone (draft)."""
    check(x, np.float32, (None, weights.in_features), "x")
    rotated = rotate(x, weights.input_signs, weights.mix_in)
    x_base = quantize_planes(rotated, weights.base_planes if use_residual else DRAFT_PLANES, weights.group_size)
    x_residual = None
    if use_residual:
        same = weights.residual_planes == weights.base_planes
        x_residual = x_base if same else quantize_planes(rotated, weights.residual_planes, weights.group_size)
    y = split_product(x_base, x_residual, weights)
    if weights.output_signs is not None:
        y = _unrotate_members(y, weights)
    if weights.bias is not None:
        with np.errstate(all="ignore"):
            y = y + weights.bias
    return result(y, out)


def _unrotate_members(y: F32, weights: SplitWeights) -> F32:
    assert weights.output_signs is not None
    mixes = weights.mix_out or (None,) * len(weights.member_rows)
    parts, start = [], 0
    for rows, mix in zip(weights.member_rows, mixes, strict=True):
        member = slice(start, start + rows)
        parts.append(unrotate(np.ascontiguousarray(y[:, member]), weights.output_signs[member], mix))
        start += rows
    return np.concatenate(parts, axis=1)
