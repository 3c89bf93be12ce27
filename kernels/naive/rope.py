"""Rotary position embedding, half-split pairing, and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twofold.kernels.naive.arrays import F32, F64, I64, check, result


def rope_tables(
    positions: I64, rotary_dim: int, theta: float, scaling: Mapping[str, Any] | None = None
) -> tuple[F32, F32]:
    """cos and sin, fp32 [rows, rotary_dim / 2], computed in fp64 from int64 positions [rows] and rounded once.

    `scaling` is the config's entry: rope_type (or type) "default", "linear" or "llama3" with that scheme's numbers.

    Raises:
        ValueError: for an odd dimension or a scaling scheme that is not known.
    """
    check(positions, np.int64, (None,), "positions")
    angle = positions.astype(np.float64)[:, None] * inverse_frequencies(rotary_dim, theta, scaling)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def inverse_frequencies(rotary_dim: int, theta: float, scaling: Mapping[str, Any] | None = None) -> F64:
    """Radians per position of each pair, fp64 [rotary_dim / 2], scaling applied."""
    if rotary_dim < 2 or rotary_dim % 2:
        raise ValueError(f"rotary dimensions come in pairs, got {rotary_dim}")
    frequencies = np.float64(theta) ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    scaling = scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "linear":
        return frequencies / float(scaling["factor"])
    if kind == "llama3":
        return _llama3(frequencies, scaling)
    if kind != "default":
        raise ValueError(f"RoPE scaling {kind!r} is not known: default, linear and llama3 are")
    return frequencies


def _llama3(frequencies: F64, scaling: Mapping[str, Any]) -> F64:
    """Long wavelengths are stretched by `factor`, short ones kept, those between interpolated (Llama 3.1)."""
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * frequencies / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    blended: F64 = (1 - blend) * frequencies / factor + blend * frequencies
    return blended


def rope(x: F32, cos: F32, sin: F32, *, out: F32 | None = None) -> F32:
    """Rotate each head of fp32 [rows, heads, D] by its row's angles: cos and sin [rows, R / 2], R <= D.

    x1 and x2 are the halves of the first R dimensions: (x1*cos - x2*sin, x2*cos + x1*sin). The others pass.
    """
    check(x, np.float32, (None, None, None), "x")
    half = cos.shape[-1]
    if 2 * half > x.shape[2]:
        raise ValueError(f"{2 * half} rotary dimensions do not fit heads of {x.shape[2]}")
    check(cos, np.float32, (x.shape[0], half), "cos")
    check(sin, np.float32, (x.shape[0], half), "sin")
    cos, sin = cos[:, None, :], sin[:, None, :]
    x1, x2 = x[..., :half], x[..., half : 2 * half]
    with np.errstate(all="ignore"):
        rotated = np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin, x[..., 2 * half :]], axis=-1)
    return result(rotated, out)
