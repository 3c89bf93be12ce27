"""The slash commands, on a real session."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest

from twofold.cli.repl.commands import COMMANDS, Leave, as_message, run_command
from twofold.planner.plan import Plan
from twofold.profiles.errors import CorruptFile, InvalidOption, TwofoldError


def test_help_names_every_command(tiny_session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(tiny_session, "/help")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(name in captured.err for name in COMMANDS)
    assert all(command.__doc__ for command in COMMANDS.values())


@pytest.mark.parametrize(
    ("text", "message"), [("hi", "hi"), ("//etc", "/etc"), ("///x", "//x"), ("/help", None), ("a/b", "a/b")]
)
def test_what_is_a_command(text: str, message: str | None) -> None:
    assert as_message(text) == message


@pytest.mark.parametrize(("typed", "meant"), [("/halp", "/help"), ("/sve x", "/save"), ("/exot", "/exit")])
def test_an_unknown_command_gets_a_suggestion(tiny_session: Any, typed: str, meant: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        run_command(tiny_session, typed)
    assert failure.value.hint == f"did you mean {meant}?"


def test_an_unknown_command_unlike_any(tiny_session: Any) -> None:
    with pytest.raises(InvalidOption) as failure:
        run_command(tiny_session, "/etc/passwd")
    assert failure.value.hint is not None and "//" in failure.value.hint


@pytest.mark.parametrize("command", ["/bye", "/exit", "/quit"])
def test_leaving(tiny_session: Any, command: str) -> None:
    with pytest.raises(Leave):
        run_command(tiny_session, command)


def test_seed_and_temperature(tiny_session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(tiny_session, "/seed 42")
    run_command(tiny_session, "/temp 0.5")
    assert (tiny_session.params.seed, tiny_session.params.temperature) == (42, 0.5)
    assert capsys.readouterr().err == "seed 42 (no effect at temperature 0: /temp 0.8 samples)\ntemperature 0.5\n"
    for bad in ("/seed x", "/seed -1", "/seed 1e3", "/temp x", "/temp nan", "/temp inf", "/temp -1"):
        with pytest.raises(InvalidOption):
            run_command(tiny_session, bad)
    assert (tiny_session.params.seed, tiny_session.params.temperature) == (42, 0.5)


def test_system_prompt(tiny_session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(tiny_session, "/system be  brief")
    assert tiny_session.history.system == "be  brief"
    run_command(tiny_session, "/system")
    run_command(tiny_session, "/system -")
    assert tiny_session.history.system is None
    assert capsys.readouterr().err.count("be  brief") == 2


def test_stats_before_and_after_an_answer(tiny_session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(tiny_session, "/stats")
    assert "no answer yet" in capsys.readouterr().err
    list(tiny_session.ask("hi"))
    run_command(tiny_session, "/stats")
    shown = capsys.readouterr().err
    assert "8 tokens" in shown and "tok/s" in shown and "1.00 tokens per check" in shown and "kv cache" in shown
    assert "of 100 MiB planned" in shown


def test_the_plan_can_be_replayed(tiny_session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(tiny_session, "/plan")
    shown = capsys.readouterr().err
    document, end = json.JSONDecoder().raw_decode(shown)
    assert document["residual_bits"] == 6
    rows = {line.split()[0]: line.split()[1:] for line in shown[end:].splitlines() if line.strip()}
    assert rows["kv_cache"][0] == rows["kv_cache"][1] and rows["kv_cache"][2] == "exact"
    assert rows["base"][2] == "exact" and "resident" in shown
    run_command(tiny_session, f"/plan {tmp_path}/a plan.json")
    path, model = tmp_path / "a plan.json", str(tiny_session.engine.checkpoint.path)
    assert Plan.from_json(path.read_text()) == tiny_session.engine.plan
    said = capsys.readouterr().err.splitlines()
    assert shlex.split(said[0].removeprefix("saved:")) == ["twofold", "chat", model, "--plan", str(path)]
    with pytest.raises(TwofoldError, match="exists"):
        run_command(tiny_session, f"/plan {path}")


def test_saving_and_loading(tiny_session: Any, tmp_path: Path) -> None:
    list(tiny_session.ask("hi"))
    turns = list(tiny_session.history.turns)
    file = tmp_path / "my talk.json"
    run_command(tiny_session, f"/save {file}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run_command(tiny_session, f"/save {file}")
    run_command(tiny_session, "/reset")
    assert tiny_session.history.turns == []
    run_command(tiny_session, f"/load {file}")
    assert tiny_session.history.turns == turns


def test_saving_overwrites_nothing_else(tiny_session: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(TwofoldError, match="not a saved conversation"):
        run_command(tiny_session, f"/save {tmp_path}/thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(CorruptFile):
        run_command(tiny_session, f"/load {tmp_path}/thesis.txt")
    with pytest.raises(OSError):
        run_command(tiny_session, f"/load {tmp_path}/missing.json")
    for command in ("/save", "/load"):
        with pytest.raises(InvalidOption):
            run_command(tiny_session, command)


@pytest.mark.parametrize("command", ["/save", "/plan"])
def test_a_folder_that_is_not_there_is_not_made(tiny_session: Any, tmp_path: Path, command: str) -> None:
    folder = tmp_path / "no such" / "folder"
    with pytest.raises(InvalidOption, match=f"the folder of {command} is not there") as failure:
        run_command(tiny_session, f"{command} {folder / 'x.json'}")
    assert failure.value.hint == f"mkdir -p '{folder}'"
    assert not folder.parent.exists()
