"""The page on the disk: cleaned of private things, rendered, written aside and renamed."""

from __future__ import annotations

import datetime
import shlex
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.cli.html.page import page_of
from twofold.cli.html.private import Cleaner, looks_like_path
from twofold.profiles.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twofold.planner.command import FitCommand
    from twofold.planner.report import FitReport

_PATH_OPTIONS = ("--html", "--profile")


def check_target(path: Path) -> None:
    """Refuse a place where nothing can be written, before anything is computed.

    Raises:
        InvalidOption: the folder is missing, or the file is one.
    """
    if path.is_dir():
        raise InvalidOption(
            "--html names a folder", found=str(path), hint=f"--html {shlex.quote(str(path / 'fit.html'))}"
        )
    if not path.parent.is_dir():
        folder = str(path.parent)
        raise InvalidOption("the folder of --html is not there", found=folder, hint=f"mkdir -p {shlex.quote(folder)}")


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
    """
    from twofold.cli.output import err
    from twofold.cli.version import version_line
    from twofold.profiles.files import write_atomically
    from twofold.profiles.identity import personal_words

    page = page_of(report, shareable(command).text, version_line(), datetime.date.today().isoformat())
    write_atomically(path, render(page, typed_paths(command), personal_words()))
    err().line(f"wrote {path}")
