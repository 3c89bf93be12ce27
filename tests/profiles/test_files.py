"""Whole or not there: what is on disk after success, failure and interruption."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from twofold.profiles.files import write_atomically


def test_writes_text_as_utf8_with_mode_and_creates_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "new.txt"
    write_atomically(path, "schön\n", mode=0o600)
    assert path.read_bytes() == "schön\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["new.txt"]


def test_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")

    def fail(_descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(failure)):
        write_atomically(path, b"new content")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as refused:
        write_atomically(tmp_path, b"x")
    assert refused.value.filename == str(tmp_path)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(real)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_without_replacing_an_existing_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    write_atomically(path, "first", replace=False)

    def no_links(*_names: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    for _ in range(2):
        with pytest.raises(FileExistsError):
            write_atomically(path, "second", replace=False)
        monkeypatch.setattr(os, "link", no_links)
    assert path.read_text() == "first"
    write_atomically(tmp_path / "y", "third", replace=False)
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]
