"""K and V as f16, q8_0 and q4_0: the bytes against ggml's own package, attention over them, native tiers to the bit."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive.attention import CHUNK
from twofold.kernels.naive.exponential import exp
from twofold.kernels.naive.kv_blocks import KvType, cache_width, decode, encode, hadamard

f32 = np.float32
Make = Callable[..., Any]
GGML = {"q8_0": GGMLQuantizationType.Q8_0, "q4_0": GGMLQuantizationType.Q4_0}
TYPES: tuple[KvType, ...] = ("f16", "q8_0", "q4_0")
MIXED: list[tuple[KvType, KvType]] = [("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0"), ("f16", "q8_0")]
TREE = np.array([-1, 0, 0, 1, 1, -1], np.int32)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def chain(rows: int) -> np.ndarray:
    return np.arange(-1, rows - 1, dtype=np.int32)


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
@pytest.mark.parametrize("dim", [32, 64, 96, 128, 256])
def test_blocks_are_ggmls_of_the_rotated_vector(kind: KvType, dim: int) -> None:
    x = normal(7, 3, dim) * np.float32(10.0) ** np.arange(-3, 4, dtype=np.float32)[:, None, None]
    x[3, 1] = 0
    encoded = encode(x, kind)
    reference = quantize(hadamard(x), GGML[kind])
    np.testing.assert_array_equal(encoded, reference.reshape(encoded.shape))
    codes, scales = decode(encoded, kind)
    np.testing.assert_array_equal((codes * scales[..., None]).reshape(x.shape), dequantize(reference, GGML[kind]))


def test_the_rotation_is_orthogonal_and_undoes_itself() -> None:
    for dim in (1, 3, 80, 96, 128):
        x = normal(5, dim)
        np.testing.assert_allclose(hadamard(hadamard(x)), x, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(hadamard(x), axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_a_vector_that_does_not_fill_its_block_is_padded_with_zeros(kind: KvType) -> None:
    x = normal(2, 1, 40)
    codes, _ = decode(encode(x, kind), kind)
    assert codes.shape == (2, 1, 2, 32) and (codes[:, :, 1, 8:] == 0).all()
    assert encode(x, kind).shape[-1] == cache_width(40, kind)


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_what_cannot_be_kept_is_not_a_number(native_ops: ModuleType, kind: KvType) -> None:
    x = normal(5, 1, 96)
    x[0, 0, 3], x[1, 0, 40], x[2, 0, 70], x[3] = np.nan, np.inf, 1e8, 1e-42
    found = np.zeros((5, 1, cache_width(96, kind)), np.uint8)
    native_ops.kv_write(x, found, 0, kind)
    np.testing.assert_array_equal(found, encode(x, kind))
    codes, scales = decode(found, kind)
    for row, block in ((0, 0), (1, 1), (2, 2)):
        assert np.isnan(scales[row, 0, block]) and (codes[row, 0, block] == 0).all()
        assert np.isfinite(np.delete(scales[row, 0], block)).all()
    assert (codes[3:4] * scales[3:4, ..., None] == 0).all() and np.isfinite(scales[4]).all()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dim", [1, 12, 33, 64, 80, 96, 256])
def test_native_writes(native_ops: ModuleType, kind: KvType, dim: int) -> None:
    x = normal(9, 2, dim, seed=dim)
    dtype = np.float16 if kind == "f16" else np.uint8
    caches = [np.full((20, 2, cache_width(dim, kind)), 77, dtype) for _ in range(2)]
    for ops, cache in zip((naive, native_ops), caches, strict=True):
        ops.kv_write(x, cache, 5, kind)
        assert (cache[:5] == 77).all() and (cache[14:] == 77).all()
    np.testing.assert_array_equal(caches[0], caches[1])
    for ops in (naive, native_ops):
        for first_slot in (-1, 12):
            with pytest.raises(ValueError):
                ops.kv_write(x, caches[0], first_slot, kind)


def test_the_order_of_everything_with_codes() -> None:
    n, rows, dim = CHUNK + 5, 2, 40
    q, k, v = normal(rows, 2, dim), normal(n + rows, 1, dim, seed=1), normal(n + rows, 1, dim, seed=2)
    keys, values = encode(k, "q8_0"), encode(v, "q4_0")
    found = naive.attention(q, keys, values, n, chain(2), 0.3, k_type="q8_0", v_type="q4_0")
    (kc, kd), (vc, vd) = decode(keys[:, 0], "q8_0"), decode(values[:, 0], "q4_0")
    for row in range(rows):
        for head in range(2):
            turned = hadamard(q[row, head])
            scale = f32(np.abs(turned).max() / f32(127))
            q0 = np.rint(turned / scale)
            t = np.zeros(64, np.int64)
            t[:dim] = 254 * q0 + np.rint((turned / scale - q0) * f32(254))
            scores = []
            for j in range(n + row + 1):
                total = f32(0)
                for block in range(2):
                    exact = int((t[32 * block : 32 * block + 32] * kc[j, block]).sum())
                    total = f32(total + f32(f32(exact) * kd[j, block]))
                scores.append(f32(f32(total * f32(scale / f32(254))) * f32(0.3)))
            parts = []
            for begin in range(0, len(scores), CHUNK):
                chunk = scores[begin : begin + CHUNK]
                weights = [exp(np.array([f32(s - max(chunk))]))[0] for s in chunk]
                sums = np.zeros(64, np.float32)
                for j, weight in enumerate(weights, begin):
                    scaled = np.repeat(weight * vd[j], 32)
                    sums = sums + scaled * vc[j].reshape(-1).astype(np.float32)
                parts.append((max(chunk), naive_sum16(weights), sums))
            (m, total, sums), (m2, total2, sums2) = parts
            above = max(m, m2)
            before, after = exp(np.array([m - above]))[0], exp(np.array([m2 - above]))[0]
            mixed = (sums * before + sums2 * after) / f32(f32(total * before) + f32(total2 * after))
            np.testing.assert_array_equal(found[row, head], hadamard(mixed[:dim]))


def naive_sum16(values: list[np.float32]) -> np.float32:
    from twofold.kernels.naive.sum16 import sum16

    total: np.float32 = sum16(np.array(values, np.float32))
    return total


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_codes_cost_what_rounding_k_and_v_costs(kind: KvType) -> None:
    q, k, v = normal(1, 4, 64), normal(300, 2, 64, seed=1), normal(300, 2, 64, seed=2)
    exact = naive.attention(q, encode(k, "f16"), encode(v, "f16"), 299, chain(1), 0.125)
    found = naive.attention(q, encode(k, kind), encode(v, kind), 299, chain(1), 0.125, k_type=kind, v_type=kind)
    codes, scales = decode(encode(v, kind), kind)
    rounding = np.linalg.norm((codes * scales[..., None]).reshape(v.shape) - hadamard(v)) / np.linalg.norm(v)
    assert rounding / 2 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 2 * rounding  # K's share and V's


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "v_dim"),
    [(9, 3, 64, 64), (2, 2, 80, 80), (4, 2, 96, 128), (4, 1, 256, 256), (40, 1, 12, 33)],
)
@pytest.mark.parametrize("types", MIXED, ids=lambda types: "-".join(types))
def test_native_shapes(
    native_ops: ModuleType,
    guarded: Make,
    same_bits: Make,
    heads: int,
    kv_heads: int,
    dim: int,
    v_dim: int,
    types: tuple[KvType, KvType],
) -> None:
    kinds = {"k_type": types[0], "v_type": types[1]}
    for n_committed, rows, parents in ((0, 1, chain(1)), (250, 1, chain(1)), (125, 6, TREE), (121, 4, TREE)):
        slots = n_committed + len(parents)
        q, k, v = normal(rows, heads, dim), normal(slots, kv_heads, dim, seed=1), normal(slots, kv_heads, v_dim, seed=2)
        keys, values = encode(k, types[0]), encode(v, types[1])
        for window in (None, 5, 100):
            out, expected = guarded((rows, heads, v_dim)), np.empty((rows, heads, v_dim), np.float32)
            arguments = (q, keys, values, n_committed, parents, dim**-0.5)
            naive.attention(*arguments, window=window, **kinds, out=expected)
            native_ops.attention(*arguments, window=window, **kinds, out=out.array)
            same_bits(out.check(), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_rows_do_not_see_how_the_pass_is_cut(native_ops: ModuleType, kind: KvType) -> None:
    """Many rows at once, one row at a time, one thread or several: the same bits, over several chunks of positions."""
    rows, n = 33, 600
    q, k, v = normal(rows, 9, 64), normal(n + rows, 3, 64, seed=1), normal(n + rows, 3, 64, seed=2)
    keys, values = encode(k, kind), encode(v, kind)
    for parents in (chain(rows), np.array([-1, *np.arange(32) // 2], np.int32)):
        results = []
        for threads in (1, 3, 16):
            cpu.native().set_threads(threads)
            results.append(native_ops.attention(q, keys, values, n, parents, 0.125, k_type=kind, v_type=kind))
        assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
        for row in (0, 7, 32):
            upper = parents[: row + 1]
            one = native_ops.attention(q[row : row + 1], keys, values, n, upper, 0.125, k_type=kind, v_type=kind)
            assert one.tobytes() == results[0][row : row + 1].tobytes()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("window", [1, 100, 300])
def test_a_cache_that_let_go_of_the_past_gives_the_same(
    native_ops: ModuleType, same_bits: Make, kind: KvType, window: int
) -> None:
    n, gone = 500, 500 - window + 1
    q, k, v = normal(6, 4, 32), normal(n + 6, 2, 32, seed=1), normal(n + 6, 2, 32, seed=2)
    keys, values = encode(k, kind), encode(v, kind)
    options: dict[str, Any] = {"window": window, "k_type": kind, "v_type": kind}
    expected = naive.attention(q, keys, values, n, TREE, 0.2, **options)
    for ops in (naive, native_ops):
        found = ops.attention(q, keys[gone:], values[gone:], n - gone, TREE, 0.2, first_position=gone, **options)
        same_bits(found, expected)
        with pytest.raises(ValueError, match=r"window|outside"):
            ops.attention(
                q,
                keys[gone + 1 :],
                values[gone + 1 :],
                n - gone - 1,
                TREE,
                0.2,
                **options | {"first_position": gone + 1},
            )


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_keys_and_queries_show(native_ops: ModuleType, same_bits: Make, kind: KvType, bad: float) -> None:
    q, k, v = normal(3, 2, 32), normal(20, 1, 32, seed=1), normal(20, 1, 32, seed=2)
    options: dict[str, Any] = {"k_type": kind, "v_type": kind}
    q[1, 0, 3] = bad
    expected = naive.attention(q, encode(k, kind), encode(v, kind), 17, chain(3), 0.25, **options)
    assert np.isfinite(expected[[0, 2]]).all() and np.isnan(expected[1, 0]).all()
    same_bits(native_ops.attention(q, encode(k, kind), encode(v, kind), 17, chain(3), 0.25, **options), expected)
    k[18, 0, 5] = bad
    found = native_ops.attention(q, encode(k, kind), encode(v, kind), 17, chain(3), 0.25, **options)
    assert np.isfinite(found[0]).all() and np.isnan(found[1:]).all()
    same_bits(found, naive.attention(q, encode(k, kind), encode(v, kind), 17, chain(3), 0.25, **options))


def test_caches_that_do_not_fit_are_refused(native_ops: ModuleType) -> None:
    q, k = normal(1, 2, 40), encode(normal(8, 1, 40), "q8_0")
    for ops in (naive, native_ops):
        for options in ({"k_type": "q8_0"}, {"k_type": "q4_0", "v_type": "q8_0"}, {"k_type": "q5_1", "v_type": "q8_0"}):
            with pytest.raises(ValueError, match=r"cache|float16|KV"):
                ops.attention(q, k, k, 3, chain(1), 0.25, **options)
