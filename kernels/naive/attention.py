"""Grouped-query attention over the KV cache, for a chunk of a prompt, one token, or a tree of drafted tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twofold.kernels.naive.arrays import F32, I16, I32, I64, Array, check, result
from twofold.kernels.naive.exponential import exp
from twofold.kernels.naive.kv_blocks import BLOCK, KvType, cache_width, check_cache, decode, hadamard, n_blocks
from twofold.kernels.naive.quantize_planes import quantize_planes
from twofold.kernels.naive.sum16 import sum16

CHUNK = 128
"""Positions p of one chunk share p // CHUNK."""
MOST_POSITIONS = 1 << 62
"""Of a text: sums of positions and rows stay in 64 bits."""


class Part(NamedTuple):
    """What one row's heads found in one chunk: highest scores [heads], sums of weights [heads], sums [heads, Dv]."""

    highest: F32
    total: F32
    values: F32


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
    k_cache: Array,
    v_cache: Array,
    n_committed: int,
    parents: I32,
    scale: float,
    *,
    window: int | None = None,
    k_type: KvType = "f16",
    v_type: KvType = "f16",
    first_position: int = 0,
    out: F32 | None = None,
) -> F32:
    """Attend from each row of a pass to what is in the cache: fp32 [rows, heads, D] to [rows, heads, Dv].

    The keys and values of the rows behind the committed text are already in slots n_committed..n_committed +
    len(parents) - 1; the pass is the last `rows` of them (the ones before it are an earlier pass's: a draft's upper
    levels). A chunk of a prompt is the chain parents = [-1, 0, 1, …]; a tree row names its parent row.

    Args:
        q: queries after RoPE.
        k_cache: fp16 [slots, kv_heads, D] or uint8 [slots, kv_heads, bytes] of blocks; query head h reads KV head
            h // (heads / kv_heads).
        v_cache: likewise for Dv.
        n_committed: slots that hold committed positions.
        parents: int32 [at least rows], -1 or an earlier row.
        scale: multiplies the scores, rounded to fp32.
        window: how many positions a row sees, its own included (None: all).
        first_position: the position of slot 0, where the cache of a sliding layer has let go of earlier ones.
        out: says Dv where v_cache's blocks are padded (without it: D, or all that an fp16 v_cache has).
    """
    v_dim = check_attention(q, k_cache, v_cache, n_committed, parents, window, k_type, v_type, first_position, out)
    rows, heads, _ = q.shape
    first_row = len(parents) - rows
    queries = _Queries(q, heads // k_cache.shape[1], k_type, np.float32(scale))
    attended = np.empty((rows, heads, v_dim), np.float32)
    with np.errstate(all="ignore"):
        for row in range(rows):
            slots = visible_slots(n_committed, parents, first_row + row, window)
            end = first_position + n_committed + _depth(parents, first_row + row)
            positions = np.arange(end - len(slots), end)
            parts = []
            for chunk in range(positions[0] // CHUNK, positions[-1] // CHUNK + 1):
                inside = positions // CHUNK == chunk
                scores = queries.scores(row, k_cache[slots[inside]])
                parts.append(_part(scores, positions[inside] % CHUNK, v_cache[slots[inside]], v_type, v_dim, heads))
            attended[row] = _joined(parts)
        if v_type != "f16":
            attended = hadamard(attended)
    return result(attended, out)


def check_attention(
    q: F32,
    k_cache: Array,
    v_cache: Array,
    n_committed: int,
    parents: I32,
    window: int | None,
    k_type: KvType,
    v_type: KvType,
    first_position: int,
    out: F32 | None,
) -> int:
    """Raise ValueError for arguments that `attention` cannot take; returns Dv."""
    check(q, np.float32, (None, None, None), "q")
    rows, heads, dim = q.shape
    check_cache(k_cache, dim, k_type, "k_cache")
    check_cache(v_cache, None, v_type, "v_cache")
    v_dim = int(out.shape[-1] if out is not None else v_cache.shape[2] if v_type == "f16" else dim)
    slots, kv_heads = k_cache.shape[:2]
    if v_cache.shape != (slots, kv_heads, cache_width(v_dim, v_type)):
        raise ValueError(f"v_cache {list(v_cache.shape)} does not fit k_cache {list(k_cache.shape)} and Dv = {v_dim}")
    check(parents, np.int32, (None,), "parents")
    check_parents(parents)
    misfit = len(parents) < rows or n_committed < 0 or n_committed + len(parents) > slots
    if misfit or heads % kv_heads or (window is not None and window < 1):
        raise ValueError(
            f"{rows} rows, {len(parents)} parents after {n_committed} positions, {heads} heads on {kv_heads}, "
            f"window {window}: does not fit a cache of {slots}"
        )
    if not 0 <= first_position <= MOST_POSITIONS or (first_position and (window is None or n_committed + 1 < window)):
        raise ValueError(f"a window of {window} is not in a cache of {n_committed} positions from {first_position} on")
    return v_dim


def _depth(parents: I32, row: int) -> int:
    """How many rows of the pass are on the path to `row`, itself included."""
    depth = 0
    while row >= 0:
        row, depth = int(parents[row]), depth + 1
    return depth


class _Queries:
    """The pass's queries as the cache's type wants them: as they are, or rotated and in two int8 planes per head."""

    def __init__(self, q: F32, group: int, kind: KvType, scale: np.float32) -> None:
        self._q, self._group, self._kind, self._scale = q, group, kind, scale
        if kind != "f16":
            rows, heads, dim = q.shape
            with np.errstate(all="ignore"):
                planes = quantize_planes(np.ascontiguousarray(hadamard(q).reshape(-1, dim)), 2)
            t = np.zeros((rows * heads, n_blocks(dim) * BLOCK), np.int16)
            t[:, :dim] = 254 * planes.q[0].astype(np.int16) + planes.q[1]
            self._t: I16 = t.reshape(rows, heads, -1, BLOCK)
            self._unit: F32 = planes.unit.reshape(rows, heads)

    def scores(self, row: int, keys: Array) -> F32:
        """One row against keys [positions, kv_heads, ·]: fp32 [positions, heads]."""
        if self._kind == "f16":
            return sum16(self._q[row] * _per_head(keys.astype(np.float32), self._group)) * self._scale
        codes, scales = (_per_head(x, self._group) for x in decode(keys, self._kind))
        integers = (self._t[row].astype(np.int32) * codes).sum(axis=-1, dtype=np.int32)  # [positions, heads, blocks]
        total = np.zeros(integers.shape[:2], np.float32)
        for block in range(integers.shape[2]):
            total += integers[..., block].astype(np.float32) * scales[..., block]
        scores: F32 = (total * self._unit[row]) * self._scale
        return scores


def _per_head(x: Array, group: int) -> Array:
    """[positions, kv_heads, ...] to [positions, heads, ...]."""
    return np.repeat(x, group, axis=1)


def _part(scores: F32, places: I64, values: Array, kind: KvType, v_dim: int, heads: int) -> Part:
    """One row over the positions of one chunk: scores [n, heads], places in the chunk [n], values [n, kv_heads, ·]."""
    group = heads // values.shape[1]
    highest = scores.max(axis=0)
    weights = exp(scores - highest)
    spread = np.zeros((CHUNK, heads), np.float32)
    spread[places] = weights
    summed = np.zeros((heads, v_dim), np.float32)
    if kind == "f16":
        numbers = _per_head(values.astype(np.float32), group)
        for j in range(len(values)):
            summed += weights[j, :, None] * numbers[j]
    else:
        codes, scales = (_per_head(x, group) for x in decode(values, kind))
        for j in range(len(values)):
            scaled = weights[j, :, None] * scales[j]  # [heads, blocks]
            summed += (scaled[..., None] * codes[j].astype(np.float32)).reshape(heads, -1)[:, :v_dim]
    return Part(highest, sum16(spread.T), summed)


def _joined(parts: list[Part]) -> F32:
    """The parts of one row in ascending order, divided by the sum of weights: [heads, Dv]."""
    highest, total, values = parts[0]
    for part in parts[1:]:
        above = np.maximum(highest, part.highest)
        before, after = exp(highest - above), exp(part.highest - above)
        total = total * before + part.total * after
        values = values * before[:, None] + part.values * after[:, None]
        highest = above
    return values / total[:, None]
