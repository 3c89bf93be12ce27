"""`twofold chat` from a script: every line is answered, answers alone on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.cli.launch_options import LaunchOptions, parse_context
from twofold.profiles.errors import InvalidOption

CommandLine = Callable[..., int]
GREEDY = ("--temp", "0", "--max-tokens", "6")


def test_piped_lines_are_answered_one_by_one(
    command_line: CommandLine, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "talk.json"
    script = f'hello\n\n/seed 3\n"""\na\nb\n"""\n//slash\n/save {file}\n'.encode()
    assert command_line("chat", *GREEDY, "--system", "be odd", stdin=script) == 0
    captured = capfd.readouterr()
    saved = json.loads(file.read_text())
    questions = [turn["content"] for turn in saved["turns"] if turn["role"] == "user"]
    answers = [turn["content"] for turn in saved["turns"] if turn["role"] == "assistant"]
    assert questions == ["hello", "a\nb", "/slash"]
    assert captured.out == "".join(answer.removesuffix("\n") + "\n" for answer in answers)
    assert saved["system"] == "be odd" and saved["params"]["seed"] == 3
    assert captured.err.count("tok/s") == 3 and ">>>" not in captured.err
    assert "2-bit base + 6-bit residual" in captured.err


def test_a_script_continues_a_saved_conversation(
    command_line: CommandLine, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "talk.json"
    assert command_line("chat", *GREEDY, stdin=f"one\n/save {file}\ntwo\n".encode()) == 0
    second = capfd.readouterr().out.splitlines()[-1]
    assert command_line("chat", *GREEDY, stdin=f"/load {file}\ntwo\n".encode()) == 0
    assert capfd.readouterr().out.splitlines()[-1] == second


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        (b"/nonsense\nhello\n", 2, "there is no command /nonsense"),
        (b"/load /does/not/exist\nhello\n", 1, "No such file"),
        (b"/temp hot\nhello\n", 2, "not a number"),
        (b"x" * 3000 + b"\nhello\n", 1, "does not fit the context"),
    ],
)
def test_an_error_ends_a_script(
    command_line: CommandLine, capfd: pytest.CaptureFixture[str], script: bytes, code: int, message: str
) -> None:
    assert command_line("chat", *GREEDY, stdin=script) == code
    captured = capfd.readouterr()
    assert message in captured.err and "tok/s" not in captured.err and "Traceback" not in captured.err


def test_no_input_is_no_error(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("chat", stdin=b"") == 0
    assert capfd.readouterr().out == ""


def test_bye_ends_a_script(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line("chat", *GREEDY, stdin=b"/bye\nhello\n") == 0
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("1", 1), ("4096", 4096), ("32K", 32768), ("25.6k", 25600), ("1M", 1 << 20), ("0.5K", 512), (" 8K ", 8192)],
)
def test_context_sizes(text: str, tokens: int) -> None:
    assert parse_context(text) == tokens


def test_no_context_is_left_to_the_planner() -> None:
    assert parse_context(None) is None and LaunchOptions().ctx is None


@pytest.mark.parametrize("option", ["ctx", "residual_bits", "kv", "kv_k", "kv_v", "threads"])
def test_a_plan_decides_everything(option: str) -> None:
    value = {"ctx": 1024, "residual_bits": 6, "threads": 1}.get(option, "f16")
    with pytest.raises(InvalidOption, match="already decides"):
        LaunchOptions(plan_path=Path("plan.json"), **{option: value})  # type: ignore[arg-type]


def test_an_empty_stop_string_is_refused(command_line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (("chat",), ("run", "tiny", "hello")):
        assert command_line(*command, "--stop", "") == 2
        shown = capfd.readouterr()
        assert "--stop needs a text" in shown.err and "hint: --stop" in shown.err and shown.out == ""
