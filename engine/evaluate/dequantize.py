"""A split Linear as plain floating-point matrices: what the recipe's offline experiments multiplied with.

W = R_oᵀ·(base [+ residual])·R_i per member, in fp32, through the packing that the engine reads.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.engine.quantize.rotation import rotation
from twofold.kernels.naive import packing
from twofold.kernels.naive.split_weights import SplitWeights

F32 = NDArray[np.float32]


def _scaled(codes: F32, packed_scales: NDArray[np.float16], group_size: int) -> F32:
    """Integer values [padded_rows, K] times their group's scale."""
    scales = packing.unpack_scales(packed_scales).astype(np.float32)
    return codes * np.repeat(scales, group_size, axis=1)[:, : codes.shape[1]]


def rotated_weight(weights: SplitWeights, *, use_residual: bool) -> Tensor:
    """W~ with padded rows: fp32 [16·T, K]."""
    base_codes = packing.unpack_base(weights.base_codes, weights.in_features)
    levels = np.asarray(weights.levels, dtype=np.float32)
    total = _scaled(levels[base_codes], weights.base_scales, weights.group_size)
    if use_residual:
        unsigned = packing.unpack_residual(weights.residual_codes, weights.in_features, weights.residual_bits)
        signed = unsigned.astype(np.float32) - np.float32(packing.residual_offset(weights.residual_bits))
        total += _scaled(signed, weights.residual_scales, weights.group_size)
    return torch.from_numpy(total)


def member_weights(weights: SplitWeights, *, use_residual: bool) -> list[Tensor]:
    """Every member's matrix, fp32 [out_features, in_features], in the original basis."""
    turned = rotated_weight(weights, use_residual=use_residual)
    turned = rotation(weights.input_signs, weights.mix_in).undo(turned)
    members: list[Tensor] = []
    start = unpadded = 0
    for index, n_rows in enumerate(weights.member_rows):
        block = turned[start : start + n_rows]
        if weights.output_signs is not None:
            signs = weights.output_signs[unpadded : unpadded + n_rows]
            r_out = rotation(signs, weights.mix_out[index] if weights.mix_out else None)
            block = r_out.undo(block.T.contiguous()).T.contiguous()
        members.append(block)
        unpadded += n_rows
        start += packing.tiles(n_rows) * packing.TILE_ROWS
    return members


def head_rows(weights: SplitWeights, start: int, stop: int) -> Tensor:
    """Rows `start` (a whole tile) to `stop` of a head, base and residual, fp32 [stop − start, in_features]."""
    if weights.output_signs is not None or len(weights.member_rows) != 1 or start % packing.TILE_ROWS:
        raise ValueError("rows of a head start at a whole tile, and its outputs are not rotated")
    span = slice(start // packing.TILE_ROWS, packing.tiles(stop))
    part = dataclasses.replace(
        weights,
        member_rows=(stop - start,),
        base_codes=weights.base_codes[span],
        base_scales=weights.base_scales[span],
        residual_codes=weights.residual_codes[span],
        residual_scales=weights.residual_scales[span],
        bias=None,
    )
    (rows,) = member_weights(part, use_residual=True)
    return rows
