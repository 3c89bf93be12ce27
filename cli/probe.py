"""`twofold probe`."""

from __future__ import annotations


def probe() -> None:
    """Not written yet."""
    raise SystemExit(1)
