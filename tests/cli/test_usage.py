"""Mistakes that the command line's parser finds: one line, a hint with a command that exists, exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from twofold import cli
from twofold.cli.app import build_app
from twofold.cli.errors import run_app


def _commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    command = command or typer.main.get_command(build_app())
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*path, name))


PATHS = sorted(_commands())


def _told(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["twofold", *arguments])
    assert cli.main() == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_an_unknown_option_of_every_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(PATHS) > 15 and ("models", "rm") in PATHS and () in PATHS
    for path in PATHS:
        told = _told((*path, "--no-such-thing"), monkeypatch, capfd)
        assert told[0].startswith("error: no such option: --no-such-thing"), path
        assert told[1:] == [f"hint: {' '.join(('twofold', *path, '--help'))}"], path


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (("nosuch",), "no such command 'nosuch'", "twofold --help"),
        (("models", "nosuch"), "no such command 'nosuch'", "twofold models --help"),
        (("run",), "missing argument", "twofold run --help"),
        (("fit", "--ctx"), "'--ctx' requires an argument", "twofold fit --help"),
        (("chat", "--threads", "x"), "invalid value for '--threads': 'x' is no whole number", "twofold chat --help"),
        (("chat", "--temp", "x"), "invalid value for '--temp': 'x' is no number", "twofold chat --help"),
        (
            ("chat", "--max-tokens", "0"),
            "invalid value for '--max-tokens': '0' is not at least 1",
            "twofold chat --help",
        ),
        (("eval", "m", "--depths", "99"), "'99' is not at most 16", "twofold eval --help"),
        (("eval", "m", "--text-tokens", "1.5"), "'1.5' is no whole number", "twofold eval --help"),
        (("tune", "m", "--budget", "nan"), "'nan' is not at most 1,000,000", "twofold tune --help"),
        (("fit", "m", "--format", "xml"), "'--format': 'xml' is not one of 'human', 'json'", "twofold fit --help"),
        (("fit", "m", "--explian"), "no such option: --explian (Possible options: --explain)", "twofold fit --help"),
        (("fit", "m", "--json"), "no such option: --json", "--format json"),
        (("run", "m", "hi", "--json"), "no such option: --json", "--format json"),
        (("bench", "m", "--full=3"), "'--full' does not take a value", "twofold bench --help"),
        (("cards", "a", "b"), "unexpected extra argument", "twofold cards --help"),
        (("chat", "--stp", "x"), "--stop", "twofold chat --help"),
    ],
)
def test_other_mistakes(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    what: str,
    hint: str,
) -> None:
    told = _told(arguments, monkeypatch, capfd)
    assert what in told[0] and told[0].startswith("error: ") and not told[0].endswith(".")
    assert told[-1] == f"hint: {hint}" and len(told) == 2
    assert not any(words in told[0] for words in ("Input should", "Value error", "--slots", "pydantic"))


@pytest.mark.parametrize("arguments", [(), ("models",), ("profile",)])
def test_a_group_without_a_command_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", ["twofold", *arguments])
    assert cli.main() == 2
    captured = capfd.readouterr()
    assert "Commands:" in captured.out + captured.err and "error:" not in captured.err


def test_an_option_that_takes_a_value_says_which_kind(capfd: pytest.CaptureFixture[str]) -> None:
    """`<str>` is how a number that is read with a suffix or checked later would be shown."""
    for path in PATHS:
        assert run_app(lambda path=path: build_app()([*path, "--help"])) == 0  # type: ignore[misc]
        options = [line for line in capfd.readouterr().out.splitlines() if line.startswith("  -")]
        assert options and not [line for line in options if "<str>" in line], path
