"""All operations by name, with the signatures that `twofold.kernels.cpu.ops` repeats."""

from __future__ import annotations

from twofold.kernels.naive.argmax import argmax
from twofold.kernels.naive.attention import attention
from twofold.kernels.naive.chosen_rows import chosen_rows
from twofold.kernels.naive.draw import draw
from twofold.kernels.naive.elementwise import add
from twofold.kernels.naive.embedding import embed
from twofold.kernels.naive.gelu import gelu_mul
from twofold.kernels.naive.kv_blocks import kv_write
from twofold.kernels.naive.last_match import last_match
from twofold.kernels.naive.rms_norm import rms_norm
from twofold.kernels.naive.rope import rope, rope_tables
from twofold.kernels.naive.round_columns import round_columns
from twofold.kernels.naive.shortlist import shortlist
from twofold.kernels.naive.silu import silu_mul
from twofold.kernels.naive.softmax import softmax_total
from twofold.kernels.naive.split_linear import split_linear
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.kernels.naive.top_k import top_k
from twofold.kernels.naive.uniform import uniform

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
