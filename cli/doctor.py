"""`twofold doctor`."""

from __future__ import annotations


def doctor() -> None:
    """Not written yet."""
    raise SystemExit(1)
