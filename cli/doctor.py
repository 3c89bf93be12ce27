"""`twofold doctor`: what is in order here, what is not, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.output import err, out, print_json
from twofold.profiles.preferences import DEFAULT_MODEL

if TYPE_CHECKING:
    from twofold.cli.doctor_checks import Check

_STYLE = {"ok": "green", "warn": "yellow", "fail": "red"}


def _show(checks: list[Check]) -> None:
    sink = out()
    width = max(len(check.name) for check in checks)
    for check in checks:
        hanging = " " * (width + 8)
        sink.prose(f"{check.status:<4}  {check.name:<{width}}  {check.found}", _STYLE[check.status], hanging)
        if check.remedy is not None:
            sink.prose(f"{hanging}hint: {check.remedy}")


def _show_raw() -> None:
    """The texts that the probes read, redacted: one JSON object of path and text, and the driver's answers."""
    import json

    from twofold.probes.raw import raw_gpus, raw_texts

    print_json({"schema_version": 1, "files": raw_texts(), "nvml": json.loads(raw_gpus())})


def _check_options(model: str | None, sizes: dict[str, int | None], *, raw: bool, parity: bool, full: bool) -> None:
    """Refuse what would be ignored.

    Raises:
        InvalidOption: options that do not go together.
    """
    from twofold.profiles.errors import InvalidOption

    if parity and raw:
        raise InvalidOption("--parity and --raw are two different reports", hint="leave out one of them")
    given = [name for name, value in sizes.items() if value is not None]
    if not parity and (model is not None or full or given):
        extra = "--full" if full else given[0] if given else "a model"
        raise InvalidOption(f"{extra} is for --parity", found=model, hint="twofold doctor --parity [MODEL]")


def doctor(
    model: Annotated[
        str | None, typer.Argument(help=f"With --parity: the model to run (without: {DEFAULT_MODEL}, or as set).")
    ] = None,
    output_format: FormatOption = "human",
    raw: Annotated[
        bool, typer.Option("--raw", help="Print what the kernel and the driver say, redacted, for a bug report.")
    ] = False,
    parity: Annotated[
        bool, typer.Option("--parity", help="Run a model under many settings: text and logits must stay the same.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="With --parity: every combination, 20 prompts; hours.")] = False,
    prompts: Annotated[int | None, typer.Option("--prompts", min=1, help="With --parity: how many prompts.")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="With --parity: tokens of an answer.")] = None,
) -> None:
    """Check this machine and installation; each problem comes with a remedy. Exit code 1 when something fails."""
    _check_options(model, {"--prompts": prompts, "--tokens": tokens}, raw=raw, parity=parity, full=full)
    if raw:
        _show_raw()
        return
    if parity:
        from twofold.cli.doctor_parity import check_parity
        from twofold.profiles.settings import get_settings

        chosen = model or get_settings().default_model
        check_parity(chosen, output_format, full=full, n_prompts=prompts, n_tokens=tokens)
        return
    from twofold.cli.doctor_checks import list_settings, run_checks
    from twofold.cli.doctor_sessions import last_allocations, last_document, last_title
    from twofold.cli.repl.memory_view import COLUMNS

    checks, settings, memory = run_checks(), list_settings(), last_allocations()
    is_well = all(check.status != "fail" for check in checks)
    if output_format == "json":
        print_json(
            {
                "schema_version": 1,
                "ok": is_well,
                "checks": [check.to_json() for check in checks],
                "settings": [{"name": name, "value": value, "origin": origin} for name, value, origin in settings],
                "last_session": last_document(),
            }
        )
    else:
        _show(checks)
        if memory:
            out().line()
            out().table(last_title(), COLUMNS, memory)
        if settings:
            out().line()
            out().table("Settings", ("setting", "value", "from"), settings)
    if not is_well:
        err().prose("something must be fixed: see the lines that begin with fail", style="red")
        raise typer.Exit(1)
