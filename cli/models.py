"""`twofold models`."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Not written yet.")


@app.callback()
def _root() -> None:
    pass
