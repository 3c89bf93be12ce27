"""Text that came from others, made safe to show: one line, no control characters, bounded."""

from __future__ import annotations

import unicodedata

# Control, format (direction overrides, zero width), surrogate, private use, unassigned, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def is_one_line(text: str) -> bool:
    """Whether `text` holds nothing that a terminal could act on or that hides other text."""
    return not any(unicodedata.category(char) in _UNSAFE for char in text)


def one_line(text: str, limit: int = 256) -> str:
    """`text` with every unsafe character replaced by a space or `?`, blanks merged, and cut to `limit` characters."""
    cut = text[: 4 * limit]
    safe = "".join(char if unicodedata.category(char) not in _UNSAFE else _stand_in(char) for char in cut)
    merged = " ".join(safe.split())
    return merged if len(merged) <= limit else merged[: limit - 1] + "…"


def _stand_in(char: str) -> str:
    return " " if char.isspace() else "?"


def cache_words(k_type: str, v_type: str | None = None) -> str:
    """A KV cache's type, or both where keys and values differ: `q8_0`, `K q8_0, V q4_0`."""
    return k_type if v_type in (None, k_type) else f"K {k_type}, V {v_type}"
