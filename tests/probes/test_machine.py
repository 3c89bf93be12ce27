"""The whole machine as a profile, and its raw texts."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.probes import probe
from twofold.probes.cpu import read_cpu
from twofold.probes.environment import read_os
from twofold.probes.memory import read_memory
from twofold.probes.raw import raw_gpus, raw_texts, redact_path
from twofold.profiles.export import document_of, to_bytes
from twofold.profiles.importing import parse_profile
from twofold.profiles.redaction import scan

Machine = Callable[[str], Path]
TREES = sorted(path.stem for path in (Path(__file__).parent / "fixtures").glob("*.json"))


def test_this_machine_without_measurements() -> None:
    told: list[str] = []
    profile = probe(bandwidth=False, progress=told.append)
    assert not profile.complete
    assert profile.cpu.architecture == platform.machine()
    assert profile.ram.read_gb_s_one_thread.value is None
    assert told == []
    assert parse_profile(to_bytes(document_of(profile)), "test") == profile


@pytest.mark.parametrize("name", TREES)
def test_nothing_in_a_probed_value_identifies_anybody(machine: Machine, name: str) -> None:
    root = machine(name)
    for part in (read_cpu(root), read_memory(root), read_os(root)):
        document = part.model_dump(mode="json")
        assert scan(document) == []


@pytest.mark.parametrize("name", TREES)
def test_raw_texts_read_back_as_the_same_machine(machine: Machine, tmp_path: Path, name: str) -> None:
    root, copy = machine(name), tmp_path / "copy"
    for path, text in raw_texts(root).items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text)
    assert read_memory(copy) == read_memory(root)
    assert read_cpu(copy) == read_cpu(root)
    assert read_os(copy).wsl == read_os(root).wsl


def test_raw_texts_hold_no_names(machine: Machine) -> None:
    root = machine("cgroup2_nested")
    (root / "proc/self/cgroup").write_text("0::/user.slice/user-1000.slice/alices-laptop.service")
    (root / "proc/self/status").write_text("Name:\talices-shell\nCpus_allowed_list:\t0-3")
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/osrelease").write_text("6.8.0-alice-custom")
    mounts = root / "proc/self/mountinfo"
    mounts.write_text(mounts.read_text() + "\n36 35 98:0 / /home/alice rw - ext4 /dev/disk/by-uuid/1 rw")
    (root / "proc/cpuinfo").write_text("processor\t: 0\nSerial\t: 10000000abcdef01\nmodel name\t: X")
    folder = root / "sys/fs/cgroup/user.slice/user-1000.slice/alices-laptop.service"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text("max")
    text = json.dumps(raw_texts(root))
    assert "alice" not in text
    assert "abcdef01" not in text
    assert "memory.max" in text


def test_redacted_paths_keep_their_depth() -> None:
    assert redact_path("/user.slice/user-1000.slice/x.scope") == "/user.slice/group/group"
    assert redact_path("/../..") == "/../.."


def test_raw_gpus_is_json() -> None:
    assert json.loads(raw_gpus())
