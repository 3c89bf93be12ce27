"""Files that are either whole or not there: written aside, flushed to disk, then renamed over the old one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, content: bytes | str, mode: int = 0o644, *, replace: bool = True) -> None:
    """Write `content` (text as UTF-8) to `path` with permissions `mode`; missing parent folders are created.

    A device or pipe at `path` (`/dev/null`, `/dev/stdout`) is written to, never replaced.

    The data goes to a temporary file in the same folder first, so that an interruption, a crash or a full disk leaves
    the old file as it was and nothing beside it. A symbolic link at `path` stays a link: the file it points to is
    replaced. With `replace=False` a file that is already there stays, whoever made it in the meantime.

    Raises:
        FileExistsError: with `replace=False`, when `path` exists.
        OSError: when the disk is full, the folder cannot be written, or `path` is a folder.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    kind = _kind(path)
    if kind is not None and stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind is not None and not stat.S_ISREG(kind):
        _write_through(path, data)
        return
    with written_aside(target, mode, replace=replace) as file:
        file.write(data)


@contextlib.contextmanager
def written_aside(target: Path, mode: int = 0o644, *, replace: bool = True) -> Iterator[BinaryIO]:
    """A file, open for writing, that becomes `target` when the block ends well and is gone when it does not.

    For content that is produced piece by piece; `write_atomically` says what is kept in which case.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, mode)
        if replace:
            os.replace(aside, target)
        else:
            _move_new(aside, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)
        raise
    _flush_folder(target.parent)


def _kind(path: Path) -> int | None:
    """The mode of what `path` leads to, None where there is nothing; a loop of links is an error."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _write_through(path: Path, data: bytes) -> None:
    """Into a device or pipe as it is; its name is put on an error of writing, which has none."""
    try:
        with path.open("wb", buffering=0) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _move_new(aside: str, target: Path) -> None:
    """Give `aside` its name unless that is taken; a hard link is the one way to do both in one step."""
    try:
        os.link(aside, target)
    except FileExistsError:
        raise
    except OSError:
        # No hard links on this file system: the check and the rename are two steps.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        os.replace(aside, target)
    else:
        os.unlink(aside)


def _flush_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the platform lets a folder be flushed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, streamed, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
