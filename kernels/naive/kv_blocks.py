"""K and V as the cache keeps them: f16, or ggml's q8_0 and q4_0 blocks of 32 values of one head's vector.

A quantised vector is rotated first (a Hadamard transform of each 32 values, or of the largest power of two that divides
its length), which spreads outliers over the block; queries are rotated alike, and what attention gives is rotated back.
The last block of a vector is padded with zeros. Block layouts and scale rules are ggml's (q8_0: fp16 d, 32 int8; q4_0:
fp16 d, 16 bytes, value i in the low nibble of byte i, value 16 + i in its high one).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from twofold.kernels.naive.arrays import F16, F32, I8, U8, Array, check
from twofold.kernels.naive.rotation import block_width, butterflies

KvType = Literal["f16", "q8_0", "q4_0"]
BLOCK = 32
BLOCK_BYTES: dict[KvType, int] = {"q8_0": 34, "q4_0": 18}
_SMALLEST_NORMAL = np.float32(2.0**-126)


class Decoded(NamedTuple):
    """Codes int8 [..., blocks, 32] and their scales fp32 [..., blocks]."""

    codes: I8
    scales: F32


def n_blocks(dim: int) -> int:
    return -(-dim // BLOCK)


def cache_width(dim: int, kind: KvType) -> int:
    """Elements of the cache's last axis: `dim` fp16 numbers, or the bytes of the blocks."""
    return dim if kind == "f16" else n_blocks(dim) * BLOCK_BYTES[kind]


def hadamard(x: F32) -> F32:
    """Each vector of fp32 [..., D] in blocks of 32 (or a smaller power of two that divides D), over the root."""
    dim = x.shape[-1]
    if block_width(dim) == 1:
        return x
    return butterflies(np.ascontiguousarray(x).reshape(-1, dim), BLOCK).reshape(x.shape)


def check_kind(kind: str) -> None:
    """Raise ValueError unless `kind` is a KV type."""
    if kind != "f16" and kind not in BLOCK_BYTES:
        raise ValueError(f"a KV cache is f16, q8_0 or q4_0, not {kind!r}")


def check_cache(cache: Array, dim: int | None, kind: KvType, name: str) -> None:
    """Raise ValueError unless `cache` is [slots, kv_heads, width] of the type (any width where `dim` is None)."""
    check_kind(kind)
    if kind == "f16":
        check(cache, np.float16, (None, None, dim), name)
        return
    check(cache, np.uint8, (None, None, None if dim is None else cache_width(dim, kind)), name)
    if cache.shape[2] % BLOCK_BYTES[kind]:
        raise ValueError(f"{name} holds no whole {kind} blocks: {cache.shape[2]} bytes a head")


def encode(x: F32, kind: KvType) -> F16 | U8:
    """fp32 [..., D] to fp16 [..., D] (nearest even), or to the rotated blocks' bytes uint8 [..., blocks * bytes].

    A block with a NaN, an infinity or a scale beyond fp16 gets codes of zero under a scale of NaN.
    """
    with np.errstate(all="ignore"):
        if kind == "f16":
            return x.astype(np.float16)
        rotated = hadamard(x)
        padded = np.zeros((*x.shape[:-1], n_blocks(x.shape[-1]) * BLOCK), np.float32)
        padded[..., : x.shape[-1]] = rotated
        blocks = padded.reshape(-1, BLOCK)
        scales, codes = _q8_0(blocks) if kind == "q8_0" else _q4_0(blocks)
    encoded = np.concatenate([scales[:, None].view(np.uint8), codes], axis=1)
    return encoded.reshape(*x.shape[:-1], -1)


def decode(cache: U8, kind: KvType) -> Decoded:
    """The codes and scales of uint8 [..., blocks * bytes]; a value is code * scale."""
    blocks = cache.reshape(*cache.shape[:-1], -1, BLOCK_BYTES[kind])
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    quants = np.ascontiguousarray(blocks[..., 2:])
    if kind == "q8_0":
        return Decoded(quants.view(np.int8), scales)
    nibbles = np.concatenate([quants & 15, quants >> 4], axis=-1)
    return Decoded(nibbles.astype(np.int8) - np.int8(8), scales)


def kv_write(x: F32, cache: Array, first_slot: int, kind: KvType = "f16") -> None:
    """Store the keys or values of a pass, fp32 [rows, kv_heads, D], in slots first_slot.. of the cache."""
    check(x, np.float32, (None, cache.shape[1], None), "x")
    check_cache(cache, x.shape[2], kind, "cache")
    if first_slot < 0 or first_slot + x.shape[0] > cache.shape[0]:
        raise ValueError(f"{x.shape[0]} rows from slot {first_slot} do not fit {cache.shape[0]} slots")
    cache[first_slot : first_slot + x.shape[0]] = encode(x, kind)


def _checked_scale(d: F32, blocks: F32) -> tuple[F16, F32, Array]:
    """d as fp16 (NaN where the block cannot be kept), 1 / d (0 where d is no normal number), and what was kept."""
    half = d.astype(np.float16)
    kept = np.isfinite(blocks).all(axis=1) & np.isfinite(half)
    half[~kept] = np.nan
    usable = kept & (np.abs(d) >= _SMALLEST_NORMAL)
    inverse = np.where(usable, np.float32(1) / d, np.float32(0)).astype(np.float32)
    return half, inverse, usable


def _q8_0(blocks: F32) -> tuple[F16, U8]:
    """d = max|x| / 127, codes x / d rounded half away from zero, as ggml's reference does."""
    half, inverse, usable = _checked_scale(np.abs(blocks).max(axis=1) / np.float32(127), blocks)
    scaled = blocks * inverse[:, None]
    size = np.abs(scaled)
    whole = np.trunc(size)
    rounded = whole + (size - whole >= np.float32(0.5))
    codes = np.where(usable[:, None], np.copysign(rounded, scaled), 0).astype(np.int8)
    return half, codes.view(np.uint8)


def _q4_0(blocks: F32) -> tuple[F16, U8]:
    """d = (the first value of largest size) / -8, codes min(15, trunc(x / d + 8.5)), stored above 8 = zero."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
    half, inverse, usable = _checked_scale(largest / np.float32(-8), blocks)
    shifted = np.trunc(blocks * inverse[:, None] + np.float32(8.5))
    codes = np.where(usable[:, None], np.minimum(shifted, 15), 8).astype(np.uint8)
    packed: U8 = codes[:, :16] | codes[:, 16:] << np.uint8(4)
    return half, packed
