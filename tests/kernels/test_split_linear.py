"""The split Linear: the numpy definition against scalar Python, and the native tiers against it to the bit."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive import packing
from twofold.kernels.naive.quantize_planes import quantize_planes
from twofold.kernels.naive.rotation import rotate
from twofold.kernels.naive.split_product import round_exchange, split_product

Make = Callable[..., Any]
SHAPES = [(576, (192, 576, 100)), (1536, (576,)), (64, (33,)), (80, (16, 1)), (1, (3,)), (17, (20, 20)), (384, (512,))]


def activations(rows: int, features: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(3, (rows, features)).astype(np.float32)


@pytest.mark.parametrize("planes", [(1, 1), (2, 2), (2, 1)])
def test_product_is_the_documented_sum(make_weights: Make, planes: tuple[int, int]) -> None:
    """y_b + y_r in Python integers and one fp32 operation at a time."""
    weights = make_weights(40, (5, 18), planes=planes, group_size=16, bits=5)
    x = activations(2, 40)
    quantised = [quantize_planes(x, p, 16) for p in planes]
    y = split_product(quantised[0], quantised[1], weights)

    base = weights.levels[packing.unpack_base(weights.base_codes, 40)]
    residual = packing.unpack_residual(weights.residual_codes, 40, 5).astype(int) - 15
    f32 = np.float32
    for row in range(2):
        for out in range(23):
            padded = out if out < 5 else out - 5 + 16
            total = []
            halves = ((base, weights.base_scales, 0), (residual, weights.residual_scales, 1))
            for integers, scales, half in halves:
                q, s = quantised[half]
                acc = f32(0)
                for group in range(3):
                    inputs = range(16 * group, min(16 * group + 16, 40))
                    n = sum(int(integers[padded, k]) * int(q[0, row, k]) for k in inputs)
                    if planes[half] == 2:
                        n = 254 * n + sum(int(integers[padded, k]) * int(q[1, row, k]) for k in inputs)
                    unit = f32(s[row, group] / f32(254)) if planes[half] == 2 else s[row, group]
                    acc = f32(acc + f32(f32(f32(n) * unit) * f32(scales[padded // 16, group, padded % 16])))
                total.append(acc)
            assert y[row, out] == f32(total[0] + total[1])


def test_product_approximates_the_real_one(make_weights: Make) -> None:
    """Rotations cancel: the whole op is close to x times the dequantised, un-rotated weights in fp64."""
    weights = make_weights(576, (192, 100))
    x = activations(3, 576).astype(np.float64)
    base = weights.levels[packing.unpack_base(weights.base_codes, 576)].astype(float)
    residual = packing.unpack_residual(weights.residual_codes, 576, 6).astype(float) - 31
    columns = np.arange(576) // 128
    dense = base * packing.unpack_scales(weights.base_scales).astype(float)[:, columns]
    dense += residual * packing.unpack_scales(weights.residual_scales).astype(float)[:, columns]

    def rotation(dimension: int, signs: np.ndarray, mix: np.ndarray | None) -> np.ndarray:
        width = dimension & -dimension
        hadamard = np.ones((1, 1))
        while len(hadamard) < width:
            hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
        q = np.eye(dimension // width) if mix is None else mix.astype(float)
        return np.kron(q, hadamard / np.sqrt(width)) * signs

    rotated = x @ rotation(576, weights.input_signs, weights.mix_in).T
    expected = np.concatenate(
        [
            rotated @ dense[:192].T @ rotation(192, weights.output_signs[:192], weights.mix_out[0]),
            rotated @ dense[192:292].T @ rotation(100, weights.output_signs[192:], weights.mix_out[1]),
        ],
        axis=1,
    )
    actual = naive.split_linear(x.astype(np.float32), weights, True)
    assert np.abs(actual - expected).max() < 2e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("in_features", "members"), SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 16, 33])
def test_native_shapes(
    native_ops: ModuleType,
    make_weights: Make,
    guarded: Make,
    same_bits: Make,
    in_features: int,
    members: tuple[int, ...],
    rows: int,
) -> None:
    weights = make_weights(in_features, members, bias=rows == 3)
    x = activations(rows, in_features)
    for use_residual in (True, False):
        out = guarded((rows, sum(members)))
        native_ops.split_linear(x, weights, use_residual, out=out.array)
        same_bits(out.check(), naive.split_linear(x, weights, use_residual))


@pytest.mark.parametrize("bits", packing.RESIDUAL_BITS)
@pytest.mark.parametrize("planes", [(1, 1), (2, 2), (2, 1), (1, 2)])
@pytest.mark.parametrize("rotated_outputs", [True, False])
def test_native_formats(
    native_ops: ModuleType,
    make_weights: Make,
    guarded: Make,
    same_bits: Make,
    bits: int,
    planes: tuple[int, int],
    rotated_outputs: bool,
) -> None:
    weights = make_weights(320, (96,), bits=bits, planes=planes, rotated_outputs=rotated_outputs)
    for rows in (1, 2, 4, 7):
        x = activations(rows, 320, seed=rows)
        for use_residual in (True, False, True):  # in one scratch
            out = guarded((rows, 96))
            native_ops.split_linear(x, weights, use_residual, out=out.array)
            same_bits(out.check(), naive.split_linear(x, weights, use_residual))


@pytest.mark.parametrize("planes", [(1, 1), (2, 2), (2, 1), (1, 2)])
def test_a_draft_product_reads_one_plane(
    native_ops: ModuleType, make_weights: Make, same_bits: Make, planes: tuple[int, int]
) -> None:
    weights = make_weights(320, (96,), planes=planes, rotated_outputs=False)
    for rows in (1, 4, 7):
        x = activations(rows, 320, seed=rows)
        rotated = rotate(x, weights.input_signs, weights.mix_in)
        expected, other = (split_product(quantize_planes(rotated, n, 128), None, weights) for n in (1, 2))
        for ops in (naive, native_ops):
            same_bits(ops.split_linear(x, weights, False), expected)
        assert not np.array_equal(expected, other)


@pytest.mark.parametrize("group_size", [16, 48, 256])
@pytest.mark.parametrize("exchange", ["float32", "float16", "bfloat16"])
def test_native_groups_and_exchange(
    native_ops: ModuleType, make_weights: Make, same_bits: Make, group_size: int, exchange: str
) -> None:
    weights = make_weights(576, (40,), group_size=group_size, exchange=exchange, bits=8)
    for rows, magnitude in ((1, 1.0), (6, 1e7), (2, 1e-4)):  # overflow and subnormals of fp16 included
        x = activations(rows, 576) * np.float32(magnitude)
        same_bits(native_ops.split_linear(x, weights, True), naive.split_linear(x, weights, True))


def test_extreme_integers_do_not_overflow(native_ops: ModuleType, make_weights: Make, same_bits: Make) -> None:
    """All codes and activations at their limits, in the largest group."""
    weights = make_weights(512, (16,), bits=8, group_size=256, rotated_outputs=False)
    for code in (0, 3):
        top = 254 if code else 0
        extreme = replace(
            weights,
            base_codes=np.full_like(weights.base_codes, 0x55 * code),
            residual_codes=packing.pack_residual(np.full((16, 512), top, np.uint8), 8),
            input_signs=np.ones(512, np.int8),
        )
        for x in (np.zeros((1, 512), np.float32), np.full((1, 512), 3.0, np.float32)):
            x[0, 0] = 512.0
            same_bits(native_ops.split_linear(x, extreme, True), naive.split_linear(x, extreme, True))


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_threads_do_not_show(native_ops: ModuleType, make_weights: Make, threads: int) -> None:
    weights = make_weights(576, (576, 192, 192))
    x = activations(33, 576)
    expected = naive.split_linear(x, weights, True)
    cpu.native().set_threads(threads)
    for _ in range(20):
        assert native_ops.split_linear(x, weights, True).tobytes() == expected.tobytes()


def test_rows_do_not_see_each_other(native_ops: ModuleType, make_weights: Make) -> None:
    weights = make_weights(576, (192,))
    x = activations(300, 576)
    whole = native_ops.split_linear(x, weights, True)
    for row in (0, 1, 128, 299):
        assert native_ops.split_linear(x[row : row + 1], weights, True).tobytes() == whole[row : row + 1].tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_activations_make_their_row_nan(
    native_ops: ModuleType, make_weights: Make, same_bits: Make, bad: float
) -> None:
    weights = make_weights(80, (100,))
    x = activations(3, 80)
    x[1, 7] = bad
    expected = naive.split_linear(x, weights, True)
    assert np.isnan(expected[1]).all() and not np.isnan(expected[[0, 2]]).any()
    same_bits(native_ops.split_linear(x, weights, True), expected)


def test_zero_and_tiny_rows(native_ops: ModuleType, make_weights: Make, same_bits: Make) -> None:
    weights = make_weights(80, (100,))
    x = np.zeros((4, 80), np.float32)
    x[1, 3] = 1e-45
    x[2] = 1e-44
    x[3] = np.float32(3e38) / 80
    expected = naive.split_linear(x, weights, True)
    assert not expected[0].any()
    same_bits(native_ops.split_linear(x, weights, True), expected)


def test_quantised_rows_match_their_definition() -> None:
    x = activations(5, 90)
    planes = quantize_planes(x, 2, 32)
    assert planes.scale.shape == (5, 3)
    f32 = np.float32
    for row in range(5):
        for k in range(90):
            group = slice(k // 32 * 32, k // 32 * 32 + 32)
            scale = f32(np.abs(x[row, group]).max() / f32(127))
            assert planes.scale[row, k // 32] == scale
            t = f32(x[row, k] / scale)
            q0 = min(127, max(-127, round(float(t))))  # Python rounds ties to even
            q1 = min(127, max(-127, round(float(f32(f32(t - f32(q0)) * f32(254))))))
            assert (planes.q[0, row, k], planes.q[1, row, k]) == (q0, q1)


def test_exchange_rounding_matches_torch() -> None:
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint32)
    y = bits.view(np.float32)
    for name in ("float16", "bfloat16"):
        expected = torch.from_numpy(y).to(getattr(torch, name)).float().numpy()
        np.testing.assert_array_equal(round_exchange(y, name), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [0, 1])
def test_passes_of_no_rows(native_ops: ModuleType, make_weights: Make, rows: int) -> None:
    weights = make_weights(80, (20,))
    assert native_ops.split_linear(activations(rows, 80), weights, True).shape == (rows, 20)


def test_read_only_memory_maps_at_odd_offsets(native_ops: ModuleType, make_weights: Make, tmp_path: Path) -> None:
    weights = make_weights(80, (33,))
    names = ("base_codes", "base_scales", "residual_codes", "residual_scales")
    mapped = {}
    for i, name in enumerate(names):
        array = getattr(weights, name)
        path = tmp_path / name
        offset = 2 * i + (array.dtype == np.uint8)
        path.write_bytes(bytes(offset) + array.tobytes())
        mapped[name] = np.memmap(path, array.dtype, "r", offset, array.shape)
    x = activations(3, 80)
    expected = naive.split_linear(x, weights, True)
    for ops in (naive, native_ops):
        assert ops.split_linear(x, replace(weights, **mapped), True).tobytes() == expected.tobytes()


def test_weights_are_let_go_with_their_last_user(native_ops: ModuleType, make_weights: Make) -> None:
    weights = make_weights(80, (33,))
    native_ops.split_linear(activations(1, 80), weights, True)
    codes = weakref.ref(weights.residual_codes)
    del weights
    gc.collect()
    assert codes() is None


def test_wrong_shapes_are_refused(native_ops: ModuleType, make_weights: Make) -> None:
    weights = make_weights(80, (20,))
    for ops in (naive, native_ops):
        with pytest.raises(ValueError, match="x must be float32"):
            ops.split_linear(activations(1, 79), weights, True)
        with pytest.raises(ValueError, match="out must be float32"):
            ops.split_linear(activations(1, 80), weights, True, out=np.empty((1, 21), np.float32))
    with pytest.raises(ValueError, match="base_codes"):
        replace(weights, member_rows=(40,))
    with pytest.raises(ValueError, match="levels"):
        replace(weights, levels=np.array([-128, 0, 1, 2], np.int8))


@pytest.mark.parametrize("shape", [(576, 100), (80, 33), (1, 3), (384, 512)])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("bias", [False, True])
def test_chosen_rows_are_the_whole_products(
    native_ops: ModuleType,
    make_weights: Make,
    guarded: Make,
    same_bits: Make,
    shape: tuple[int, int],
    bits: int,
    bias: bool,
) -> None:
    inputs, outputs = shape
    weights = make_weights(inputs, (outputs,), bits=bits)
    added = np.random.default_rng(2).normal(size=outputs).astype(np.float32) if bias else None
    weights = replace(weights, output_signs=None, mix_out=(), bias=added)
    rng = np.random.default_rng(7)
    for rows, n in ((1, 1), (1, 32), (5, 16), (3, 0)):
        x, ids = activations(rows, inputs), rng.integers(0, outputs, (rows, n))
        expected = np.take_along_axis(naive.split_linear(x, weights, True), ids, axis=1)
        same_bits(naive.chosen_rows(x, weights, ids), expected)
        out = guarded((rows, n))
        native_ops.chosen_rows(x, weights, ids, out=out.array)
        same_bits(out.check(), expected)


@pytest.mark.parametrize(("outputs", "rows"), [(100, 1), (100, 5), (17000, 1), (17000, 3)])
def test_shortlist(native_ops: ModuleType, make_weights: Make, outputs: int, rows: int) -> None:
    weights = replace(make_weights(64, (outputs,)), output_signs=None, mix_out=())
    x = activations(rows, 64)
    logits = np.round(naive.split_linear(x, weights, False), 1)  # many equals
    whole = naive.split_linear(x, weights, True)
    for n, k in ((1, 1), (32, 4), (32, 32), (100, 7)):
        for row, found in enumerate(native_ops.shortlist(logits, x, weights, n, k).tolist()):
            short = sorted(range(outputs), key=lambda i, row=row: (-logits[row, i], i))[:n]
            assert found == sorted(short, key=lambda i, row=row: (-whole[row, i], i))[:k]
        np.testing.assert_array_equal(
            naive.shortlist(logits, x, weights, n, k), native_ops.shortlist(logits, x, weights, n, k)
        )


def test_shortlists_that_cannot_be(native_ops: ModuleType, make_weights: Make) -> None:
    weights = replace(make_weights(64, (100,)), output_signs=None, mix_out=())
    x, logits = activations(2, 64), np.zeros((2, 100), np.float32)
    for ops in (naive, native_ops):
        for n, k in ((4, 0), (4, 5), (101, 1)):
            with pytest.raises(ValueError, match=f"cannot choose {k} of a shortlist of {n} of 100"):
                ops.shortlist(logits, x, weights, n, k)
        with pytest.raises(ValueError, match="logits"):
            ops.shortlist(logits[:1], x, weights, 4, 2)
        with pytest.raises(ValueError, match="not rotated"):
            ops.shortlist(logits, x, make_weights(64, (100,)), 4, 2)
        for bad_logits, bad_x in ((logits.copy(), x), (logits, x.copy())):
            (bad_logits if bad_x is x else bad_x)[1, 9] = np.nan
            with pytest.raises(ValueError, match="NaN among the logits of row 1"):
                ops.shortlist(bad_logits, bad_x, weights, 4, 2)


def test_rows_that_cannot_be_chosen(native_ops: ModuleType, make_weights: Make) -> None:
    weights = replace(make_weights(64, (33,)), output_signs=None, mix_out=())
    x = activations(2, 64)
    for ops in (naive, native_ops):
        for ids in ([[0], [33]], [[-1], [0]]):
            with pytest.raises(ValueError, match="ids are 0 to 32"):
                ops.chosen_rows(x, weights, np.array(ids))
        with pytest.raises(ValueError, match="ids"):
            ops.chosen_rows(x, weights, np.array([[1]]))
        with pytest.raises(ValueError, match="not rotated"):
            ops.chosen_rows(x, make_weights(64, (33,)), np.array([[1], [1]]))
