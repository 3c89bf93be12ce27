"""`--format`, the same for every command."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Format = Literal["human", "json"]
FormatOption = Annotated[Format, typer.Option("--format", help="For a person, or one JSON document.")]
