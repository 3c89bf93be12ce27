"""Where the last tokens of a text stood before: what a draft looked up in the text itself continues."""

from __future__ import annotations

import numpy as np

from twofold.kernels.naive.arrays import I32, check


def last_match(tokens: I32, most: int) -> tuple[int, int]:
    """(length, position behind the earlier run) of int32 [n], n ≥ 1: the longest run of at most `most` tokens that ends
    the text and also ends earlier in it, the latest of the longest ones. Runs may overlap. (0, 0) where there is none.

    Raises:
        ValueError: no tokens, or `most` below 1.
    """
    check_last_match(tokens, most)
    n = len(tokens)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1]) + 1
    length = 0
    while len(ends):
        best, length = int(ends[-1]), length + 1
        if length == most:
            break
        ends = ends[ends > length]
        ends = ends[tokens[ends - 1 - length] == tokens[n - 1 - length]]
    return (length, best) if length else (0, 0)


def check_last_match(tokens: I32, most: int) -> None:
    """Refuse what `last_match` cannot answer."""
    check(tokens, np.int32, (None,), "tokens")
    if len(tokens) < 1 or most < 1:
        raise ValueError(f"a match needs a token and a length of 1 or more, got {len(tokens)} tokens and {most}")
