"""Grouped-query attention over the KV cache, for a chunk of a prompt, one token, or a tree of drafted tokens."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F16, F32, I32, I64, check, result
from twofold.kernels.naive.exponential import exp
from twofold.kernels.naive.sum16 import sum16


def visible_slots(n_committed: int, parents: I32, row: int, window: int | None) -> I64:
    """Cache slots that a row of the pass sees, in order of position, its own last.

    Slots 0..n_committed-1 hold the committed positions, slot n_committed + r row r behind. A row sees the committed
    ones, its ancestors and itself; with a window only the last `window` of them.
    """
    path = []
    node = row
    while node >= 0:
        path.append(n_committed + node)
        node = int(parents[node])
    slots = np.concatenate([np.arange(n_committed), np.array(path[::-1])]).astype(np.int64)
    return slots if window is None else slots[-window:]


def check_parents(parents: I32) -> None:
    """Raise ValueError unless every parent is -1 (the committed text) or an earlier row."""
    if ((parents < -1) | (parents >= np.arange(len(parents)))).any():
        raise ValueError(f"a row's parent is -1 or an earlier row, got {parents.tolist()}")


def attention(
    q: F32,
    k_cache: F16,
    v_cache: F16,
    n_committed: int,
    parents: I32,
    scale: float,
    *,
    window: int | None = None,
    out: F32 | None = None,
) -> F32:
    """Attend from each row of a pass to what is in the cache: fp32 [rows, heads, D] to [rows, heads, Dv].

    The keys and values of the rows behind the committed text are already in slots n_committed..n_committed +
    len(parents) - 1; the pass is the last `rows` of them (the ones before it are an earlier pass's: a draft's upper
    levels). A chunk of a prompt is the chain parents = [-1, 0, 1, …]; a tree row names its parent row.

    Args:
        q: queries after RoPE.
        k_cache: fp16 [capacity, kv_heads, D]; query head h reads KV head h // (heads / kv_heads).
        v_cache: fp16 [capacity, kv_heads, Dv].
        parents: int32 [at least rows], -1 or an earlier row.
        scale: multiplies the scores, rounded to fp32.
        window: how many positions a row sees, its own included (None: all).
    """
    check(q, np.float32, (None, None, None), "q")
    rows, heads, dim = q.shape
    check(k_cache, np.float16, (None, None, dim), "k_cache")
    capacity, kv_heads = k_cache.shape[:2]
    check(v_cache, np.float16, (capacity, kv_heads, None), "v_cache")
    check(parents, np.int32, (None,), "parents")
    check_parents(parents)
    first, misfit = len(parents) - rows, n_committed < 0 or n_committed + len(parents) > capacity
    if first < 0 or heads % kv_heads or misfit or (window is not None and window < 1):
        raise ValueError(
            f"{rows} rows, {len(parents)} parents after {n_committed} positions, {heads} heads on {kv_heads}, "
            f"window {window}: does not fit a cache of {capacity}"
        )
    attended = np.empty((rows, heads, v_cache.shape[2]), np.float32)
    with np.errstate(all="ignore"):
        for row in range(rows):
            slots = visible_slots(n_committed, parents, first + row, window)
            keys = np.repeat(k_cache[slots].astype(np.float32), heads // kv_heads, axis=1)
            values = np.repeat(v_cache[slots].astype(np.float32), heads // kv_heads, axis=1)
            attended[row] = _attend(q[row], keys, values, np.float32(scale))
    return result(attended, out)


def _attend(q: F32, keys: F32, values: F32, scale: np.float32) -> F32:
    """One row, all heads: q [heads, D], keys and values [positions, heads, ·]."""
    scores = sum16(q * keys) * scale  # [positions, heads]
    weights = exp(scores - scores.max(axis=0))
    attended = np.zeros(values.shape[1:], np.float32)
    for position in range(len(values)):
        attended += weights[position, :, None] * values[position]
    attended /= sum16(weights.T)[:, None]
    return attended
