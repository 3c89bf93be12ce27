"""`twofold quantize`."""

from __future__ import annotations


def quantize() -> None:
    """Not written yet."""
    raise SystemExit(1)
