"""Pass times of a model on this machine, kept so that only the first start measures them: one small file per model,
kernels, threads and build in the state folder. A file that cannot be used counts for nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold.profiles.files import write_atomically
from twofold.profiles.settings import state_dir

SCHEMA_VERSION = 1
MAX_FILES = 64
_MAX_BYTES = 16 << 10
_MAX_ROWS = 1024
_KEY = re.compile(r"[0-9a-f]{16,64}")
KINDS = ("verify", "draft")
Times = dict[str, dict[int, float]]
"""`verify` and `draft`: seconds by rows."""


def passes_dir() -> Path:
    """The folder of the files."""
    return state_dir() / "passes"


def _path(key: str) -> Path:
    if not _KEY.fullmatch(key):
        raise ValueError(f"a key is 16 to 64 hexadecimal digits, got {key!r}")
    return passes_dir() / f"{key}.json"


def read_pass_times(key: str) -> Times | None:
    """What was measured, or None."""
    path = _path(key)
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        document = json.loads(path.read_text("utf-8"))
        if document["schema_version"] != SCHEMA_VERSION:
            return None
        return {kind: _checked(document[kind]) for kind in KINDS}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _checked(times: Any) -> dict[int, float]:
    found = {int(rows): float(seconds) for rows, seconds in times.items()}
    if 1 not in found or not all(1 <= rows <= _MAX_ROWS for rows in found):
        raise ValueError("rows out of range")
    if not all(math.isfinite(seconds) and 0 < seconds < 3600 for seconds in found.values()):
        raise ValueError("seconds out of range")
    return found


def save_pass_times(key: str, times: Mapping[str, Mapping[int, float]]) -> bool:
    """Keep what was measured; whether that was possible (a full disk costs another measurement, not an error)."""
    document = {"schema_version": SCHEMA_VERSION} | {
        kind: {str(rows): seconds for rows, seconds in times[kind].items()} for kind in KINDS
    }
    try:
        write_atomically(_path(key), json.dumps(document) + "\n", mode=0o600)
        files = sorted(passes_dir().glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[: max(0, len(files) - MAX_FILES)]:
            path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
