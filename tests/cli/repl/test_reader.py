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


class Interrupted(io.StringIO):
    """A terminal where Ctrl-C is pressed before the lines of these numbers are read."""

    def __init__(self, text: str, *presses: int) -> None:
        super().__init__(text)
        self._calls, self._presses = 0, presses

    def readline(self, size: int | None = -1, /) -> str:
        self._calls += 1
        if self._calls in self._presses:
            raise KeyboardInterrupt
        return super().readline(-1 if size is None else size)


def test_after_ctrl_c_the_next_line_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    reader = LineReader(Interrupted('one\n"""begun\ntwo\n', 1, 4), prompt=">>> ")
    with pytest.raises(KeyboardInterrupt):
        reader.read()
    assert reader.read() == "one"
    with pytest.raises(KeyboardInterrupt):
        reader.read()  # inside the quotation, which is dropped
    assert reader.read() == "two"
    assert reader.read() is None
    assert capsys.readouterr().err == ">>> " * 6


def test_the_end_of_input_inside_a_quotation_is_the_end() -> None:
    lines = io.StringIO('"""begun\n')
    reader = LineReader(lines)
    assert reader.read() == "begun"
    lines.seek(0)
    assert reader.read() is None
