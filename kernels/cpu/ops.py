"""All operations, native: the signatures and the results, to the bit, of `twofold.kernels.naive.ops`.

Importing this module loads the compiled module and raises `NativeMissing` where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from twofold.kernels.cpu import native
from twofold.kernels.naive.arrays import F16, F32, I8, I32, I64, Array, check
from twofold.kernels.naive.chosen_rows import check_chosen
from twofold.kernels.naive.draw import check_draw
from twofold.kernels.naive.kv_blocks import KvType, check_cache
from twofold.kernels.naive.last_match import check_last_match
from twofold.kernels.naive.rope import rope_tables
from twofold.kernels.naive.round_columns import check_arguments
from twofold.kernels.naive.shortlist import check_shortlist
from twofold.kernels.naive.softmax import sharpness
from twofold.kernels.naive.split_weights import SplitWeights

if TYPE_CHECKING:
    from twofold.kernels.cpu._cpu import SplitLinear

__all__ = [
    "SplitWeights",
    "add",
    "argmax",
    "attention",
    "chosen_rows",
    "draw",
    "embed",
    "gelu_mul",
    "kv_write",
    "last_match",
    "rms_norm",
    "rope",
    "rope_tables",
    "round_columns",
    "shortlist",
    "silu_mul",
    "softmax_total",
    "split_linear",
    "top_k",
    "uniform",
]

_cpu = native()
_EXCHANGE = {"float32": 0, "float16": 1, "bfloat16": 2}
KV_TYPE: dict[KvType, int] = {"f16": 0, "q8_0": 1, "q4_0": 2}
_bound: WeakKeyDictionary[SplitWeights, SplitLinear] = WeakKeyDictionary()


def split_linear(x: F32, weights: SplitWeights, use_residual: bool, *, out: F32 | None = None) -> F32:
    """fp32 [rows, in_features] to [rows, sum of member rows]: base and residual (verify), or the base alone (draft)."""
    check(x, np.float32, (None, weights.in_features), "x")
    y = _output(out, (x.shape[0], weights.out_features))
    bound_linear(weights)(np.ascontiguousarray(x), use_residual, y)
    return y


def chosen_rows(x: F32, weights: SplitWeights, ids: I64, *, out: F32 | None = None) -> F32:
    """Outputs `ids` [rows, n] of each row of x [rows, in_features], base and residual: fp32 [rows, n]."""
    check_chosen(x, weights, ids)
    y = _output(out, (x.shape[0], ids.shape[1]))
    bound_linear(weights).chosen(np.ascontiguousarray(x), np.ascontiguousarray(ids), y)
    return y


def bound_linear(weights: SplitWeights) -> SplitLinear:
    """The compiled module's view of the weights, made once."""
    bound = _bound.get(weights)
    if bound is None:
        bound = _bound[weights] = _bind(weights)
    return bound


def rms_norm(x: F32, weight: F32, eps: float, *, out: F32 | None = None) -> F32:
    """(x * r) * weight with r = 1 / sqrt(Sum16(x*x) / n + eps): fp32 [..., n] and weight [n] to [..., n]."""
    check(weight, np.float32, (x.shape[-1],), "weight")
    check(x, np.float32, x.shape, "x")
    y = _output(out, x.shape)
    rows = (-1, x.shape[-1])
    _cpu.rms_norm(np.ascontiguousarray(x).reshape(rows), np.ascontiguousarray(weight), eps, y.reshape(rows))
    return y


def rope(x: F32, cos: F32, sin: F32, *, out: F32 | None = None) -> F32:
    """Rotate each head of fp32 [rows, heads, D] by its row's angles: cos and sin [rows, R / 2]; `out` is not x."""
    check(x, np.float32, (None, None, None), "x")
    half = cos.shape[-1]
    if 2 * half > x.shape[2]:
        raise ValueError(f"{2 * half} rotary dimensions do not fit heads of {x.shape[2]}")
    check(cos, np.float32, (x.shape[0], half), "cos")
    check(sin, np.float32, (x.shape[0], half), "sin")
    y = _output(out, x.shape)
    _cpu.rope(np.ascontiguousarray(x), np.ascontiguousarray(cos), np.ascontiguousarray(sin), y)
    return y


def silu_mul(gate: F32, up: F32, *, out: F32 | None = None) -> F32:
    """silu(gate) * up, fp32 of any one shape."""
    check(gate, np.float32, gate.shape, "gate")
    check(up, np.float32, gate.shape, "up")
    y = _output(out, gate.shape)
    _cpu.silu_mul(_flat(gate), _flat(up), y.reshape(-1))
    return y


def gelu_mul(gate: F32, up: F32, *, out: F32 | None = None) -> F32:
    """gelu(gate) * up in the tanh form, fp32 of any one shape."""
    check(gate, np.float32, gate.shape, "gate")
    check(up, np.float32, gate.shape, "up")
    y = _output(out, gate.shape)
    _cpu.gelu_mul(_flat(gate), _flat(up), y.reshape(-1))
    return y


def add(x: F32, y: F32, *, out: F32 | None = None) -> F32:
    """x + y, fp32 of any one shape; `out` may be x or y."""
    check(x, np.float32, x.shape, "x")
    check(y, np.float32, x.shape, "y")
    total = _output(out, x.shape)
    _cpu.add(_flat(x), _flat(y), total.reshape(-1))
    return total


def argmax(logits: F32) -> I64:
    """The id of each row's largest logit, the lowest id among equals: fp32 [rows, vocab] to int64 [rows].

    −1 for a row where a logit is not finite.

    Raises:
        ValueError: rows of no logits.
    """
    check(logits, np.float32, (None, None), "logits")
    best = np.empty(logits.shape[0], np.int64)
    _cpu.argmax(np.ascontiguousarray(logits), best)
    return best


def softmax_total(logits: F32, peak: float, temperature: float) -> float:
    """The sum of exp((logits - peak) / temperature) over fp32 [n], none above `peak`, in fp64."""
    check(logits, np.float32, (None,), "logits")
    return float(_cpu.softmax_total(np.ascontiguousarray(logits), peak, sharpness(temperature)))


def draw(logits: F32, peak: float, *, temperature: float, keep: int, top_p: float, min_p: float, u: float) -> int:
    """The id at `u` of the inverse CDF over what top-k (`keep`), top-p and min-p leave of fp32 [n]."""
    check_draw(logits, temperature, keep, top_p, min_p, u)
    few = min(keep, logits.size)
    return int(_cpu.draw(np.ascontiguousarray(logits), peak, sharpness(temperature), few, top_p, min_p, u))


def shortlist(logits: F32, x: F32, weights: SplitWeights, n: int, k: int) -> I64:
    """Each row's k likeliest outputs, best first: n by the base's logits [rows, vocab], ranked by the whole product.

    Raises:
        ValueError: shapes that do not fit, a Linear without single outputs, or a NaN (naming the first such row).
    """
    check_shortlist(logits, x, weights, n, k)
    best = np.empty((x.shape[0], k), np.int64)
    bound_linear(weights).shortlist(np.ascontiguousarray(logits), np.ascontiguousarray(x), n, best)
    return best


def last_match(tokens: I32, most: int) -> tuple[int, int]:
    """(length, position behind the earlier run): the longest run of up to `most` tokens of int32 [n] that ends the text
    and stood in it before, the latest of the longest; (0, 0) where there is none.

    Raises:
        ValueError: no tokens, or `most` below 1.
    """
    check_last_match(tokens, most)
    length, behind = _cpu.last_match(np.ascontiguousarray(tokens), most)
    return int(length), int(behind)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) of 53 bits, keyed by (seed, position), each 0 … 2^64 − 1."""
    return float(_cpu.uniform(seed, position))


def top_k(logits: F32, k: int) -> I64:
    """The ids of each row's k largest logits by (−logit, id), best first: fp32 [rows, vocab] to int64 [rows, k].

    Raises:
        ValueError: when k is not 1 to vocab, or a logit is NaN (naming the first such row).
    """
    check(logits, np.float32, (None, None), "logits")
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"cannot choose {k} of {logits.shape[1]} logits")
    best = np.empty((logits.shape[0], k), np.int64)
    _cpu.top_k(np.ascontiguousarray(logits), best)
    return best


def embed(table: F16, tokens: I64, *, out: F32 | None = None) -> F32:
    """Rows of fp16 [vocab, hidden] for int64 tokens [rows], as fp32 [rows, hidden].

    Raises:
        ValueError: when a token is outside the vocabulary.
    """
    check(table, np.float16, (None, None), "table")
    check(tokens, np.int64, (None,), "tokens")
    y = _output(out, (tokens.shape[0], table.shape[1]))
    _cpu.embed(_contiguous(table, "table").view(np.uint16), np.ascontiguousarray(tokens), y)
    return y


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
    """Attend from each row of a pass to what is in the cache: see `twofold.kernels.naive.attention.attention`."""
    check(q, np.float32, (None, None, None), "q")
    check_cache(k_cache, q.shape[2], k_type, "k_cache")
    check_cache(v_cache, None, v_type, "v_cache")
    check(parents, np.int32, (None,), "parents")
    if window is not None and window < 1:
        raise ValueError(f"a window is at least one position, got {window}")
    v_dim = v_cache.shape[2] if v_type == "f16" else q.shape[2]
    y = _output(out, (*q.shape[:2], v_dim if out is None else out.shape[-1]))
    _cpu.attention(
        np.ascontiguousarray(q),
        _contiguous(k_cache, "k_cache").view(np.uint8),
        _contiguous(v_cache, "v_cache").view(np.uint8),
        n_committed,
        np.ascontiguousarray(parents),
        scale,
        window or 0,
        KV_TYPE[k_type],
        KV_TYPE[v_type],
        first_position,
        y,
    )
    return y


def kv_write(x: F32, cache: Array, first_slot: int, kind: KvType = "f16") -> None:
    """Store the keys or values of a pass, fp32 [rows, kv_heads, D], in slots first_slot.. of the cache."""
    check(x, np.float32, (None, None, None), "x")
    check_cache(cache, x.shape[2], kind, "cache")
    _cpu.kv_write(np.ascontiguousarray(x), _contiguous(cache, "cache").view(np.uint8), first_slot, KV_TYPE[kind])


def round_columns(
    weights: F32, target: F32, feedback: F32, scale: F32, *, inner: int | None, highest: int, out: I8 | None = None
) -> I8:
    """Round a block's columns with error feedback: see `twofold.kernels.naive.round_columns.round_columns`."""
    levels = np.empty(weights.shape, np.int8) if out is None else out
    check_arguments(weights, target, feedback, scale, inner, highest, levels)
    _cpu.round_columns(
        weights,
        np.ascontiguousarray(target),
        np.ascontiguousarray(feedback),
        np.ascontiguousarray(scale),
        inner or 0,
        highest,
        levels,
    )
    return levels


def _output(out: F32 | None, shape: tuple[int, ...]) -> F32:
    if out is None:
        return np.empty(shape, np.float32)
    check(out, np.float32, shape, "out")
    if not out.flags.c_contiguous:
        raise ValueError("out must be contiguous")
    return out


def _flat(x: F32) -> F32:
    return np.ascontiguousarray(x).reshape(-1)


def _contiguous(array: Array, name: str) -> Array:
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous: copying it for every call would be slow")
    return array


def _bind(weights: SplitWeights) -> SplitLinear:
    def half_bits(scales: F16) -> Array:
        return _contiguous(scales, "scales").view(np.uint16)

    def optional(array: Array | None) -> Array | None:
        return None if array is None else np.ascontiguousarray(array)

    signs: I8 = np.ascontiguousarray(weights.input_signs)
    bound: SplitLinear = _cpu.SplitLinear(
        in_features=weights.in_features,
        member_rows=list(weights.member_rows),
        base_codes=_contiguous(weights.base_codes, "base_codes"),
        base_scales=half_bits(weights.base_scales),
        levels=weights.levels.tolist(),
        residual_codes=_contiguous(weights.residual_codes, "residual_codes"),
        residual_scales=half_bits(weights.residual_scales),
        residual_bits=weights.residual_bits,
        group_size=weights.group_size,
        base_planes=weights.base_planes,
        residual_planes=weights.residual_planes,
        exchange=_EXCHANGE[weights.exchange_dtype],
        input_signs=signs,
        output_signs=optional(weights.output_signs),
        mix_in=optional(weights.mix_in),
        mix_out=[optional(mix) for mix in weights.mix_out],
        bias=optional(weights.bias),
    )
    return bound
