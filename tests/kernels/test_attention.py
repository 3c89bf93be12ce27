"""Attention: the numpy definition against scalar Python, trees against plain decoding, native tiers to the bit."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive.attention import visible_slots
from twofold.kernels.naive.exponential import exp

f32 = np.float32
Make = Callable[..., Any]


def chain(rows: int) -> np.ndarray:
    return np.arange(-1, rows - 1, dtype=np.int32)


def random_tree(rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.integers(-1, row) if row else -1 for row in range(rows)], np.int32)


def case(rows: int, heads: int, kv_heads: int, dim: int, v_dim: int, capacity: int, seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(rows, heads, dim)).astype(np.float32)
    k = rng.normal(size=(capacity, kv_heads, dim)).astype(np.float16)
    v = rng.normal(size=(capacity, kv_heads, v_dim)).astype(np.float16)
    return q, k, v


def scalar_sum16(values: list[np.float32]) -> np.float32:
    lanes = [f32(0)] * 16
    for i, value in enumerate(values):
        lanes[i % 16] = f32(lanes[i % 16] + value)
    for width in (8, 4, 2, 1):
        for lane in range(width):
            lanes[lane] = f32(lanes[lane] + lanes[lane + width])
    return lanes[0]


def test_visible_slots_of_a_tree() -> None:
    parents = np.array([-1, 0, 0, 2, -1], np.int32)
    assert visible_slots(2, parents, 3, None).tolist() == [0, 1, 2, 4, 5]
    assert visible_slots(2, parents, 4, None).tolist() == [0, 1, 6]
    assert visible_slots(2, parents, 3, 2).tolist() == [4, 5]
    assert visible_slots(2, parents, 3, 4).tolist() == [1, 2, 4, 5]


def test_the_order_of_everything() -> None:
    q, k, v = case(3, 4, 2, 18, 5, 30)
    parents = np.array([-1, 0, 0], np.int32)
    out = naive.attention(q, k, v, 20, parents, 0.25)
    for row, slots in enumerate(([*range(21)], [*range(22)], [*range(21), 22])):
        for head in range(4):
            kv = head // 2
            scores = []
            for slot in slots:
                products = [f32(a * f32(b)) for a, b in zip(q[row, head], k[slot, kv], strict=True)]
                scores.append(f32(scalar_sum16(products) * f32(0.25)))
            weights = [exp(np.array([f32(s - max(scores))]))[0] for s in scores]
            total = scalar_sum16(weights)
            for d in range(5):
                acc = f32(0)
                for weight, slot in zip(weights, slots, strict=True):
                    acc = f32(acc + f32(weight * f32(v[slot, kv, d])))
                assert out[row, head, d] == f32(acc / total)


def test_it_is_softmax_attention() -> None:
    q, k, v = case(1, 2, 1, 64, 64, 100)
    out = naive.attention(q, k, v, 99, chain(1), 0.125)
    scores = np.einsum("hd,jd->hj", q[0].astype(float), k[:, 0].astype(float)) / 8
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights @ v[:, 0].astype(float) / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "v_dim"),
    [(9, 3, 64, 64), (4, 4, 80, 80), (8, 1, 16, 24), (7, 1, 100, 3), (1, 1, 1, 1)],
)
@pytest.mark.parametrize("n_committed", [0, 1, 15, 70])
def test_native_shapes(
    native_ops: ModuleType,
    guarded: Make,
    same_bits: Make,
    heads: int,
    kv_heads: int,
    dim: int,
    v_dim: int,
    n_committed: int,
) -> None:
    for rows, parents in ((1, chain(1)), (3, chain(3)), (16, random_tree(16)), (33, chain(33))):
        q, k, v = case(rows, heads, kv_heads, dim, v_dim, n_committed + rows, seed=rows)
        for window in (None, 1, 9):
            out = guarded((rows, heads, v_dim))
            native_ops.attention(q, k, v, n_committed, parents, dim**-0.5, window=window, out=out.array)
            same_bits(out.check(), naive.attention(q, k, v, n_committed, parents, dim**-0.5, window=window))


def test_nothing_behind_the_visible_slots_is_read(native_ops: ModuleType) -> None:
    q, k, v = case(3, 6, 2, 64, 64, 64)
    k[20:], v[20:] = np.nan, np.nan
    parents = np.array([-1, 0, 0], np.int32)
    for ops in (naive, native_ops):
        assert np.isfinite(ops.attention(q, k, v, 17, parents, 0.125)).all()


@pytest.mark.parametrize("implementation", ["naive", "native"])
def test_a_tree_row_equals_plain_decoding_of_its_path(native_ops: ModuleType, implementation: str) -> None:
    ops = naive if implementation == "naive" else native_ops
    q, k, v = case(12, 9, 3, 64, 64, 60)
    parents = random_tree(12, seed=3)
    whole = ops.attention(q, k, v, 48, parents, 0.125)
    for row in range(12):
        path = visible_slots(48, parents, row, None)
        keys, values = np.ascontiguousarray(k[path]), np.ascontiguousarray(v[path])
        alone = ops.attention(q[row : row + 1], keys, values, len(path) - 1, chain(1), 0.125)
        assert alone.tobytes() == whole[row : row + 1].tobytes()


@pytest.mark.parametrize("implementation", ["naive", "native"])
@pytest.mark.parametrize("window", [None, 1, 7, 52])
def test_the_last_rows_alone_equal_the_whole_pass(
    native_ops: ModuleType, implementation: str, window: int | None
) -> None:
    """A draft's levels: earlier rows are in the cache, and only their parents are given."""
    ops = naive if implementation == "naive" else native_ops
    q, k, v = case(12, 9, 3, 64, 64, 60)
    parents = random_tree(12, seed=3)
    whole = ops.attention(q, k, v, 48, parents, 0.125, window=window)
    for first, end in ((0, 1), (1, 4), (4, 5), (5, 12)):
        part = ops.attention(q[first:end], k, v, 48, parents[:end], 0.125, window=window)
        assert part.tobytes() == whole[first:end].tobytes()
    with pytest.raises(ValueError):
        ops.attention(q, k, v, 48, parents[:11], 0.125)
    with pytest.raises(ValueError):
        ops.attention(q[:2], k, v, 49, parents, 0.125)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_threads_do_not_show(native_ops: ModuleType, threads: int) -> None:
    q, k, v = case(9, 9, 3, 64, 64, 200)
    expected = naive.attention(q, k, v, 191, random_tree(9), 0.125)
    cpu.native().set_threads(threads)
    for _ in range(20):
        assert native_ops.attention(q, k, v, 191, random_tree(9), 0.125).tobytes() == expected.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_values_stay_in_their_row(native_ops: ModuleType, same_bits: Make, bad: float) -> None:
    q, k, v = case(3, 2, 1, 16, 16, 20)
    q[1, 0, 3] = bad
    expected = naive.attention(q, k, v, 17, chain(3), 0.25)
    assert np.isfinite(expected[[0, 2]]).all()
    same_bits(native_ops.attention(q, k, v, 17, chain(3), 0.25), expected)
    k[2, 0, 5] = bad
    same_bits(native_ops.attention(q, k, v, 17, chain(3), 0.25), naive.attention(q, k, v, 17, chain(3), 0.25))


@pytest.mark.parametrize("parents", [[0], [-2], [-1, 1], [-1, 5]])
def test_bad_parents_are_refused(native_ops: ModuleType, parents: list[int]) -> None:
    q, k, v = case(len(parents), 2, 1, 16, 16, 20)
    for ops in (naive, native_ops):
        with pytest.raises(ValueError, match="parent is -1 or an earlier row"):
            ops.attention(q, k, v, 3, np.array(parents, np.int32), 0.25)


@pytest.mark.parametrize(("n_committed", "window"), [(19, None), (-1, None), (3, 0)])
def test_positions_outside_the_cache_are_refused(native_ops: ModuleType, n_committed: int, window: int | None) -> None:
    q, k, v = case(2, 2, 1, 16, 16, 20)
    for ops in (naive, native_ops):
        with pytest.raises(ValueError):
            ops.attention(q, k, v, n_committed, chain(2), 0.25, window=window)


HUGE = 2**63 - 1


@pytest.mark.parametrize("options", [{}, {"window": 2}, {"n_committed": 2, "window": 2, "first_position": HUGE}])
def test_numbers_near_the_end_of_64_bits_are_refused(native_ops: ModuleType, options: dict[str, int]) -> None:
    q, k, v = case(2, 2, 1, 16, 16, 20)
    for ops in (naive, native_ops):
        for parents in (chain(2), np.array([-1, -1], np.int32)):
            with pytest.raises(ValueError, match=r"cache"):
                ops.attention(q, k, v, parents=parents, scale=0.25, **{"n_committed": HUGE, **options})


@pytest.mark.parametrize("slot", [HUGE, HUGE - 1, 19, -1])
def test_slots_outside_the_cache_are_not_written(native_ops: ModuleType, slot: int) -> None:
    _, cache, _ = case(2, 2, 1, 16, 16, 20)
    before = cache.tobytes()
    for ops in (naive, native_ops):
        with pytest.raises(ValueError, match="slots"):
            ops.kv_write(np.zeros((2, 1, 16), np.float32), cache, slot)
    assert cache.tobytes() == before


@pytest.mark.parametrize(
    ("n_committed", "origin"), [(HUGE, 0), (HUGE - 1, 0), (5, -(2**63)), (5, -1), (3, 0), (2, HUGE)]
)
@pytest.mark.parametrize("operation", ["attention", "kv_write"])
@pytest.mark.usefixtures("native_ops")
def test_a_tape_refuses_positions_outside_the_cache(operation: str, n_committed: int, origin: int) -> None:
    native = cpu.native()
    tape = native.Tape(native.Workspace(), 1, True)
    x, out, first = np.ones((1, 8), np.float32), np.zeros((1, 8), np.float32), np.full(1, origin, np.int64)
    cache = np.zeros((4, 1, 16), np.uint8)
    if operation == "kv_write":
        tape.kv_write(x, cache, 0, first)
    else:
        tape.attention(x, 1, cache, cache, 0, 0, first, 1.0, 2, out)
    with pytest.raises(ValueError, match=r"positions"):
        tape.run(np.zeros(1, np.int64), np.array([-1, 0], np.int32), n_committed, True)
    assert not cache.any() and not out.any()


@pytest.mark.parametrize("n_committed", [HUGE, HUGE - 1, 2**62 + 1, 2**62, 3])
@pytest.mark.usefixtures("native_ops")
def test_a_tape_refuses_positions_outside_the_rotary_tables(n_committed: int) -> None:
    native = cpu.native()
    tape = native.Tape(native.Workspace(), 1, True)
    tables = np.zeros((4, 4), np.float32)
    tape.rope(np.ones((1, 8), np.float32), 1, tables, tables, np.array([4], np.int64), np.zeros((1, 8), np.float32))
    with pytest.raises(ValueError, match="position"):
        tape.run(np.zeros(1, np.int64), np.array([-1, 0], np.int32), n_committed, True)
