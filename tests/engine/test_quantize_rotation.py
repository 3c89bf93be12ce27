"""The rotation of the quantiser: orthogonal, invertible, equal to the engine's own, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from twofold.engine.quantize.rotation import (
    blocks_of,
    hadamard,
    make_mix,
    make_signs,
    rotation,
)
from twofold.kernels.naive.rotation import block_width, needs_mix, rotate, unrotate

DIMENSIONS = [1, 2, 7, 16, 48, 72, 192, 576, 1536, 4096, 5376, 2 * 257]


def _rotation(dimension: int, seed: int = 0):
    return rotation(make_signs(seed, "x", dimension), make_mix(dimension))


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_undo_inverts_apply_and_lengths_stay(dimension: int) -> None:
    r = _rotation(dimension)
    x = torch.randn(5, dimension, generator=torch.Generator().manual_seed(1))
    y = r.apply(x)
    torch.testing.assert_close(r.undo(y), x, rtol=0, atol=2e-5)
    torch.testing.assert_close(y.norm(dim=1), x.norm(dim=1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_equals_the_rotation_that_the_kernels_define(dimension: int) -> None:
    signs, mix = make_signs(3, "y", dimension), make_mix(dimension)
    x = np.random.default_rng(2).standard_normal((3, dimension)).astype(np.float32)
    r = rotation(signs, mix)
    np.testing.assert_allclose(r.apply(torch.from_numpy(x)).numpy(), rotate(x, signs, mix), rtol=0, atol=2e-5)
    np.testing.assert_allclose(r.undo(torch.from_numpy(x)).numpy(), unrotate(x, signs, mix), rtol=0, atol=2e-5)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_dimensions_split_as_the_checkpoint_says(dimension: int) -> None:
    m, w = blocks_of(dimension)
    assert m * w == dimension
    assert m % 2 == 1
    assert w == block_width(dimension)
    assert needs_mix(dimension) == (make_mix(dimension) is not None)


def test_a_dimension_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        blocks_of(0)


@pytest.mark.parametrize("dimension", [48, 576, 1536])
def test_mixer_is_orthogonal_and_flat(dimension: int) -> None:
    mix = make_mix(dimension)
    assert mix is not None
    m = mix.shape[0]
    np.testing.assert_allclose(mix @ mix.T, np.eye(m), atol=1e-6)
    assert np.abs(mix).max() <= np.sqrt(2 / m) + 1e-6


@pytest.mark.parametrize("width", [1, 2, 64, 128, 512, 8192])
def test_hadamard_is_sylvesters(width: int) -> None:
    x = torch.randn(2, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = x.clone()
    stride = 1
    while stride < width:
        pairs = expected.view(2, -1, 2, stride)
        expected = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), 2).reshape(2, width)
        stride *= 2
    torch.testing.assert_close(hadamard(x.float(), width).double(), expected, rtol=1e-5, atol=1e-3)


def test_signs_depend_on_seed_and_name_only() -> None:
    one = make_signs(0, "model.layers.0.mlp.down.input", 1536)
    assert np.array_equal(one, make_signs(0, "model.layers.0.mlp.down.input", 1536))
    assert set(np.unique(one)) == {-1, 1}
    assert abs(int(one.sum())) < 200
    for other in (make_signs(1, "model.layers.0.mlp.down.input", 1536), make_signs(0, "another", 1536)):
        assert 0.4 < (one != other).mean() < 0.6
    # Pinned: a checkpoint must come out the same on every machine and numpy version.
    assert make_signs(0, "pinned", 12).tolist() == PINNED


PINNED = [1, -1, 1, -1, -1, -1, 1, 1, -1, -1, 1, 1]


def test_a_spike_is_spread_over_all_coordinates() -> None:
    x = torch.zeros(1, 576)
    x[0, 100] = 24.0
    assert float(_rotation(576).apply(x).abs().max()) < 24.0 / np.sqrt(576) * 1.5
