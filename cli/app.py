"""The command tree. Each command lives in its own module; importing one costs only typer."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

# Each is a module of this package: a command's has a function of its name, a group's a Typer app called `app`.
COMMANDS = ("fit", "chat", "run", "probe", "quantize", "eval", "bench", "tune", "cards", "doctor")
GROUPS = ("profile", "models")


def _show_version(value: bool) -> None:
    if value:
        from twofold.cli.output import out
        from twofold.cli.version import version_line

        out().line(version_line())
        raise typer.Exit


def build_app() -> typer.Typer:
    """Assemble the Typer application."""
    from twofold.cli.usage import Commands

    app = typer.Typer(
        name="twofold",
        cls=Commands,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option("--version", callback=_show_version, is_eager=True, help="Print version, commit and ISA."),
        ] = False,
    ) -> None:
        """Plan, tune and run local LLMs on the hardware you have."""

    for name in COMMANDS:
        module = importlib.import_module(f"twofold.cli.{name}")
        app.command(name)(getattr(module, name))
    for name in GROUPS:
        module = importlib.import_module(f"twofold.cli.{name}")
        app.add_typer(module.app, name=name)
    return app
