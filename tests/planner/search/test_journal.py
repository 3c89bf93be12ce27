"""The journal file: carried on, shared by processes, and honest about what is no journal."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from twofold.planner.search.journal import FileLock, journal
from twofold.planner.search.space import Point, Space
from twofold.planner.search.study import Outcome, search
from twofold.profiles.errors import Busy, CorruptFile, InvalidOption

Objective = Callable[[Point], Outcome]
HOLD = """
import sys, time
from pathlib import Path
from twofold.planner.search.journal import FileLock
FileLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_journal_is_carried_on(tmp_path: Path, space: Space, objective: Objective, first: Point) -> None:
    path = tmp_path / "deep" / "study.journal"
    one = search(space, objective, first, n_trials=20, storage=journal(path))
    two = search(space, objective, first, n_trials=20, storage=journal(path))
    study = optuna.load_study(study_name="plan", storage=journal(path))
    assert len(study.trials) == one.n_trials + two.n_trials
    assert float(two.outcome.seconds or 9) <= float(one.outcome.seconds or 0)


def test_two_studies_of_one_file_do_not_mix(tmp_path: Path, space: Space, objective: Objective, first: Point) -> None:
    path = tmp_path / "study.journal"
    search(space, objective, first, n_trials=12, storage=journal(path), study_name="one")
    other = search(space, objective, first, n_trials=3, storage=journal(path), study_name="two")
    assert other.n_others == 0


@pytest.mark.parametrize(
    "content",
    [b"not a journal\n" * 3, b'{"op_code": 0}\nnonsense\n{"op_code": 0}\n', b"[1, 2]\n", b'{"a": 1}\n', b"\x00" * 64],
)
def test_a_file_that_is_no_journal_is_refused_and_stays(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match="study file") as refused:
        journal(path)
    assert path.read_bytes() == content
    assert refused.value.hint is not None and "mv " in refused.value.hint


def test_operations_that_optuna_does_not_know_are_refused(
    tmp_path: Path, space: Space, objective: Objective, first: Point
) -> None:
    path = tmp_path / "study.journal"
    path.write_text('{"op_code": 99, "worker_id": "x"}\n{"op_code": 4, "study_id": 7}\n')
    with pytest.raises(CorruptFile):
        search(space, objective, first, n_trials=1, storage=journal(path))


def test_a_line_that_a_crash_left_unfinished_is_cut_off(
    tmp_path: Path, space: Space, objective: Objective, first: Point
) -> None:
    path = tmp_path / "study.journal"
    search(space, objective, first, n_trials=5, storage=journal(path))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 4, "study_')
    search(space, objective, first, n_trials=2, storage=journal(path))
    assert path.read_bytes().startswith(whole)
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_lock_that_another_process_holds_is_waited_for_and_then_named(
    tmp_path: Path, space: Space, objective: Objective, first: Point
) -> None:
    path = tmp_path / "study.journal"
    storage = journal(path, wait_seconds=0.2)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "study.journal.lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(Busy, match="locked") as refused:
            journal(path, wait_seconds=0.2)
        assert refused.value.hint is not None
        with pytest.raises(Busy):
            search(space, objective, first, n_trials=1, storage=storage)
    finally:
        holder.kill()
        holder.wait()
    # What a killed process held is free at once.
    search(space, objective, first, n_trials=1, storage=journal(path, wait_seconds=0.2))


def test_a_lock_is_of_one_holder(tmp_path: Path) -> None:
    one, two = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock", wait_seconds=0.05)
    with one, pytest.raises(Busy):
        two.acquire()
    with two:
        pass


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises((CorruptFile, IsADirectoryError)):
        journal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(PermissionError) as refused:
        journal(tmp_path / "study.journal")
    assert str(tmp_path) in str(refused.value.filename)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_leaves_the_journal_whole(tmp_path: Path, space: Space, objective: Objective, first: Point) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import conftest
from twofold.planner.search.journal import journal
from twofold.planner.search.space import Point
from twofold.planner.search.study import search
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
storage = journal(Path(sys.argv[1]))
first = Point(6, "f16", 0, 1, 64, 4)
search(conftest.SPACE, conftest.seconds, first, n_trials=3, storage=storage)
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, size + 300))
try:
    search(conftest.SPACE, conftest.seconds, first, n_trials=20, storage=storage, seed=1)
except OSError as error:
    print(error.filename)
"""
    path = tmp_path / "study.journal"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(path), done.stderr
    assert all(json.loads(line) for line in path.read_text().splitlines())
    assert search(space, objective, first, n_trials=2, storage=journal(path)).n_trials == 2


def test_a_study_of_other_choices_under_the_name_is_refused(
    tmp_path: Path, space: Space, objective: Objective, first: Point
) -> None:
    from dataclasses import replace

    path = tmp_path / "study.journal"
    search(space, objective, first, n_trials=3, storage=journal(path))
    wider = replace(space, threads=(1, 2, 4, 8))
    with pytest.raises(InvalidOption, match="another study") as refused:
        search(wider, objective, first, n_trials=3, storage=journal(path))
    assert "8" in str(refused.value.needed) and refused.value.hint is not None
    optuna.create_study(storage=journal(path), study_name="mine", direction="maximize").optimize(lambda _: 1, 1)
    with pytest.raises(InvalidOption, match="another study"):
        search(space, objective, first, n_trials=3, storage=journal(path), study_name="mine")


def test_a_journal_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    journal(path)
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}
