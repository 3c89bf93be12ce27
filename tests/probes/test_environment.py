"""WSL, containers, and what they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.probes.environment import is_container, is_wsl, read_os

Machine = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "wsl", "container"),
    [
        ("wsl", True, False),
        ("hybrid_desktop", False, False),
        ("dual_socket", False, False),
        ("podman", False, True),
        ("cgroup1_docker", False, True),
        ("cgroup2_nested", False, True),
        ("cpuset_2_of_16", False, True),
        ("epyc_vm", False, True),
    ],
)
def test_recorded_places(machine: Machine, name: str, wsl: bool, container: bool) -> None:
    found = read_os(machine(name))
    assert (found.family, found.wsl, found.container) == ("linux", wsl, container)


def test_kernel_version_text_alone_tells_wsl(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text("Linux version 4.4.0-19041-Microsoft")
    assert is_wsl(tmp_path)


@pytest.mark.parametrize("environment", [{"container": "podman"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_runtimes_variables(tmp_path: Path, environment: dict[str, str]) -> None:
    assert is_container(tmp_path, environment)
    assert not is_container(tmp_path, {})


def test_systemd_nspawn(tmp_path: Path) -> None:
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/container").write_text("systemd-nspawn\n")
    assert is_container(tmp_path, {})
