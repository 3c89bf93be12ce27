"""`twofold cards`."""

from __future__ import annotations


def cards() -> None:
    """Not written yet."""
    raise SystemExit(1)
