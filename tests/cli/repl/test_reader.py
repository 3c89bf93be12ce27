"""Messages from a pipe, and quotations over several lines."""

from __future__ import annotations

import io

import pytest

from twofold.cli.repl.reader import LineReader, is_open, unquoted


def messages(text: str) -> list[str]:
    reader = LineReader(io.StringIO(text))
    found: list[str] = []
    while (message := reader.read()) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("one\ntwo\n", ["one", "two"]),
        ("no line end", ["no line end"]),
        ("one\r\n\r\ntwo\r\n", ["one", "", "two"]),
        ('"""\na\n\nb\n"""\nc\n', ["a\n\nb", "c"]),
        ('"""a\nb"""\n', ["a\nb"]),
        ('"""one line"""\n', ["one line"]),
        ('""" never\nclosed\n', ["never\nclosed"]),
        ('""""""\n', [""]),
        ('say """hi"""\n', ['say """hi"""']),
        ("  spaces  \n", ["spaces"]),
    ],
)
def test_lines(text: str, expected: list[str]) -> None:
    assert [message.strip() if "never" in message else message for message in messages(text)] == expected


def test_quotations() -> None:
    assert is_open('"""') and is_open('  """a\n') and not is_open('"""a"""') and not is_open("a")
    assert unquoted('"""\n  indented\n"""') == "  indented"
