"""Row operations: each numpy definition against scalar Python, and the native tiers against it to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive.exponential import COEFFICIENTS, exp
from twofold.kernels.naive.gelu import gelu
from twofold.kernels.naive.rotation import block_width, needs_mix, rotate, unrotate
from twofold.kernels.naive.sum16 import sum16

f32 = np.float32
Make = Callable[..., Any]


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def scalar_sum16(values: list[np.float32]) -> np.float32:
    lanes = [f32(0)] * 16
    for i, value in enumerate(values):
        lanes[i % 16] = f32(lanes[i % 16] + value)
    for width in (8, 4, 2, 1):
        for lane in range(width):
            lanes[lane] = f32(lanes[lane] + lanes[lane + width])
    return lanes[0]


@pytest.mark.parametrize("n", [1, 7, 16, 17, 64, 100])
def test_sum16_order(n: int) -> None:
    x = normal(3, n, scale=1e3)
    assert [scalar_sum16(list(row)) for row in x] == list(sum16(x))


@pytest.mark.parametrize("n", [1, 15, 64, 80])
def test_rms_norm_order(n: int) -> None:
    x, weight = normal(2, n), normal(n, seed=1)
    y = naive.rms_norm(x, weight, 1e-5)
    for row in range(2):
        s = f32(scalar_sum16([f32(v * v) for v in x[row]]) / f32(n))
        r = f32(f32(1) / np.sqrt(f32(s + f32(1e-5))))
        assert list(y[row]) == [f32(f32(v * r) * w) for v, w in zip(x[row], weight, strict=True)]


@pytest.mark.parametrize("dimension", [1, 6, 12, 16])
def test_rotation_order(dimension: int) -> None:
    rng = np.random.default_rng(0)
    width = block_width(dimension)
    m = dimension // width
    signs = (rng.integers(0, 2, dimension) * 2 - 1).astype(np.int8)
    mix = np.linalg.qr(rng.normal(size=(m, m)))[0].astype(np.float32) if needs_mix(dimension) else None
    x = normal(2, dimension)
    rotated = rotate(x, signs, mix)
    for row in range(2):
        t = [f32(v * f32(s)) for v, s in zip(x[row], signs, strict=True)]
        stride = 1
        while stride < width:
            for i in range(dimension):
                if not i & stride:
                    t[i], t[i + stride] = f32(t[i] + t[i + stride]), f32(t[i] - t[i + stride])
            stride *= 2
        t = [f32(v * f32(1 / math.sqrt(width))) for v in t]
        if mix is not None:
            mixed = []
            for d in range(m):
                for i in range(width):
                    acc = f32(0)
                    for c in range(m):
                        acc = f32(acc + f32(mix[d, c] * t[c * width + i]))
                    mixed.append(acc)
            t = mixed
        assert list(rotated[row]) == t
    np.testing.assert_allclose(unrotate(rotated, signs, mix), x, atol=1e-5)


def test_exp_is_accurate_and_evaluated_as_written() -> None:
    x = -np.concatenate([np.linspace(0, 87.3, 20001), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(exp(x) / exact - 1).max() < 2**-22
    for v in x[:: len(x) // 50]:
        k = f32(round(float(f32(v * f32(1.44269504)))))
        r = f32(f32(v - f32(k * f32(0.693359375))) - f32(k * f32(-2.12194440e-4)))
        p = COEFFICIENTS[0]
        for c in COEFFICIENTS[1:]:
            p = f32(f32(p * r) + c)
        assert exp(np.array([v]))[0] == f32(p * f32(2.0 ** float(k)))


def test_exp_at_its_ends() -> None:
    ends = exp(np.array([0.0, -0.0, -88, -np.inf, np.nan], np.float32))
    assert ends[0] == ends[1] == 1 and ends[2] == ends[3] > 0 and np.isnan(ends[4])


def test_gelu_is_accurate_and_evaluated_as_written() -> None:
    x = np.concatenate([np.linspace(-12, 12, 24001), np.geomspace(1e-30, 1, 500), -np.geomspace(1e-30, 1, 500)])
    x = x.astype(np.float32)
    wide = x.astype(np.float64)
    exact = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(gelu(x), exact, rtol=2**-22, atol=1e-7)
    for v in x[:: len(x) // 50]:
        u = f32(v * f32(f32(1.5957691216) + f32(f32(0.0713548163) * f32(v * v))))
        e = exp(np.array([-abs(u)]))[0]
        y = f32(v / f32(f32(1) + e)) if u >= 0 else f32(f32(v * e) / f32(f32(1) + e))
        assert naive.gelu_mul(np.array([v]), np.array([f32(3)]))[0] == f32(y * f32(3))


def test_gelu_at_its_ends() -> None:
    ends = gelu(np.array([0.0, -0.0, 1e30, -20.0, np.inf, np.nan], np.float32))
    assert list(ends[:3]) == [0, 0, f32(1e30)] and abs(ends[3]) < 1e-36 and ends[4] == np.inf and np.isnan(ends[5])


HOSTILE = np.array(
    [0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, 100, -100, -87.4, 1.5, -1.5], np.float32
)


@pytest.mark.parametrize("shape", [(1, 1), (1, 576), (33, 64), (3, 80), (16, 1536), (2, 9, 100)])
def test_native_rows(native_ops: ModuleType, guarded: Make, same_bits: Make, shape: tuple[int, ...]) -> None:
    x, y, weight = normal(*shape, scale=4), normal(*shape, seed=1), normal(shape[-1], seed=2)
    for name, arguments in (
        ("rms_norm", (x, weight, 1e-6)),
        ("silu_mul", (x, y)),
        ("gelu_mul", (x, y)),
        ("add", (x, y)),
    ):
        out = guarded(shape)
        getattr(native_ops, name)(*arguments, out=out.array)
        same_bits(out.check(), getattr(naive, name)(*arguments))


def test_native_rows_on_hostile_values(native_ops: ModuleType, same_bits: Make) -> None:
    pairs = np.array(np.meshgrid(HOSTILE, HOSTILE)).reshape(2, 1, -1)
    x, y = np.ascontiguousarray(pairs[0]), np.ascontiguousarray(pairs[1])
    for name in ("silu_mul", "gelu_mul", "add"):
        same_bits(getattr(native_ops, name)(x, y), getattr(naive, name)(x, y))
    for row in HOSTILE:
        z = np.full((1, 20), row, np.float32)
        same_bits(
            native_ops.rms_norm(z, np.ones(20, np.float32), 1e-6), naive.rms_norm(z, np.ones(20, np.float32), 1e-6)
        )


def test_add_in_place(native_ops: ModuleType) -> None:
    x, y = normal(33, 576), normal(33, 576, seed=1)
    expected = x + y
    assert native_ops.add(x, y, out=x) is x
    assert x.tobytes() == expected.tobytes()


@pytest.mark.parametrize("ops_name", ["naive", "native"])
def test_arguments_of_any_memory_order(native_ops: ModuleType, same_bits: Make, ops_name: str) -> None:
    ops = naive if ops_name == "naive" else native_ops
    x = np.asfortranarray(normal(5, 64))
    y = normal(5, 128, seed=1)[:, ::2]
    same_bits(ops.add(x, y), np.ascontiguousarray(x) + np.ascontiguousarray(y))


@pytest.mark.parametrize(("heads", "dim", "rotary"), [(9, 64, 64), (1, 80, 20), (3, 2, 2), (4, 100, 100)])
def test_native_rope(native_ops: ModuleType, guarded: Make, same_bits: Make, heads: int, dim: int, rotary: int) -> None:
    x = normal(33, heads, dim)
    cos, sin = naive.rope_tables(np.arange(1000, 1033), rotary, 1e5)
    out = guarded(x.shape)
    native_ops.rope(x, cos, sin, out=out.array)
    same_bits(out.check(), naive.rope(x, cos, sin))


def test_rope_is_the_half_split_rotation() -> None:
    x = normal(2, 1, 6)
    cos, sin = naive.rope_tables(np.array([0, 3]), 4, 10.0)
    y = naive.rope(x, cos, sin)
    assert y[0].tobytes() == x[0].tobytes()
    for i, angle in enumerate((3.0, 3.0 / math.sqrt(10))):
        c, s = f32(math.cos(angle)), f32(math.sin(angle))
        assert y[1, 0, i] == f32(f32(x[1, 0, i] * c) - f32(x[1, 0, 2 + i] * s))
        assert y[1, 0, 2 + i] == f32(f32(x[1, 0, 2 + i] * c) + f32(x[1, 0, i] * s))
    assert list(y[1, 0, 4:]) == list(x[1, 0, 4:])


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        {"rope_type": "linear", "factor": 4.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ],
)
def test_rope_tables_match_transformers(scaling: dict[str, Any] | None) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    torch = pytest.importorskip("torch")
    parameters = {"rope_theta": 500000.0, "rope_type": "default", **(scaling or {})}
    config = transformers.LlamaConfig(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=131072, rope_theta=500000.0
    )
    config.rope_scaling = parameters if scaling else None
    if hasattr(config, "rope_parameters"):
        config.rope_parameters = parameters
    positions = np.array([0, 1, 2, 77, 1000])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 1), torch.from_numpy(positions)[None])
    ours = naive.rope_tables(positions, 64, 500000.0, scaling)
    np.testing.assert_allclose(ours[0], cos[0, :, :32].numpy(), atol=2e-4)  # theirs multiplies in fp32
    np.testing.assert_allclose(ours[1], sin[0, :, :32].numpy(), atol=2e-4)


def test_unknown_rope_scaling_is_refused() -> None:
    with pytest.raises(ValueError, match="'yarn' is not known"):
        naive.rope_tables(np.arange(3), 64, 1e4, {"rope_type": "yarn"})
    with pytest.raises(ValueError, match="pairs"):
        naive.rope_tables(np.arange(3), 63, 1e4)


def test_embed(native_ops: ModuleType, guarded: Make, same_bits: Make) -> None:
    bits = np.arange(65536, dtype=np.uint16).reshape(-1, 128)  # every fp16 there is
    table = bits.view(np.float16)
    tokens = np.random.default_rng(0).permutation(len(table)).astype(np.int64)
    out = guarded((len(table), 128))
    native_ops.embed(table, tokens, out=out.array)
    same_bits(out.check(), naive.embed(table, tokens))
    odd = np.ascontiguousarray(table[:, :13])
    same_bits(native_ops.embed(odd, tokens), naive.embed(odd, tokens))
    for ops in (naive, native_ops):
        for token in (-1, len(table)):
            with pytest.raises(ValueError, match=f"token {token} is outside a vocabulary of 512"):
                ops.embed(table, np.array([0, token]))


def test_argmax(native_ops: ModuleType) -> None:
    logits = normal(5, 49153)
    logits[1] = -7
    logits[2, [7, 900]] = 50
    logits[3, [3, 4]] = [0.0, -0.0]
    logits[3, 5:] = -1
    logits[3, :3] = -1
    for ops in (naive, native_ops):
        np.testing.assert_array_equal(ops.argmax(logits)[1:4], [0, 7, 3])
        np.testing.assert_array_equal(ops.argmax(logits), logits.argmax(axis=1))
        for bad in (np.nan, np.inf, -np.inf):
            found = ops.argmax(np.array([[0, 1], [1, 0], [1, bad], [bad, 0]], np.float32))
            np.testing.assert_array_equal(found, [1, 0, -1, -1])
        with pytest.raises(ValueError, match="no logits"):
            ops.argmax(np.empty((1, 0), np.float32))


@pytest.mark.parametrize("place", [0, 17, 4095, 4096, 49151, 49152])
def test_argmax_refuses_wherever_it_is(native_ops: ModuleType, place: int) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        logits = normal(3, 49153)
        logits[1, place] = bad
        found = native_ops.argmax(logits)
        assert found[1] == -1 and found[[0, 2]].tolist() == logits[[0, 2]].argmax(axis=1).tolist()


@pytest.mark.parametrize("size", [1, 15, 16, 63, 65, 4095, 4096, 4097, 49153])
@pytest.mark.parametrize("temperature", [0.01, 0.8, 1.0, 100.0, 1e-45])
def test_softmax_total(native_ops: ModuleType, size: int, temperature: float) -> None:
    logits = normal(1, size)[0] * np.float32(5)
    peak = float(logits.max())
    total = naive.softmax_total(logits, peak, temperature)
    assert native_ops.softmax_total(logits, peak, temperature) == total
    with np.errstate(over="ignore"):
        exact = float(np.sum(np.exp((logits.astype(np.float64) - peak) / max(temperature, 1e-30))))
    assert total == pytest.approx(exact, rel=2e-6)


def test_uniform(native_ops: ModuleType) -> None:
    most = (1 << 64) - 1
    rng = np.random.default_rng(3)
    pairs = [(0, 0), (0, 1), (1, 0), (most, most), (most, 0), (1 << 63, 5)]
    pairs += rng.integers(0, most, (500, 2), np.uint64, endpoint=True).tolist()
    for seed, position in pairs:
        found = native_ops.uniform(seed, position)
        assert found == naive.uniform(seed, position) and 0 <= found < 1
    for ops in (naive, native_ops):
        for seed in (-1, most + 1):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                ops.uniform(seed, 0)


FILTERS = [
    {"keep": keep, "top_p": top_p, "min_p": min_p}
    for keep in (0, 1, 40, 64, 65, 3000, 1 << 40)
    for top_p in (1.0, 0.9, 1e-9)
    for min_p in (0.0, 0.05)
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize(("size", "spread"), [(1, 1.0), (50, 2.0), (9000, 0.2), (20000, 3.0)])
def test_draw(native_ops: ModuleType, filters: dict[str, Any], size: int, spread: float) -> None:
    logits = np.round(normal(1, size)[0] * np.float32(spread), 2)  # many equals
    peak = float(logits.max())
    for temperature in (0.05, 0.8, 3.0):
        for u in (0.0, 0.25, 0.9, 1 - 2.0**-53):
            arguments = {"temperature": temperature, "u": u} | filters
            found = native_ops.draw(logits, peak, **arguments)
            assert found == naive.draw(logits, peak, **arguments) and 0 <= found < size
            above = peak + 3 * temperature  # less than min_p is left of every weight
            assert native_ops.draw(logits, above, **arguments) == naive.draw(logits, above, **arguments)


def test_draws_that_cannot_be(native_ops: ModuleType) -> None:
    fine = {"temperature": 1.0, "keep": 0, "top_p": 1.0, "min_p": 0.0, "u": 0.5}
    bad = [{"temperature": 0.0}, {"keep": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"min_p": 1.0}, {"u": 1.0}, {"u": -0.1}]
    for ops in (naive, native_ops):
        for change in bad:
            with pytest.raises(ValueError, match="cannot draw"):
                ops.draw(np.zeros(3, np.float32), 0.0, **fine | change)
        with pytest.raises(ValueError, match="cannot draw: 0 logits"):
            ops.draw(np.zeros(0, np.float32), 0.0, **fine)


@pytest.mark.parametrize("size", [3, 64, 65, 20000])
@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_nan_is_not_drawn_from(native_ops: ModuleType, size: int, keep: int) -> None:
    for at in (0, size // 2, size - 1):
        logits = normal(size)
        peak = float(logits.max())
        logits[at] = np.nan
        for ops in (naive, native_ops):
            with pytest.raises(ValueError, match="NaN among the logits"):
                ops.draw(logits, peak, temperature=1.0, keep=keep, top_p=0.9, min_p=0.0, u=0.5)


@pytest.mark.parametrize("k", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("vocab", [300, 1027, 49153])
def test_top_k(native_ops: ModuleType, k: int, vocab: int) -> None:
    logits = normal(6, vocab)
    logits[1] = -np.inf
    logits[2] = np.round(logits[2])  # many equals
    logits[3] = np.sort(logits[3])  # every one is better than all before it
    logits[4, ::5], logits[4, 1::5] = 0.0, -0.0
    logits[5, [7, 200]] = np.inf
    order = np.array([sorted(range(vocab), key=lambda i, row=row: (-row[i], i))[:k] for row in logits.tolist()])
    for ops in (naive, native_ops):
        found = ops.top_k(logits, k)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, order)


def test_top_k_refuses(native_ops: ModuleType) -> None:
    for ops in (naive, native_ops):
        for place in (0, 5, 63, 64, 199):
            logits = normal(3, 200)
            logits[1:, place] = np.nan
            with pytest.raises(ValueError, match="NaN among the logits of row 1"):
                ops.top_k(logits, 3)
        for k in (0, -1, 201):
            with pytest.raises(ValueError, match=f"cannot choose {k} of 200"):
                ops.top_k(normal(1, 200), k)
        assert ops.top_k(np.empty((0, 4), np.float32), 2).shape == (0, 2)


def test_denormals_survive_a_flushing_caller(native_ops: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    x = np.full((33, 4096), 1e-40, np.float32)
    expected = naive.add(x, x)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        actual = native_ops.add(x, x)
    finally:
        torch.set_flush_denormal(False)
    assert actual.tobytes() == expected.tobytes() and actual.min() > 0


def test_shapes_are_checked_alike(native_ops: ModuleType) -> None:
    x = normal(2, 8)
    for ops in (naive, native_ops):
        with pytest.raises(ValueError, match="up must be float32"):
            ops.silu_mul(x, x[:, :4])
        with pytest.raises(ValueError, match="x must be float32"):
            ops.add(x.astype(np.float64), x)
        with pytest.raises(ValueError, match="weight must be float32"):
            ops.rms_norm(x, x[0, :7], 1e-5)
    with pytest.raises(ValueError, match="contiguous"):
        native_ops.add(x, x, out=np.empty((8, 2), np.float32).T)


def test_the_two_have_the_same_operations() -> None:
    if cpu.missing_reason():
        pytest.skip("no native module")
    from twofold.kernels.cpu import ops

    assert ops.__all__ == naive.__all__
