"""`twofold run`: the answer alone on stdout, in a terminal's absence, with a real engine on a small random model."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from twofold.cli.errors import READER_LEFT

CommandLine = Callable[..., int]
GREEDY = ("--temp", "0", "--max-tokens", "12")


def test_the_answer_goes_to_stdout_the_rest_to_stderr(
    command_line: CommandLine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command_line("run", "tiny", "hello", *GREEDY) == 0
    first = capfd.readouterr()
    assert first.out.endswith("\n") and len(first.out) > 4
    assert "12 tokens" in first.err and "tok/s" in first.err and "\x1b" not in first.err
    assert command_line("run", "tiny", "hello", *GREEDY) == 0
    assert capfd.readouterr().out == first.out


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_from_stdin(
    command_line: CommandLine, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert command_line("run", "tiny", "one\ntwo", *GREEDY) == 0
    typed = capfd.readouterr().out
    assert command_line("run", "tiny", *arguments, *GREEDY, stdin=b"one\ntwo") == 0
    assert capfd.readouterr().out == typed


def test_json(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("run", "tiny", "hello", *GREEDY) == 0
    text = capfd.readouterr().out
    assert command_line("run", "tiny", "hello", *GREEDY, "--format", "json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["schema_version"] == 1
    assert found["text"].rstrip("\n") + "\n" == text.rstrip("\n") + "\n"
    assert (found["tokens"], found["checks"], found["finish"], found["thinking"]) == (12, 12, "length", "")
    assert found["decode_tok_s"]["source"] == "measured" and found["decode_tok_s"]["value"] > 0
    assert found["plan"]["residual_bits"] == 6


def test_raw_continues_the_text_itself(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("run", "tiny", "hello", *GREEDY, "--format", "json") == 0
    chat = json.loads(capfd.readouterr().out)
    assert command_line("run", "tiny", "hello", *GREEDY, "--format", "json", "--raw") == 0
    raw = json.loads(capfd.readouterr().out)
    assert raw["prompt_tokens"] == len("hello")
    assert chat["prompt_tokens"] > raw["prompt_tokens"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("",), b"", "the prompt is empty"),
        ((" \n",), b"", "the prompt is empty"),
        (("-",), b"", "the prompt is empty"),
        (("-",), b"\xff\xfeabc", "not UTF-8"),
        (("x", "--format", "xml"), b"", "--format"),
        (("x", "--raw", "--system", "y"), b"", "--raw has no system prompt"),
        (("x", "--temp", "-1"), b"", "--temp is not valid"),
        (("x", "--temp", "nan"), b"", "--temp is not valid"),
        (("x", "--top-p", "0"), b"", "--top-p is not valid"),
        (("x", "--seed", "-1"), b"", "--seed is not valid"),
        (("x", "--residual-bits", "9"), b"", "--residual-bits is out of range"),
        (("x", "--threads", "0"), b"", "--threads is out of range"),
        (("x", "--threads", "-1"), b"", "--threads is out of range"),
        (("x", "--threads", "9" * 30), b"", "--threads is out of range"),
        (("x", "--top-k", "-1"), b"", "--top-k is not valid"),
        (("x", "--min-p", "1"), b"", "--min-p is not valid"),
        (("x", "--repeat-penalty", "0"), b"", "--repeat-penalty is not valid"),
        (("x", "--repeat-penalty", "1e-38"), b"", "needed: 0.01 … 100"),
        (("x", "--kv", "q5"), b"", "--kv is not known"),
        (("x", "--kv-v", "q5"), b"", "--kv-v is not known"),
        (("x", "--kv", "q8_0", "--kv-k", "f16"), b"", "--kv already decides"),
        (("x", "--plan", "p.json", "--ctx", "1K"), b"", "--plan already decides --ctx"),
        *(((("x", "--ctx", bad)), b"", "--ctx is") for bad in ("0", "-1", "1e9", "32X", "", "1.5", "999999M", "٣")),
    ],
)
def test_bad_input_is_refused_before_anything_is_prepared(
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    stdin: bytes,
    message: str,
) -> None:
    assert command_line("run", "tiny", *arguments, stdin=stdin) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert message in captured.err and "Traceback" not in captured.err
    assert "hint: " in captured.err or not message.startswith("--")
    assert "tokens" not in captured.err or "needed" in captured.err


def test_no_prompt_at_a_terminal(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from twofold.cli.run import read_prompt
    from twofold.profiles.errors import InvalidOption

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(InvalidOption, match="there is no prompt"):
        read_prompt(None)


def test_a_prompt_that_does_not_fit_is_an_error(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("run", "tiny", "x" * 2000) == 1
    captured = capfd.readouterr()
    assert captured.out.strip() == ""
    assert "does not fit the context" in captured.err and "512" in captured.err and "hint:" in captured.err


@pytest.mark.slow
def test_an_interruption_keeps_what_was_said(start_command: Callable[..., Any]) -> None:
    process = start_command("run", "tiny", "go on", "--temp", "0")
    process.stdin.close()
    first = process.stdout.read(1)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    rest, errors = process.stdout.read(), process.stderr.read()
    assert process.wait(20) == 130
    assert first and rest
    assert b"stopped" in errors and b"Traceback" not in errors


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_defect(start_command: Callable[..., Any]) -> None:
    process = start_command("run", "tiny", "go on", "--temp", "0")
    process.stdin.close()
    process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(20) == READER_LEFT
    assert b"Traceback" not in errors and b"error" not in errors
