"""`twofold bench`."""

from __future__ import annotations


def bench() -> None:
    """Not written yet."""
    raise SystemExit(1)
