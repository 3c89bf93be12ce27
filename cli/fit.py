"""`twofold fit`."""

from __future__ import annotations


def fit() -> None:
    """Not written yet."""
    raise SystemExit(1)
