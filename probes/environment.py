"""What kind of place this is: operating system, WSL, container. Words that identify nobody."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from twofold.probes.texts import SYSTEM_ROOT, read_text
from twofold.profiles.hardware import Os

_CONTAINER_WORDS = ("docker", "kubepods", "containerd", "lxc", "libpod", "garden", "buildkit")


def _family() -> Literal["linux", "windows", "macos", "other"]:
    families: dict[str, Literal["linux", "windows", "macos"]] = {
        "linux": "linux",
        "win32": "windows",
        "darwin": "macos",
    }
    return families.get(sys.platform, "other")


def is_wsl(root: Path = SYSTEM_ROOT) -> bool:
    """Whether the kernel is Microsoft's."""
    texts = (read_text(root, "proc/sys/kernel/osrelease"), read_text(root, "proc/version"))
    return any("microsoft" in (text or "").lower() for text in texts)


def is_container(root: Path = SYSTEM_ROOT, environment: Mapping[str, str] | None = None) -> bool:
    """Whether this looks like a container: marker files, the runtimes' variables, or control group names."""
    if environment is None:
        environment = os.environ if root == SYSTEM_ROOT else {}
    if any((root / marker).exists() for marker in (".dockerenv", "run/.containerenv")):
        return True
    # WSL writes itself into systemd's marker; it is a virtual machine.
    if (read_text(root, "run/systemd/container") or "wsl") != "wsl":
        return True
    if environment.get("container") or environment.get("KUBERNETES_SERVICE_HOST"):
        return True
    groups = (read_text(root, "proc/self/cgroup") or "").lower()
    return any(word in groups for word in _CONTAINER_WORDS)


def read_os(root: Path = SYSTEM_ROOT) -> Os:
    """The platform. A recorded tree is a Linux machine's."""
    family = _family() if root == SYSTEM_ROOT else "linux"
    return Os(family=family, wsl=is_wsl(root), container=is_container(root))
