"""The randomised Hadamard rotation H (x) Q of a dimension D = m * 2^k, m odd, and its inverse."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, I8, check, result

MAX_MIXED_BLOCKS = 256


def block_width(dimension: int) -> int:
    """w = 2^k, the largest power of two that divides `dimension`: the size of a Hadamard block."""
    if dimension < 1:
        raise ValueError(f"a dimension is at least 1, got {dimension}")
    return dimension & -dimension


def needs_mix(dimension: int) -> bool:
    """Whether blocks are mixed by a stored m x m orthogonal matrix: 1 < m <= 256."""
    return 1 < dimension // block_width(dimension) <= MAX_MIXED_BLOCKS


def rotate(x: F32, signs: I8, mix: F32 | None, *, out: F32 | None = None) -> F32:
    """R x for each row of fp32 [rows, D]: signs [D], Hadamard blocks over sqrt(w), then mix [m, m] across them."""
    t = butterflies(_checked(x, signs, mix) * signs.astype(np.float32))
    if mix is not None:
        t = _mixed(t, mix)
    return result(t, out)


def unrotate(y: F32, signs: I8, mix: F32 | None, *, out: F32 | None = None) -> F32:
    """R^T y for each row of fp32 [rows, D]: the inverse of `rotate` up to rounding."""
    t = _checked(y, signs, mix)
    if mix is not None:
        t = _mixed(t, mix.T)
    return result(butterflies(t) * signs.astype(np.float32), out)


def _checked(x: F32, signs: I8, mix: F32 | None) -> F32:
    check(x, np.float32, (None, None), "x")
    dimension = x.shape[1]
    check(signs, np.int8, (dimension,), "signs")
    if mix is not None:
        blocks = dimension // block_width(dimension)
        check(mix, np.float32, (blocks, blocks), "mix")
    return x


def butterflies(t: F32, widest: int | None = None) -> F32:
    """Natural-order Walsh-Hadamard in each block (none over `widest`), strides ascending, times fp32(1 / sqrt(w))."""
    rows, dimension = t.shape
    width = block_width(dimension) if widest is None else min(block_width(dimension), widest)
    stride = 1
    with np.errstate(all="ignore"):
        while stride < width:
            pairs = t.reshape(rows, -1, 2, stride)
            a, b = pairs[:, :, 0], pairs[:, :, 1]
            t = np.stack([a + b, a - b], axis=2).reshape(rows, dimension)
            stride *= 2
        scaled: F32 = t * np.float32(1 / np.sqrt(np.float64(width)))
    return scaled


def _mixed(t: F32, mix: F32) -> F32:
    """out[d] = sum over blocks c of mix[d, c] * t[c], from +0, c ascending."""
    rows, dimension = t.shape
    blocks = t.reshape(rows, mix.shape[0], -1)
    out = np.zeros_like(blocks)
    with np.errstate(all="ignore"):
        for c in range(mix.shape[0]):
            out += mix[:, c, None] * blocks[:, c, None, :]
    return out.reshape(rows, dimension)
