"""The page on the disk: cleaned of private things, rendered, written aside and renamed."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import stat
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.cli.html.page import page_of
from twofold.cli.html.private import Cleaner, looks_like_path
from twofold.profiles.errors import InvalidOption
from twofold.profiles.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twofold.planner.command import FitCommand
    from twofold.planner.report import FitReport

_PATH_OPTIONS = ("--html", "--profile")

MARK = b'<meta name="generator" content="twofold">'
"""What tells a report from other people's files, near its start."""
_STREAM = re.compile(r"/dev/(fd/|std(in|out|err)$)|/proc/(self|\d+)/fd/")
_ELSEWHERE = "--html fit.html, or another name that is free"


def check_target(text: str) -> Path:
    """The file to write, or why it cannot be: before anything is computed. An older report may be replaced, also where
    a link leads to it; nothing else is.

    Raises:
        InvalidOption: no file's name, a missing folder, a folder, a device or pipe, or a file that is no report.
    """
    if text in ("", "-"):
        raise InvalidOption("--html needs the name of a file", found=repr(text), hint="--html fit.html")
    path = Path(text)
    try:
        found = path.stat()
    except FileNotFoundError:
        found = None
    except (OSError, ValueError) as error:
        found = None
        if path.parent.is_dir():
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise InvalidOption(
                f"--html cannot be used: {reason}", found=one_line(text, 120), hint=_ELSEWHERE
            ) from None
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise InvalidOption(
            "--html names a folder", found=str(path), hint=f"--html {shlex.quote(str(path / 'fit.html'))}"
        )
    if found is not None and (not stat.S_ISREG(found.st_mode) or _STREAM.match(text)):
        raise InvalidOption("--html names no file", found=f"a device or pipe: {text}", hint=_ELSEWHERE)
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        where = one_line(str(folder), 120)
        raise InvalidOption("the folder of --html is not there", found=where, hint=f"mkdir -p {shlex.quote(where)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidOption("the folder of --html cannot be written", found=str(folder), hint="--html ~/fit.html")
    if found is None:
        return path
    if found.st_size and not _is_report(path):
        raise InvalidOption(
            "--html would overwrite a file that is no report of twofold's", found=str(path), hint=_ELSEWHERE
        )
    return path


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK in file.read(1024)
    except OSError:
        return False


def typed_paths(command: FitCommand) -> list[str]:
    """What of a command names places on this machine."""
    named = [value for name, value in command.options if name in _PATH_OPTIONS and value and looks_like_path(value)]
    named = [value for value in named if Path(value).name != value]
    if command.model is not None and looks_like_path(command.model):
        named.append(command.model)
    return named


def shareable(command: FitCommand) -> FitCommand:
    """The command without the storage that it shares trials through."""
    return replace(command, options=tuple(pair for pair in command.options if pair[0] != "--storage"))


def render(page: dict[str, Any], paths: Sequence[str], words: Iterable[str]) -> str:
    """The page as HTML; every string of it is cleaned, then escaped by the template."""
    from jinja2 import Environment, StrictUndefined

    cleaner = Cleaner(paths, words)
    clean = cleaner.clean(page)
    here = files("twofold.cli.html")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(here.joinpath("report.html.j2").read_text("utf-8"))
    return template.render(page=clean, css=here.joinpath("report.css").read_text("utf-8"), has_hidden=cleaner.hidden)


def write_report(path: Path, report: FitReport, command: FitCommand) -> None:
    """The answer as one self-contained file at `path`.

    Raises:
        OSError: when it cannot be written; an older file is then still whole.
        InvalidOption: another file has come there since it was checked.
    """
    from twofold.cli.output import err
    from twofold.cli.version import version_line
    from twofold.profiles.files import write_atomically
    from twofold.profiles.identity import personal_words

    page = page_of(report, shareable(command).text, version_line(), datetime.date.today().isoformat())
    document = render(page, typed_paths(command), personal_words())
    write_atomically(check_target(str(path)), document)
    err().line(f"wrote {path}")
