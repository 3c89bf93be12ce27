"""Rank statistics in the user's state: they add up, stay small, and no file can break a start."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from twofold.profiles import rank_store
from twofold.profiles.rank_store import MAX_FILES, MAX_TOTAL, RANKS, add_ranks, ranks_dir, read_ranks

KEY = "0123456789abcdef"


def depth(first: int, rest: int = 0) -> list[int]:
    return [first, *[0] * (RANKS - 1), rest]


def test_counts_add_up_over_sessions_of_different_depths() -> None:
    assert read_ranks(KEY) == ()
    assert add_ranks(KEY, [depth(3, 1)]) and add_ranks(KEY, [depth(2), depth(7)])
    assert [list(one) for one in read_ranks(KEY)] == [depth(5, 1), depth(7)]
    assert read_ranks("f" * 16) == ()
    assert (ranks_dir() / f"{KEY}.json").stat().st_mode & 0o777 == 0o600


def test_nothing_counted_writes_nothing() -> None:
    assert add_ranks(KEY, []) and add_ranks(KEY, [depth(0)])
    assert not ranks_dir().exists()


def test_old_counts_fade() -> None:
    for _ in range(3):
        add_ranks(KEY, [depth(MAX_TOTAL // 2 + 1, 4)])
    assert sum(read_ranks(KEY)[0]) <= MAX_TOTAL
    add_ranks(KEY, [[10**12] * (RANKS + 1)])
    assert 0 < sum(read_ranks(KEY)[0]) <= MAX_TOTAL


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema_version": 1}',
        b'{"schema_version": 2, "counts": []}',
        json.dumps({"schema_version": 1, "counts": [depth(-1)]}).encode(),
        json.dumps({"schema_version": 1, "counts": [depth(3)[:-1]]}).encode(),
        json.dumps({"schema_version": 1, "counts": [[True] * (RANKS + 1)]}).encode(),
        json.dumps({"schema_version": 1, "counts": [[0.5] * (RANKS + 1)]}).encode(),
        json.dumps({"schema_version": 1, "counts": [depth(10**30)]}).encode(),
        json.dumps({"schema_version": 1, "counts": [depth(1)] * 65}).encode(),
        b" " * (1 << 20),
    ],
)
def test_a_damaged_file_counts_for_nothing_and_is_replaced(content: bytes) -> None:
    ranks_dir().mkdir(parents=True)
    (ranks_dir() / f"{KEY}.json").write_bytes(content)
    assert read_ranks(KEY) == ()
    assert add_ranks(KEY, [depth(2)]) and [list(one) for one in read_ranks(KEY)] == [depth(2)]


def test_a_folder_that_cannot_be_written_is_no_error(isolated_home: Path) -> None:
    ranks_dir().parent.mkdir(parents=True)
    ranks_dir().write_text("a file where the folder should be")
    assert not add_ranks(KEY, [depth(1)]) and read_ranks(KEY) == ()


def test_old_files_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_store, "MAX_FILES", 3)
    assert MAX_FILES >= 3
    for i in range(5):
        add_ranks(f"{i:016x}", [depth(1)])
        os.utime(ranks_dir() / f"{i:016x}.json", (1000 + i, 1000 + i))
    add_ranks(f"{9:016x}", [depth(1)])
    assert sorted(path.stem for path in ranks_dir().glob("*.json")) == [f"{i:016x}" for i in (3, 4, 9)]


def test_misuse() -> None:
    for key in ("", "../../etc/passwd", "ABCDEF0123456789", "0123"):
        with pytest.raises(ValueError, match="hexadecimal"):
            read_ranks(key)
    for counts in ([[1, 2]], [depth(-1)]):
        with pytest.raises(ValueError, match="17 counts"):
            add_ranks(KEY, counts)
