"""What this build is: version, commit and the instruction set that the kernels use."""

from __future__ import annotations


def version_line() -> str:
    """`twofold 0.1.0 (kernels: <tier or why there are none>)`."""
    from importlib.metadata import version

    from twofold.kernels.cpu import missing_reason

    reason = missing_reason()
    return f"twofold {version('twofold')} (kernels: {'missing: ' + reason if reason else 'native'})"
