"""The split product: int8 planes of activations times the integers of base and residual, under their scales."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F16, F32, I8, U8
from twofold.kernels.naive.packing import TILE_ROWS, residual_offset, tiles, unpack_base, unpack_residual, unpack_scales
from twofold.kernels.naive.quantize_planes import Planes
from twofold.kernels.naive.split_weights import ExchangeDtype, SplitWeights

_TILES_AT_ONCE = 256  # bounds the unpacked weights in memory


def split_product(x_base: Planes, x_residual: Planes | None, weights: SplitWeights) -> F32:
    """Products of quantised rows with all members, fp32 [rows, sum of member rows], still in the rotated output basis.

    y_b of `x_base`; plus y_r of `x_residual`, rounded to the exchange dtype, where that is given.
    """
    rows = x_base.q.shape[1]
    padded = np.empty((rows, weights.n_tiles * TILE_ROWS), np.float32)
    for start in range(0, weights.n_tiles, _TILES_AT_ONCE):
        part = slice(start, start + _TILES_AT_ONCE)
        y = _plane_product(x_base, _base_weights(weights, part), weights.base_scales[part], weights)
        if x_residual is not None:
            residual = _residual_weights(weights, part)
            y_r = _plane_product(x_residual, residual, weights.residual_scales[part], weights)
            with np.errstate(all="ignore"):
                y = y + round_exchange(y_r, weights.exchange_dtype)
        padded[:, start * TILE_ROWS : start * TILE_ROWS + y.shape[1]] = y
    return _without_padding(padded, weights.member_rows)


def round_exchange(y: F32, dtype: ExchangeDtype) -> F32:
    """Round fp32 to the type in which residual products travel (nearest even), kept as fp32."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return y.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = y.view(np.uint32)
        kept = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(y), y, kept.view(np.float32))
    return y


def _base_weights(weights: SplitWeights, part: slice) -> I8:
    return weights.levels[unpack_base(weights.base_codes[part], weights.in_features)]


def _residual_weights(weights: SplitWeights, part: slice) -> I8:
    codes: U8 = unpack_residual(weights.residual_codes[part], weights.in_features, weights.residual_bits)
    return (codes.astype(np.int16) - residual_offset(weights.residual_bits)).astype(np.int8)


def _plane_product(x: Planes, w: I8, packed_scales: F16, weights: SplitWeights) -> F32:
    """acc = acc + (fp32(n_g) * unit_g) * scale_g over ascending groups: fp32 [rows, padded rows]."""
    scales, unit = unpack_scales(packed_scales).astype(np.float32), x.unit
    acc = np.zeros((x.q.shape[1], w.shape[0]), np.float32)
    for group in range(weights.n_groups):
        inputs = slice(group * weights.group_size, (group + 1) * weights.group_size)
        wg = w[:, inputs].astype(np.float32).T
        # a sum of at most 256 products of at most 127 * 127 is below 2^24: exact in fp32 in whatever order BLAS adds
        n = (x.q[0][:, inputs].astype(np.float32) @ wg).astype(np.int32)
        if len(x.q) == 2:
            n = 254 * n + (x.q[1][:, inputs].astype(np.float32) @ wg).astype(np.int32)
        with np.errstate(all="ignore"):
            acc = acc + (n.astype(np.float32) * unit[:, group, None]) * scales[:, group]
    return acc


def _without_padding(padded: F32, member_rows: tuple[int, ...]) -> F32:
    parts, start = [], 0
    for rows in member_rows:
        parts.append(padded[:, start : start + rows])
        start += tiles(rows) * TILE_ROWS
    return np.ascontiguousarray(np.concatenate(parts, axis=1))
