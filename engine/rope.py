"""Rotary position tables, in fp64 and rounded once, as Hugging Face's configs describe them.

The frequencies follow the published definitions: plain RoPE (Su et al. 2021), `linear` position interpolation (Chen et
al. 2023) and Llama 3.1's piecewise scaling by wavelength.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import RopeSpec

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def _kind(scaling: dict[str, Any] | None) -> str:
    if scaling is None:
        return "default"
    return str(scaling.get("rope_type", scaling.get("type", "default")))


def _llama3(frequencies: F64, scaling: dict[str, Any]) -> F64:
    """Long wavelengths are divided by the factor, short ones kept, those between blended linearly."""
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * frequencies / (2 * math.pi)
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - keep) * frequencies / factor + keep * frequencies


def frequencies(rope: RopeSpec) -> F64:
    """Angle per position of each rotated pair: fp64 [rotary_dim / 2].

    Raises:
        UnsupportedModel: for a scaling that is not default, linear or llama3, or whose parameters are missing.
    """
    plain = rope.theta ** -(np.arange(0, rope.rotary_dim, 2, dtype=np.float64) / rope.rotary_dim)
    kind = _kind(rope.scaling)
    if kind == "default":
        return plain
    assert rope.scaling is not None
    try:
        if kind == "linear":
            return plain / float(rope.scaling["factor"])
        if kind == "llama3":
            return _llama3(plain, rope.scaling)
    except KeyError as error:
        raise UnsupportedModel(f"the rope scaling {kind!r} lacks {error.args[0]!r}") from None
    raise UnsupportedModel(f"rope scaling {kind!r} is not supported", needed="default, linear or llama3")


def tables(rope: RopeSpec, positions: NDArray[np.integer[Any]]) -> tuple[F32, F32]:
    """cos and sin of every position's angles: fp32 [n_positions, rotary_dim / 2] each."""
    angles = positions.astype(np.float64)[:, None] * frequencies(rope)[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
