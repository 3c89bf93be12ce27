"""A dequantised split Linear is the matrix that the kernels multiply with, up to activation rounding."""

from __future__ import annotations

import numpy as np
import pytest

from twofold.engine.evaluate.dequantize import member_weights
from twofold.kernels.naive.packing import pack_base, pack_residual, pack_scales
from twofold.kernels.naive.rotation import block_width
from twofold.kernels.naive.split_linear import split_linear
from twofold.kernels.naive.split_weights import SplitWeights


def _stacked(parts: list[np.ndarray], fill: int) -> np.ndarray:
    return np.concatenate([np.pad(p, ((0, -len(p) % 16), (0, 0)), constant_values=fill) for p in parts])


def _orthogonal(dimension: int, rng: np.random.Generator) -> np.ndarray | None:
    m = dimension // block_width(dimension)
    return np.linalg.qr(rng.normal(size=(m, m)))[0].astype(np.float32) if m > 1 else None


def _random_split(in_features: int, member_rows: tuple[int, ...], bits: int, rotate_out: bool) -> SplitWeights:
    rng = np.random.default_rng(bits)
    n_groups, qm = -(-in_features // 128), 2 ** (bits - 1) - 1
    base = [rng.integers(0, 4, (rows, in_features), dtype=np.uint8) for rows in member_rows]
    residual = [rng.integers(0, 2 * qm + 1, (rows, in_features), dtype=np.uint8) for rows in member_rows]
    scales = [rng.uniform(0.001, 0.01, (rows, n_groups)).astype(np.float16) for rows in member_rows]
    small = [(part / 50).astype(np.float16) for part in scales]
    return SplitWeights(
        in_features=in_features,
        member_rows=member_rows,
        base_codes=pack_base(_stacked(base, 0)),
        base_scales=pack_scales(_stacked(scales, 0)),
        levels=np.array([-127, -38, 38, 127], np.int8),
        residual_codes=pack_residual(_stacked(residual, qm), bits),
        residual_scales=pack_scales(_stacked(small, 0)),
        residual_bits=bits,
        group_size=128,
        base_planes=2,
        residual_planes=2,
        exchange_dtype="float32",
        input_signs=rng.choice([-1, 1], in_features).astype(np.int8),
        output_signs=rng.choice([-1, 1], sum(member_rows)).astype(np.int8) if rotate_out else None,
        mix_in=_orthogonal(in_features, rng),
        mix_out=tuple(_orthogonal(rows, rng) for rows in member_rows) if rotate_out else (),
    )


@pytest.mark.parametrize("use_residual", [False, True])
@pytest.mark.parametrize(
    ("in_features", "member_rows", "bits", "rotate_out"),
    [(576, (576, 192, 192), 6, True), (64, (100,), 4, True), (192, (40, 24), 8, False), (80, (16,), 7, True)],
)
def test_the_matrix_gives_the_kernel_s_product(
    in_features: int, member_rows: tuple[int, ...], bits: int, rotate_out: bool, use_residual: bool
) -> None:
    weights = _random_split(in_features, member_rows, bits, rotate_out)
    x = np.random.default_rng(1).normal(size=(5, in_features)).astype(np.float32)
    product = split_linear(x, weights, use_residual)
    matrices = member_weights(weights, use_residual=use_residual)
    assert [matrix.shape for matrix in matrices] == [(rows, in_features) for rows in member_rows]
    expected = x.astype(np.float64) @ np.concatenate([one.numpy() for one in matrices]).astype(np.float64).T
    # Two int8 planes resolve max|x| / (127 · 254): errors are a few 1e-5 of the output's size. The base alone is a
    # draft's product, in one plane: 254 times as much.
    resolved = 2e-4 if use_residual else 2e-4 * 254
    assert np.abs(product - expected).max() < resolved * np.abs(expected).max()
