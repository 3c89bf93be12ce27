"""Where a text's last tokens stood before: the numpy definition against plain lists, the native one against it."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from twofold.kernels.naive import ops as naive


def by_lists(tokens: list[int], most: int) -> tuple[int, int]:
    """Every earlier end, the longest run behind it."""
    best = (0, 0)
    for end in range(1, len(tokens)):
        length = 0
        while length < min(end, most) and tokens[end - 1 - length] == tokens[-1 - length]:
            length += 1
        if length and length >= best[0]:
            best = (length, end)
    return best


@pytest.mark.parametrize(
    ("text", "most", "found"),
    [
        ("a", 8, (0, 0)),
        ("ab", 8, (0, 0)),
        ("aa", 8, (1, 1)),
        ("aaaa", 8, (3, 3)),  # runs may overlap
        ("aaaa", 2, (2, 3)),
        ("abcab", 8, (2, 2)),
        ("abcxbcyabc", 8, (3, 3)),  # longer beats later
        ("bcxbcybc", 8, (2, 5)),  # of equal ones the latest
        ("abcxbcyabc", 2, (2, 6)),
        ("abcabcabc", 8, (6, 6)),
    ],
)
def test_small_texts(native_ops: ModuleType, text: str, most: int, found: tuple[int, int]) -> None:
    tokens = np.array([ord(letter) for letter in text], np.int32)
    for ops in (naive, native_ops):
        assert ops.last_match(tokens, most) == found
    assert by_lists(tokens.tolist(), most) == found


@pytest.mark.parametrize("letters", [1, 2, 3, 40])
def test_random_texts(native_ops: ModuleType, letters: int) -> None:
    rng = np.random.default_rng(letters)
    for size in (1, 2, 3, 7, 16, 65, 300):
        for most in (1, 2, 5, 32, 1 << 40):
            for _ in range(4):
                tokens = rng.integers(0, letters, size, np.int32)
                wanted = by_lists(tokens.tolist(), most)
                assert naive.last_match(tokens, most) == wanted
                assert native_ops.last_match(tokens, most) == wanted
                # what it found is what it says
                length, end = wanted
                if length:
                    assert tokens[end - length : end].tolist() == tokens[size - length :].tolist()


def test_parts_of_a_longer_array(native_ops: ModuleType) -> None:
    kept = np.array([5, 6, 7, 5, 6, 9, 9], np.int32)
    assert native_ops.last_match(kept[:5], 32) == naive.last_match(kept[:5], 32) == (2, 2)
    assert native_ops.last_match(kept[::2], 32) == naive.last_match(kept[::2], 32)  # 5 7 6 9


def test_what_cannot_be_asked(native_ops: ModuleType) -> None:
    for ops in (naive, native_ops):
        for tokens, most in (([], 4), ([1], 0), ([1], -1)):
            with pytest.raises(ValueError, match="a match needs a token"):
                ops.last_match(np.array(tokens, np.int32), most)
        for wrong in (np.zeros(3, np.int64), np.zeros((2, 2), np.int32)):
            with pytest.raises((ValueError, TypeError)):
                ops.last_match(wrong, 4)
