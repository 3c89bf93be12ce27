"""`twofold eval`."""

from __future__ import annotations


def eval() -> None:
    """Not written yet."""
    raise SystemExit(1)
