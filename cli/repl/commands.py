"""The slash commands of the session. Each is a function of the session and the rest of the line."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from twofold.cli.output import err
from twofold.profiles.errors import InvalidOption, TwofoldError

if TYPE_CHECKING:
    from twofold.engine.session import Session


Number = TypeVar("Number", int, float)


class Leave(Exception):
    """The conversation ends."""


_HANGING = " " * 10
"""Where the text of a command's help begins, behind its indentation."""


def _tell(text: str, indent: str = "  ") -> None:
    """Sentences, broken at words; `_say` is for what is pasted: JSON, commands."""
    err().prose(text, indent=indent)


def _say(text: str) -> None:
    err().line(text)


def _help(session: Session, argument: str) -> None:
    """show these commands"""
    for name, command in COMMANDS.items():
        _tell(f"  {name:<9}{command.__doc__}", _HANGING)
    _tell('  """       begin and end a message of several lines (Alt-Enter makes a new line, too)', _HANGING)
    _tell("  //        begin a message with a slash", _HANGING)
    _tell("  Ctrl-C    stop the answer; twice at an empty prompt, or Ctrl-D: leave", _HANGING)


def _reset(session: Session, argument: str) -> None:
    """forget the conversation, keep the system prompt"""
    session.reset()
    _say("a new conversation")


def _system(session: Session, argument: str) -> None:
    """show the system prompt; with a text, set it; with -, remove it"""
    if argument:
        session.system(None if argument == "-" else argument)
    current = session.history.system
    _tell(f"system prompt: {current}" if current else "no system prompt of yours (the template may have its own)")


def _stats(session: Session, argument: str) -> None:
    """figures of the last answer and of the memory, measured"""
    from twofold.cli.repl.status import stats_lines

    for line in stats_lines(session):
        _tell(line)


def _plan(session: Session, argument: str) -> None:
    """the plan that runs, as JSON, and what was reserved; with a FILE, save it (twofold chat --plan FILE)"""
    text = session.engine.plan.to_json()
    if not argument:
        from twofold.cli.repl.memory_view import show_allocations

        _say(text.rstrip())
        show_allocations(session.engine)
        return
    from twofold.profiles.files import write_atomically

    path = _new_file(argument)
    write_atomically(path, text)
    _say("saved: " + shlex.join(["twofold", "chat", str(session.engine.checkpoint.path), "--plan", str(path)]))


def _seed(session: Session, argument: str) -> None:
    """show the seed of the sampling; with a number, set it"""
    if argument:
        session.params = replace(session.params, seed=_number(argument, int, "/seed 7"))
    idle = " (no effect at temperature 0: /temp 0.8 samples)" if session.params.temperature == 0 else ""
    _say(f"seed {session.params.seed}{idle}")


def _temp(session: Session, argument: str) -> None:
    """show the temperature; with a number, set it (0: always the likeliest token)"""
    if argument:
        session.params = replace(session.params, temperature=_number(argument, float, "/temp 0.7"))
    _say(f"temperature {session.params.temperature:g}")


def _save(session: Session, argument: str) -> None:
    """save the conversation to a FILE that only you can read"""
    from twofold.engine.session.saved import read_session

    if not argument:
        raise InvalidOption("/save needs a file", hint="/save talk.json")
    path = Path(argument).expanduser()
    _check_folder(path, "/save")
    if path.exists():
        try:
            read_session(path)
        except TwofoldError as error:
            raise TwofoldError(f"{path} exists and is not a saved conversation", hint="choose another name") from error
    session.save(path)
    _say(f"saved to {path}")


def _load(session: Session, argument: str) -> None:
    """continue a conversation from a FILE"""
    if not argument:
        raise InvalidOption("/load needs a file", hint="/load talk.json")
    notice = session.load(Path(argument).expanduser())
    if notice is not None:
        err().warning(notice)
    _say(f"loaded {len(session.history.turns) // 2} questions and answers")


def _bye(session: Session, argument: str) -> None:
    """leave"""
    raise Leave


COMMANDS: dict[str, Callable[[Session, str], None]] = {
    "/help": _help,
    "/reset": _reset,
    "/system": _system,
    "/stats": _stats,
    "/plan": _plan,
    "/seed": _seed,
    "/temp": _temp,
    "/save": _save,
    "/load": _load,
    "/bye": _bye,
}
_ALIASES = {"/?": "/help", "/exit": "/bye", "/quit": "/bye", "/clear": "/reset"}


def as_message(text: str) -> str | None:
    """The message that `text` is, or None when it is a command. `//` begins a message with one slash."""
    if text.startswith("//"):
        return text[1:]
    return None if text.startswith("/") else text


def run_command(session: Session, text: str) -> None:
    """Carry out a command.

    Raises:
        Leave: the command ends the conversation.
        InvalidOption: an unknown command, or an argument that cannot be used.
        TwofoldError, OSError: the command failed; the conversation goes on.
    """
    name, _, argument = text.partition(" ")
    name = _ALIASES.get(name, name)
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, [*COMMANDS, *_ALIASES], n=1)
        hint = f"did you mean {near[0]}?" if near else "/help lists the commands; // begins a message with a slash"
        raise InvalidOption(f"there is no command {name}", hint=hint)
    command(session, argument.strip())


def _number(text: str, kind: Callable[[str], Number], example: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise InvalidOption("not a number", found=repr(text), hint=example) from None


def _check_folder(path: Path, command: str) -> None:
    """A folder that is not there is more likely mistyped than meant to be made."""
    folder = str(path.parent)
    if not path.parent.is_dir():
        raise InvalidOption(
            f"the folder of {command} is not there", found=folder, hint=f"mkdir -p {shlex.quote(folder)}"
        )


def _new_file(text: str) -> Path:
    path = Path(text).expanduser()
    _check_folder(path, "/plan")
    if path.exists():
        raise TwofoldError(f"{path} exists", hint="choose another name")
    return path
