"""Rank statistics of a user's own conversations, one small file per checkpoint in the state folder.

They say which guesses of a model's draft come true in what this person writes with it, and shape the draft tree of the
next start; text never depends on them. They stay here: no checkpoint and no exported profile holds them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twofold.profiles.errors import TwofoldError
from twofold.profiles.files import write_atomically
from twofold.profiles.locks import exclusive
from twofold.profiles.settings import state_dir

SCHEMA_VERSION = 1
RANKS = 16
"""Ranks that are told apart; one more count is for everything behind them."""
MAX_DEPTHS = 64
MAX_TOTAL = 20_000
"""Counts per depth; beyond it all are halved, so that what was written last year fades."""
MAX_FILES = 128
_MAX_BYTES = 64 << 10
_KEY = re.compile(r"[0-9a-f]{16,64}")

Counts = tuple[tuple[int, ...], ...]


def ranks_dir() -> Path:
    """The folder of the files."""
    return state_dir() / "ranks"


def rank_key(made: Mapping[str, Any]) -> str:
    """What a checkpoint's statistics are kept under: all that its `quantization_config` says of how it was made, and
    nothing of where it is.
    """
    words = {name: value for name, value in made.items() if name != "measured"}
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:32]


def _path(key: str) -> Path:
    if not _KEY.fullmatch(key):
        raise ValueError(f"a checkpoint's key is 16 to 64 hexadecimal digits, got {key!r}")
    return ranks_dir() / f"{key}.json"


def read_ranks(key: str) -> Counts:
    """What was counted for a checkpoint; nothing where there is no file, or none that can be used."""
    path = _path(key)
    try:
        if path.stat().st_size > _MAX_BYTES:
            return ()
        return _checked(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        return ()


def _checked(document: Any) -> Counts:
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError("another schema")
    depths = document.get("counts")
    if not isinstance(depths, list) or len(depths) > MAX_DEPTHS:
        raise ValueError("counts are a list of depths")
    for depth in depths:
        if not isinstance(depth, list) or len(depth) != RANKS + 1 or not all(_is_count(count) for count in depth):
            raise ValueError("a depth is a list of counts")
    return tuple(tuple(depth) for depth in depths)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOTAL


def add_ranks(key: str, counts: Sequence[Sequence[int]]) -> bool:
    """Add a session's counts to a checkpoint's file; whether that was possible.

    A file that is damaged is replaced. Statistics are not worth an error: a full disk or a busy lock loses them.

    Raises:
        ValueError: counts of another shape.
    """
    path = _path(key)
    if any(len(depth) != RANKS + 1 or min(depth) < 0 for depth in counts):
        raise ValueError(f"a depth has {RANKS + 1} counts")
    if not any(sum(depth) for depth in counts):
        return True
    try:
        with exclusive(ranks_dir() / ".lock", "keeping rank statistics", wait_seconds=1.0):
            known = read_ranks(key)
            merged = [_sum(known, counts, depth) for depth in range(min(MAX_DEPTHS, max(len(known), len(counts))))]
            document = {"schema_version": SCHEMA_VERSION, "counts": merged}
            write_atomically(path, json.dumps(document) + "\n", mode=0o600)
            _drop_oldest()
    except (OSError, TwofoldError):
        return False
    return True


def _sum(known: Counts, new: Sequence[Sequence[int]], depth: int) -> list[int]:
    nothing = (0,) * (RANKS + 1)
    pair = [table[depth] if depth < len(table) else nothing for table in (known, new)]
    total = [a + b for a, b in zip(*pair, strict=True)]
    while sum(total) > MAX_TOTAL:
        total = [count // 2 for count in total]
    return total


def _drop_oldest() -> None:
    files = sorted(ranks_dir().glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in files[: max(0, len(files) - MAX_FILES)]:
        path.unlink(missing_ok=True)
