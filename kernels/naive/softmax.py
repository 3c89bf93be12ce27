"""Softmax weights, and what they are divided by: the part of sampling that reads the whole vocabulary."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F32, check
from twofold.kernels.naive.exponential import exp
from twofold.kernels.naive.sum16 import LANES

PIECE = 4096
"""Values that are summed at once; a thread may take any of the pieces."""
COLDEST = np.float32(1e-30)
"""Lower temperatures are this one: its inverse is finite, and all but the largest logits weigh nothing already."""


def sharpness(temperature: float) -> float:
    """1 / temperature in fp32."""
    return float(np.float32(1) / np.maximum(np.float32(temperature), COLDEST))


def softmax_weights(logits: F32, peak: float, temperature: float) -> F32:
    """exp((logits - peak) / temperature) for fp32 logits of any shape, none above `peak`; at least exp(-87.33654)."""
    with np.errstate(over="ignore"):
        return exp((logits - np.float32(peak)) * np.float32(sharpness(temperature)))


def softmax_total(logits: F32, peak: float, temperature: float) -> float:
    """The sum of `softmax_weights` over fp32 [n], in fp64.

    Pieces of 4096 values, each in Sum16's order (16 lanes, then its tree), are added in ascending order.
    """
    check(logits, np.float32, (None,), "logits")
    weights = softmax_weights(logits, peak, temperature)
    pieces = -(-logits.size // PIECE)
    padded = np.zeros(pieces * PIECE, np.float64)
    padded[: logits.size] = weights
    steps = padded.reshape(pieces, PIECE // LANES, LANES)
    lanes = np.zeros((pieces, LANES))
    for step in range(PIECE // LANES):
        lanes += steps[:, step]
    for width in (8, 4, 2, 1):
        lanes = lanes[:, :width] + lanes[:, width : 2 * width]
    total = 0.0
    for piece in lanes[:, 0].tolist():
        total += piece
    return total
