"""A split Linear as plain floating-point matrices, for emulating base and verifier without integer products.

W = R_oᵀ·(base [+ residual])·R_i per member, in fp32, through the same packing and rotation that the engine uses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twofold.kernels.naive import packing
from twofold.kernels.naive.rotation import unrotate
from twofold.kernels.naive.split_weights import SplitWeights

F32 = NDArray[np.float32]


def _scaled(codes: NDArray[np.float32], packed_scales: NDArray[np.float16], group_size: int) -> F32:
    """Integer values [padded_rows, K] times their group's scale."""
    scales = packing.unpack_scales(packed_scales).astype(np.float32)
    per_input = np.repeat(scales, group_size, axis=1)[:, : codes.shape[1]]
    return codes * per_input


def rotated_weight(weights: SplitWeights, *, use_residual: bool) -> F32:
    """W~ with padded rows: fp32 [16·T, K]."""
    base_codes = packing.unpack_base(weights.base_codes, weights.in_features)
    levels = np.asarray(weights.levels, dtype=np.float32)
    total = _scaled(levels[base_codes], weights.base_scales, weights.group_size)
    if use_residual:
        unsigned = packing.unpack_residual(weights.residual_codes, weights.in_features, weights.residual_bits)
        signed = unsigned.astype(np.float32) - np.float32(packing.residual_offset(weights.residual_bits))
        total = total + _scaled(signed, weights.residual_scales, weights.group_size)
    return total


def member_weights(weights: SplitWeights, *, use_residual: bool) -> list[F32]:
    """Every member's matrix [out_features, in_features] in the original basis."""
    rows = unrotate(rotated_weight(weights, use_residual=use_residual), weights.input_signs, weights.mix_in)
    members: list[F32] = []
    start = unpadded = 0
    for index, n_rows in enumerate(weights.member_rows):
        block = np.ascontiguousarray(rows[start : start + n_rows])
        if weights.output_signs is not None:
            signs = weights.output_signs[unpadded : unpadded + n_rows]
            mix = weights.mix_out[index] if weights.mix_out else None
            block = np.ascontiguousarray(unrotate(np.ascontiguousarray(block.T), signs, mix).T)
        members.append(block)
        unpadded += n_rows
        start += packing.tiles(n_rows) * packing.TILE_ROWS
    return members
