"""The README's example is what the command prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from twofold.cli.app import build_app
from twofold.cli.errors import run_app

README = Path(__file__).parents[2] / "README.md"


def _example() -> tuple[str, list[str]]:
    """The command of the section, and the lines that are said to follow."""
    section = README.read_text("utf-8").split("## Does it fit?")[1].split("\n## ")[0]
    blocks = section.split("```")
    return blocks[1].strip(), blocks[3].strip().splitlines()


def test_the_readme_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    command, lines = _example()
    words = shlex.split(command)
    assert words[:2] == ["twofold", "fit"]
    assert run_app(lambda: build_app()(words[1:])) == 0
    left = capsys.readouterr().out.splitlines()
    for line in lines:
        if line == "…":
            continue
        start = line.removesuffix(" …")
        while left and not left[0].startswith(start):
            left.pop(0)
        assert left, f"the command does not print (in this order): {line}"
        if line == start:
            assert left[0] == line
        left.pop(0)
