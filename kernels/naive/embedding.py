"""Embedding rows."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import F16, F32, I64, check, result


def embed(table: F16, tokens: I64, *, out: F32 | None = None) -> F32:
    """Rows of fp16 [vocab, hidden] for int64 tokens [rows], as fp32 [rows, hidden].

    Raises:
        ValueError: when a token is outside the vocabulary.
    """
    check(table, np.float16, (None, None), "table")
    check(tokens, np.int64, (None,), "tokens")
    outside = (tokens < 0) | (tokens >= table.shape[0])
    if outside.any():
        raise ValueError(f"token {int(tokens[outside][0])} is outside a vocabulary of {table.shape[0]}")
    return result(np.asarray(table[tokens]).astype(np.float32), out)
