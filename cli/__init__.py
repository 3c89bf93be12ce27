"""The front door: one Typer command per file, one output sink, one table from exceptions to messages.

Command modules import only typer and `twofold.cli.output` at the top; what a command needs is imported when it runs, so
that `twofold --help` stays fast and `fit` and `probe` never load torch.
"""

from __future__ import annotations


def main() -> int:
    """Console entry point; returns the exit code."""
    from twofold.cli.errors import run_app

    return run_app()
