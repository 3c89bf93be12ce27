"""The README's example is what the command prints; `python tests/cli/test_fit_readme.py` writes its figures anew."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

from twofold.cli.app import build_app
from twofold.cli.errors import run_app

README = Path(__file__).parents[2] / "README.md"
CUT = " …"


def _example() -> tuple[str, list[str]]:
    """The command of the section, and the lines that are said to follow."""
    section = README.read_text("utf-8").split("## Does it fit?")[1].split("\n## ")[0]
    blocks = section.split("```")
    return blocks[1].strip(), blocks[3].strip().splitlines()


def _printed(command: str) -> list[str]:
    words = shlex.split(command)
    assert words[:2] == ["twofold", "fit"]
    shown = io.BytesIO()
    stream = io.TextIOWrapper(shown, encoding="utf-8")
    with contextlib.redirect_stdout(stream):
        assert run_app(lambda: build_app()(words[1:])) == 0
        stream.flush()
    return shown.getvalue().decode("utf-8").splitlines()


def test_the_readme_is_true() -> None:
    command, lines = _example()
    left = _printed(command)
    for line in lines:
        if line == CUT.strip():
            continue
        start = line.removesuffix(CUT)
        while left and not left[0].startswith(start):
            left.pop(0)
        assert left, f"not printed, in this order: {line!r}; to renew the README: python {Path(__file__).name}"
        if line == start:
            assert left[0] == line
        left.pop(0)


def renewed(lines: list[str], left: list[str]) -> list[str]:
    """Each line with the figures of the printed line that begins with the same words."""
    found = []
    for line in lines:
        words = re.match(r"(?:\d+[: ] *)?[^0-9]*", line)
        if line == CUT.strip() or words is None:
            found.append(line)
            continue
        start = words[0].removesuffix(CUT)
        while not left[0].startswith(start):
            left.pop(0)
        new = left.pop(0)
        if line.endswith(CUT):
            tail = " ".join(line.removesuffix(CUT).split()[-2:])
            new = new[: new.index(tail) + len(tail)] + CUT
        found.append(new)
    return found


if __name__ == "__main__":
    command, lines = _example()
    text = README.read_text("utf-8")
    README.write_text(text.replace("\n".join(lines), "\n".join(renewed(lines, _printed(command)))), "utf-8")
