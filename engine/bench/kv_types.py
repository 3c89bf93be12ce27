"""Attention over a long context by the types of K and V: time, bytes read, and the ratio to f16 in the same rounds.

A sample is one call for each of several layers' caches, which lie apart, so that they come from memory as in a real
pass where they are larger than the processor's caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from twofold.engine.bench.rounds import Rule, interleave, warm_up
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive.kv_blocks import KvType, encode
from twofold.profiles.errors import EngineFailed
from twofold.profiles.figures import Figure
from twofold.profiles.model_spec import LayerSpec, ModelSpec
from twofold.profiles.series import Series

CONTEXT = 8192
ROWS = (1, 8)
KV_TYPES: tuple[KvType, ...] = get_args(KvType)
_CHECKED_CONTEXT = 300  # several of attention's parts, the last one not whole
_CHECKED_ROWS = 5


@dataclass(frozen=True, slots=True)
class AttentionTime:
    """Attention of one layer; `cache_bytes` are K and V of the context, read once a call."""

    kv_type: KvType
    rows: int
    context: int
    heads: tuple[int, int]
    isa: str
    threads: int
    cache_bytes: int
    latency_us: Figure
    gb_s: Figure
    speed_to_f16: Figure

    def to_json(self) -> dict[str, Any]:
        plain = ("kv_type", "rows", "context", "heads", "isa", "threads", "cache_bytes")
        figures = ("latency_us", "gb_s", "speed_to_f16")
        found = {name: getattr(self, name) for name in plain} | {"heads": list(self.heads)}
        return found | {name: getattr(self, name).to_json() for name in figures}


@dataclass(frozen=True, slots=True)
class _Caches:
    """K and V of several layers, [slots, kv_heads, width] each."""

    kind: KvType
    layers: list[tuple[NDArray[Any], NDArray[Any]]]

    @property
    def layer_bytes(self) -> int:
        return sum(part.nbytes for part in self.layers[0])


def attention_layer(spec: ModelSpec) -> LayerSpec | None:
    """The first layer with a cache of K and V that sees all of the context; None where no layer does."""
    whole = [one for one in spec.layers if one.n_kv_heads and one.kv_values_per_token and one.window is None]
    return whole[0] if whole else None


def check_kv_types(spec: ModelSpec, ops: Any) -> int:
    """Compare attention over every type of cache with numpy's, on a tree of 5 rows; returns how many were compared.

    Raises:
        EngineFailed: when a bit differs.
    """
    layer = attention_layer(spec)
    if layer is None:
        return 0
    parents = np.array([-1, 0, 0, 1, 1], np.int32)
    queries = _queries(layer, _CHECKED_ROWS)
    for kind in KV_TYPES:
        k, v = _caches(layer, kind, _CHECKED_CONTEXT, 1).layers[0]
        n_committed, scale = _CHECKED_CONTEXT - _CHECKED_ROWS, spec.score_scale(layer)
        right, given = (
            one.attention(queries, k, v, n_committed, parents, scale, k_type=kind, v_type=kind) for one in (naive, ops)
        )
        n_wrong = int(np.count_nonzero(given.view(np.uint32) != right.view(np.uint32)))
        if n_wrong:
            raise EngineFailed(
                f"no speed is reported: attention over {kind} computes other bits than numpy",
                found=f"{n_wrong} of {right.size} values differ",
                needed="the same bits",
                hint="twofold doctor, then: pip install --force-reinstall --no-deps .",
            )
    return len(KV_TYPES)


def time_attention(
    spec: ModelSpec,
    ops: Any,
    tier: str,
    threads: int,
    most_bytes: int,
    rule: Rule,
    context: int = CONTEXT,
    rows: Sequence[int] = ROWS,
) -> list[AttentionTime]:
    """Time a chain of rows at the end of `context` positions, for every type of K and V, in interleaved rounds.

    All of a type's caches together take at most `most_bytes`, of one layer at least. Empty where no layer of the model
    sees the whole context.

    Raises:
        EngineFailed: when a bit differs from numpy's.
    """
    layer = attention_layer(spec)
    if layer is None:
        return []
    check_kv_types(spec, ops)
    n_alike = sum(one.n_kv_heads > 0 and one.window is None for one in spec.layers)
    layer_bytes = 2 * layer.kv_values_per_token * context
    n_layers = max(1, min(n_alike, most_bytes // layer_bytes))
    caches = [_caches(layer, kind, context, n_layers) for kind in KV_TYPES]
    scale = spec.score_scale(layer)
    samplers = {(one.kind, n): _sampler(layer, one, ops, context, n, scale) for n in rows for one in caches}
    warm_up(samplers, rule)
    found = interleave(samplers, rule)
    return [
        _time(layer, one, context, n, tier, threads, found[one.kind, n], found["f16", n])
        for n in rows
        for one in caches
    ]


def _queries(layer: LayerSpec, rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((rows, layer.n_heads, layer.k_head_dim)).astype(np.float32)


def _caches(layer: LayerSpec, kind: KvType, context: int, n_layers: int) -> _Caches:
    rng = np.random.default_rng(0)
    first = [
        encode(rng.standard_normal((context, layer.n_kv_heads, dim)).astype(np.float32), kind)
        for dim in (layer.k_head_dim, layer.v_head_dim)
    ]
    return _Caches(kind, [(np.roll(first[0], i, 0), np.roll(first[1], i, 0)) for i in range(n_layers)])


def _sampler(
    layer: LayerSpec, caches: _Caches, ops: Any, context: int, rows: int, scale: float
) -> Callable[[int], float]:
    queries = _queries(layer, rows)
    parents = np.arange(-1, rows - 1, dtype=np.int32)
    out = np.empty((rows, layer.n_heads, layer.v_head_dim), np.float32)
    kind = caches.kind

    def sample(_round: int) -> float:
        started = time.perf_counter()
        for k, v in caches.layers:
            ops.attention(queries, k, v, context - rows, parents, scale, k_type=kind, v_type=kind, out=out)
        return time.perf_counter() - started

    return sample


def _time(
    layer: LayerSpec, caches: _Caches, context: int, rows: int, tier: str, threads: int, seconds: Series, f16: Series
) -> AttentionTime:
    n, size = len(caches.layers), caches.layer_bytes
    by = f"a chain of {rows} at the end of {context} positions, {n} layers' caches ({n * size / 2**20:.1f} MiB)"
    ratios = tuple(other / own for own, other in zip(seconds.samples, f16.samples, strict=True))

    def series(samples: tuple[float, ...]) -> Series:
        return Series(samples, seconds.ended_by)

    return AttentionTime(
        kv_type=caches.kind,
        rows=rows,
        context=context,
        heads=(layer.n_heads, layer.n_kv_heads),
        isa=tier,
        threads=threads,
        cache_bytes=size,
        latency_us=series(tuple(s / n * 1e6 for s in seconds.samples)).figure("us", by),
        gb_s=series(tuple(n * size / s / 1e9 for s in seconds.samples)).figure("GB/s", by),
        speed_to_f16=series(ratios).figure("1", f"{by}; f16's time over this one's in the same round"),
    )
