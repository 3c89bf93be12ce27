"""Mistakes on the command line that Typer finds, told as every other error: what it is, then a hint with a command."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from twofold.profiles.errors import InvalidOption, TwofoldError
from twofold.profiles.problems import problem_words

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The class above Typer's own, whether Typer brings its parser along or takes click's."""


class Commands(TyperGroup):
    """The command tree's root."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with self._told():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with self._told():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # a command without arguments shows its help
                raise
            raise explained(error, self) from None


def explained(error: Exception, root: Any) -> TwofoldError:
    """Typer's error in the words of this program."""
    hint = " ".join(("twofold", *_command_path(error, root), "--help"))
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        if option == "--json" and _has_format(error):
            hint = "--format json"
        error.possibilities = _near(option, error.possibilities)
    checked: Any = error.__cause__ or error.__context__
    if hasattr(checked, "errors") and hasattr(error, "message"):
        error.message = problem_words(checked.errors()[0])
    text = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    return InvalidOption(text[:1].lower() + text[1:], hint=hint)


def _has_format(error: Exception) -> bool:
    command = getattr(getattr(error, "ctx", None), "command", None)
    return any("--format" in one.opts for one in getattr(command, "params", ()))


def _near(option: str, names: Sequence[str] | None) -> list[str] | None:
    """Those of the parser's guesses that are spelled like the option, whatever they share in dashes."""
    import difflib

    bare = {name.lstrip("-"): name for name in names or ()}
    return [bare[name] for name in difflib.get_close_matches(option.lstrip("-"), bare)] or None


def _command_path(error: Exception, root: Any) -> list[str]:
    """The words of the command that was meant, by the error's context or (some have none) by the command line."""
    ctx = getattr(error, "ctx", None)
    names: list[str] = []
    while ctx is not None and ctx.parent is not None:
        names.insert(0, str(ctx.info_name))
        ctx = ctx.parent
    if names or getattr(error, "ctx", None) is not None:
        return names
    command = root
    for word in sys.argv[1:]:
        following = getattr(command, "commands", {}).get(word)
        if following is None:
            break
        names.append(word)
        command = following
    return names
