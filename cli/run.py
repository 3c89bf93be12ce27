"""`twofold run`."""

from __future__ import annotations


def run() -> None:
    """Not written yet."""
    raise SystemExit(1)
