"""`twofold chat`."""

from __future__ import annotations


def chat() -> None:
    """Not written yet."""
    raise SystemExit(1)
