"""What `twofold doctor` looks at. A check returns what it found and, where something is amiss, a remedy.

Checks read, they change nothing, use no network, and import nothing heavy (torch is looked up, not loaded). Names of
credentials in the environment are reported, values never.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from twofold.kernels.cpu import HOW_TO_BUILD
from twofold.profiles.units import GIB

Status = Literal["ok", "warn", "fail"]

_LITTLE_DISK_BYTES = 5 * GIB
_LITTLE_RAM_MIB = 2048
_HUB_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT")
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. A remedy is a command or an action, given unless the status is ok."""

    name: str
    status: Status
    found: str
    remedy: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"name": self.name, "status": self.status, "found": self.found, "remedy": self.remedy}


def check_python() -> Check:
    """The interpreter; the package itself refuses older ones at installation."""
    found = f"Python {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} on {sys.platform}"
    return Check("python", "ok", found)


def check_native() -> Check:
    """The compiled module. Planning works without it; the engine needs it, where it is supported at all (Linux)."""
    from twofold.kernels.cpu import NativeMissing, native

    try:
        native()
    except NativeMissing as error:
        status: Status = "fail" if sys.platform.startswith("linux") else "warn"
        return Check("native module", status, f"missing: {error}; fit, probe and profile work without it", HOW_TO_BUILD)
    from twofold.cli.version import commit

    return Check("native module", "ok", f"present, built from commit {commit()}")


def check_isa() -> Check:
    """The tier in use against the best one that this machine has, and TWOFOLD_CPU_ISA."""
    from twofold.kernels.cpu import NativeMissing, native

    wanted = os.environ.get("TWOFOLD_CPU_ISA")
    try:
        module = native()
        tiers = module.cpu_features()["tiers"]
        tier = module.active_tier()
    except NativeMissing:
        return Check("instruction set", "warn", "no native module, so no native kernels", HOW_TO_BUILD)
    except ValueError as error:
        return Check("instruction set", "fail", str(error), "unset TWOFOLD_CPU_ISA")
    setting = f", set by TWOFOLD_CPU_ISA={wanted}" if wanted else ""
    found = f"{tier}{setting}; this machine has {' '.join(tiers)}"
    if tier != tiers[-1]:
        return Check("instruction set", "warn", found, "unset TWOFOLD_CPU_ISA")
    if tier == "generic":
        return Check("instruction set", "warn", found, "expect slow kernels: faster ones need AVX2")
    return Check("instruction set", "ok", found)


def check_torch() -> Check:
    """torch by its metadata: importing it takes about a second."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        found = version("torch")
    except PackageNotFoundError:
        found = ""
    if not found or find_spec("torch") is None:
        return Check("torch", "warn", "missing: quantising, evaluating and the GPU need it", "pip install torch")
    return Check("torch", "ok", f"{found} (not loaded)")


def _present(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if os.environ.get(name) or os.environ.get(name.lower())]


def _has_saved_token() -> bool:
    from twofold.profiles.sources.inventory import hub_home_dir

    path = Path(os.environ.get("HF_TOKEN_PATH") or hub_home_dir() / "token").expanduser()
    try:
        return path.is_file()
    except OSError:
        return False


def check_hub() -> Check:
    """Which Hugging Face and proxy variables are set (names only), and whether downloads are switched off."""
    names = _present(_HUB_VARIABLES + _PROXY_VARIABLES)
    token = "a saved token" if _has_saved_token() else None
    found = ", ".join(part for part in (*names, token) if part) or "no token, no variables"
    offline = [name for name in _present(_OFFLINE_VARIABLES) if os.environ.get(name, "").lower() not in ("0", "false")]
    if offline:
        return Check(
            "model hub", "warn", f"offline by {', '.join(offline)}; {found}", f"unset {offline[0]} to download"
        )
    return Check("model hub", "ok", found)


def _existing(path: Path) -> Path:
    return next((place for place in (path, *path.parents) if place.exists()), Path("/"))


def check_folder(name: str, folder: Path, variable: str = "TWOFOLD_HOME") -> Check:
    """Whether `folder` (or the first existing one above it) can be written, and what is free there."""
    place = _existing(folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return Check(name, "fail", f"{folder}: cannot be written", f"make it writable, or set {variable} to a folder")
    free = shutil.disk_usage(place).free
    found = f"{folder}: {free / GIB:.1f} GiB free"
    if free < _LITTLE_DISK_BYTES:
        return Check(name, "warn", found, f"free some space, or set {variable} to a larger disk; twofold models prune")
    return Check(name, "ok", found)


def check_ram() -> Check:
    """Memory that this process may use."""
    from twofold.probes.memory import read_memory

    ram = read_memory()
    if not ram.available_mib.is_known:
        return Check("memory", "warn", f"unknown: {ram.available_mib.by}", "twofold probe")
    limit = f", limited to {ram.limit_mib.value:,} MiB by a control group" if ram.limit_mib.is_number else ""
    found = f"{ram.available_mib.value:,} MiB available of {ram.total_mib.value:,} MiB{limit}"
    if ram.available_mib.number < _LITTLE_RAM_MIB:
        return Check("memory", "warn", found, "close other programs, or raise the container's limit (--memory)")
    return Check("memory", "ok", found)


def check_cpu() -> Check:
    """CPUs that this process may use, and a quota that stops threads in the middle of a pass."""
    from twofold.probes.cpu import read_cpu

    cpu = read_cpu(ask_native=False)
    if not cpu.usable_cpus.is_known:
        return Check("processor", "warn", f"unknown: {cpu.usable_cpus.by}", "twofold probe")
    found = f"{cpu.usable_cpus.value} of {cpu.logical_cores.value} logical CPUs usable"
    if cpu.quota_cpus.is_number and cpu.quota_cpus.number < cpu.usable_cpus.number:
        found += f", but a quota of {cpu.quota_cpus.number:g} CPUs' time"
        return Check("processor", "warn", found, "raise the quota (docker run --cpus), or expect fewer threads")
    return Check("processor", "ok", found)


def check_gpu() -> Check:
    """NVIDIA cards and their driver. None is a normal machine."""
    from twofold.probes.nvidia import read_gpus

    reading = read_gpus()
    if reading.failed:
        return Check("graphics card", "warn", reading.note.by, "reinstall the NVIDIA driver, or reboot: nvidia-smi")
    if not reading.gpus:
        return Check("graphics card", "ok", reading.note.by)
    cards = [f"{gpu.name} (driver {gpu.driver.value or 'unknown'})" for gpu in reading.gpus]
    return Check("graphics card", "ok", ", ".join(cards))


def check_platform() -> Check:
    """Where this runs."""
    from twofold.probes.environment import read_os

    system = read_os()
    found = "WSL" if system.wsl else system.family
    return Check("platform", "ok", found + (", in a container" if system.container else ""))


def _folder_checks() -> list[Check]:
    from twofold.profiles import settings
    from twofold.profiles.sources.inventory import hub_cache_dir

    places = {
        "cache folder": settings.cache_dir(),
        "data folder": settings.data_dir(),
        "state folder": settings.state_dir(),
        "settings folder": settings.config_file().parent,
    }
    checks = [check_folder(name, place) for name, place in places.items()]
    return [*checks, check_folder("hub cache", hub_cache_dir(), "HF_HOME")]


def check_settings() -> Check:
    """Whether every setting can be used, and whether a TWOFOLD_ variable is set that nothing reads."""
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.settings import describe_settings, variables

    try:
        listed = describe_settings()
    except TwofoldError as error:
        found = error.what if error.found is None else f"{error.what}: found {error.found}, needed {error.needed}"
        return Check("settings", "fail", found, error.hint or "correct or remove it")
    strays = sorted(name for name in os.environ if name.startswith("TWOFOLD_") and name not in variables())
    if strays:
        return Check("settings", "warn", f"nothing reads {', '.join(strays)}", f"unset {' '.join(strays)}")
    changed = sum(origin not in ("default", "not set") for _, _, origin in listed)
    return Check("settings", "ok", f"{changed} set, the others have their defaults")


def list_settings() -> list[tuple[str, str, str]]:
    """(name, value, origin) of every setting; empty where one of them is invalid (`check_settings` says which)."""
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.settings import describe_settings

    try:
        return [(name, "" if value is None else str(value), origin) for name, value, origin in describe_settings()]
    except TwofoldError:
        return []


CHECKS: tuple[Callable[[], Check], ...] = (
    check_platform,
    check_python,
    check_native,
    check_isa,
    check_torch,
    check_ram,
    check_cpu,
    check_gpu,
    check_hub,
    check_settings,
)


def run_checks() -> list[Check]:
    """All checks, in the order of their table."""
    from twofold.cli.doctor_levels import check_checkpoints
    from twofold.cli.doctor_sessions import check_rereads, check_sessions, check_timings
    from twofold.cli.doctor_threads import check_threads

    observed = [check_checkpoints(), check_sessions(), check_rereads(), check_timings()]
    return [*(check() for check in CHECKS), check_threads(), *observed, *_folder_checks()]
