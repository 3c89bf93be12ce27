"""`twofold chat`: a conversation with a model, prepared on the first start."""

from __future__ import annotations

from typing import Annotated

import typer

from twofold.cli.model_options import AnswerOptions, ModelOptions, SamplingOptions
from twofold.cli.option_groups import grouped
from twofold.profiles.preferences import DEFAULT_MODEL


@grouped
def chat(
    opening: ModelOptions,
    sampling: SamplingOptions,
    answering: AnswerOptions,
    model: Annotated[
        str | None, typer.Argument(help=f"Hub id, folder, .gguf file or alias. Without: {DEFAULT_MODEL}, or as set.")
    ] = None,
    no_history: Annotated[bool, typer.Option("--no-history", help="Keep no history of what you type.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Raw text as it comes, no Markdown.")] = False,
) -> None:
    """Chat with a model. The first start fetches and quantises it; piped lines are answered one by one.

    A piped command that fails (a mistyped /command, a file that is not there) ends the chat there, with its exit code:
    the lines behind it are not answered.
    """
    from twofold.profiles.settings import get_settings

    settings = get_settings()
    model = model or settings.default_model
    options = opening.of(model)

    from twofold.cli.launch import keeping_ranks, launch, open_session
    from twofold.cli.observe import keeping_session

    launched = launch(options)
    if launched is None:
        return
    from twofold.cli.output import err
    from twofold.cli.repl.loop import converse
    from twofold.cli.repl.reader import make_reader
    from twofold.cli.repl.screen import make_screen
    from twofold.cli.repl.status import header

    session = open_session(launched, sampling, answering)
    err().prose(header(launched.plan), style="bold")
    reader = make_reader(keep_history=settings.history and not no_history)
    if reader.is_interactive:
        if model == DEFAULT_MODEL:
            _introduce(model)
        err().line("/help lists the commands, Ctrl-D leaves", style="dim")
    with keeping_ranks(launched), keeping_session(launched, session, "chat"):
        converse(session, reader, make_screen(plain=plain or settings.plain))


def _introduce(model: str) -> None:
    """Say what the default model is for, and name a real one where there is one."""
    from twofold.cli.output import err
    from twofold.cli.suggest import suggest_model

    err().prose(f"{model} is a self-test: small enough for any machine, not one to rely on")
    real = suggest_model()
    if real is not None:
        err().line(f"a real model for this machine: twofold chat {real}")
        err().line("twofold fit ranks more")
    else:
        err().line("twofold fit ranks models for this machine")
