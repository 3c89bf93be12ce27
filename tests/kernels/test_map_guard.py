"""A guarded map tells when its file was cut, in its last page too; tests/engine/test_faults.py cuts whole pages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twofold.engine.checkpoint.mapped import map_file
from twofold.kernels.cpu import missing_reason

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="needs the native module")
DATA, ZEROS = 5000, 300  # the data ends in the second page


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(bytes(1 + i % 255 for i in range(DATA)) + bytes(ZEROS))
    return path


@pytest.mark.parametrize("size", [DATA - 1, 4097, 4096, 100, 0])
def test_a_cut_into_the_data_is_seen_though_nothing_was_read(path: Path, size: int) -> None:
    mapped = map_file(path)
    assert mapped.guard.intact()
    os.truncate(path, size)
    assert not mapped.guard.intact()


def test_a_cut_is_seen_after_the_file_has_its_size_again(path: Path) -> None:
    mapped = map_file(path)
    os.truncate(path, DATA - 1)
    os.truncate(path, DATA + ZEROS)
    assert not mapped.guard.intact()


@pytest.mark.parametrize("size", [DATA, DATA + 1])
def test_zeros_that_are_cut_read_as_before(path: Path, size: int) -> None:
    mapped = map_file(path)
    os.truncate(path, size)
    assert mapped.guard.intact() and mapped[DATA:] == bytes(ZEROS)


def test_a_file_of_zeros_is_intact(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(5000))
    assert map_file(path).guard.intact()


def test_a_file_that_is_written_over_is_changed_though_intact(path: Path) -> None:
    mapped = map_file(path)
    assert mapped.guard.unchanged()
    with path.open("r+b") as file:
        file.write(bytes([7] * 100))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))  # a clock of the file system may be coarser than this test
    assert mapped.guard.intact() and not mapped.guard.unchanged()


def test_maps_ask_for_huge_pages(path: Path) -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no transparent huge pages")
    mapped = map_file(path)
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.endswith(str(path)))
    flags = next(line for line in lines[start:] if line.startswith("VmFlags:"))
    assert "hg" in flags.split() and len(mapped) == DATA + ZEROS


@pytest.mark.parametrize("size", [(3 << 20) + 5, 2 << 20, 0])
def test_a_cut_through_huge_pages_is_seen(tmp_path: Path, size: int) -> None:
    path = tmp_path / "weights"
    data = bytes(range(1, 256)) * ((8 << 20) // 255)
    path.write_bytes(data)
    mapped = map_file(path)
    assert mapped[:] == data
    os.truncate(path, size)
    assert mapped[:size] == data[:size]
    assert mapped[-4096:] == bytes(4096)  # a page that is gone reads as zeros
    assert not mapped.guard.intact()
