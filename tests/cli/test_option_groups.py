"""Option groups: a command sees one value, the command line the options of the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from twofold.cli.option_groups import grouped


@dataclass(frozen=True, slots=True)
class Where:
    room: Annotated[str, typer.Option("--room")]
    floor: Annotated[int, typer.Option("--floor", "-f", help="Counted from the ground.")] = 0


@dataclass(frozen=True, slots=True)
class Precisely(Where):
    shelf: Annotated[list[str] | None, typer.Option("--shelf")] = None


seen: list[object] = []


@grouped
def put(
    where: Precisely, what: Annotated[str, typer.Argument()], twice: Annotated[bool, typer.Option()] = False
) -> None:
    """Put something."""
    seen.append((where, what, twice))


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)
    app.command("put")(put)
    return app


def test_a_group_is_made_of_its_options(app: typer.Typer) -> None:
    seen.clear()
    done = CliRunner().invoke(app, ["book", "--room", "a", "-f", "2", "--shelf", "x", "--shelf", "y", "--twice"])
    assert done.exit_code == 0, done.output
    assert seen == [(Precisely("a", 2, ["x", "y"]), "book", True)]
    assert CliRunner().invoke(app, ["book", "--room", "b"]).exit_code == 0
    assert seen[1] == (Precisely("b"), "book", False)


def test_help_and_mistakes_are_those_of_single_options(app: typer.Typer) -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Put something." in shown and "Counted from the ground." in shown and "--shelf" in shown
    assert CliRunner().invoke(app, ["book"]).exit_code == 2
    assert CliRunner().invoke(app, ["book", "--room", "a", "--floor", "high"]).exit_code == 2
