"""`twofold quantize`: make a checkpoint of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption

if TYPE_CHECKING:
    from twofold.cli.quantize_job import Job


def quantize(
    model: Annotated[str, typer.Argument(help="Hub id, folder, .gguf file or alias.", metavar="MODEL")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="The checkpoint's folder.", show_default=False)
    ] = None,
    residual_bits: Annotated[int, typer.Option("--residual-bits", help="Residual width, 4 to 8 bits.")] = 6,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the rotations.")] = 0,
    calibration: Annotated[
        str | None,
        typer.Option("--calibration", metavar="TEXT", help="shipped, self, or a .txt or .jsonl file."),
    ] = None,
    calibration_tokens: Annotated[int | None, typer.Option("--calibration-tokens", help="Tokens to use.")] = None,
    refine: Annotated[
        int,
        typer.Option(
            "--refine",
            metavar="N",
            help="Train the draft on the calibration text, N times over (0: not); better guesses, a longer run.",
        ),
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it takes, then stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start again over an earlier quantisation.")] = False,
    output: FormatOption = "human",
) -> None:
    """Quantise a model into a 2-bit base and a residual, once; the result is kept and used by chat and run."""
    from twofold.cli.quantize_job import Job, default_folder
    from twofold.engine.graph.registry import graph_of
    from twofold.engine.quantize.options import DEFAULT_CALIBRATION_TOKENS, QuantizeOptions
    from twofold.profiles.sources import read_spec, resolve

    tokens = DEFAULT_CALIBRATION_TOKENS if calibration_tokens is None else calibration_tokens
    options = QuantizeOptions(residual_bits=residual_bits, seed=seed, refine_passes=refine)
    ref = resolve(model)
    spec = read_spec(ref)
    graph_of(spec)
    folder = out if out is not None else default_folder(ref, options)
    job = Job(ref, spec, folder, options, calibration, tokens, as_json=output == "json")
    if dry_run:
        job.show_costs(force=force)
        return
    _say_done(job, job.run(assume_yes=yes, force=force))


def _say_done(job: Job, elapsed_s: float | None) -> None:
    """Where the checkpoint is; `elapsed_s` is None where it was finished before."""
    from twofold.cli.output import err, out, print_json
    from twofold.cli.quantize_view import shown
    from twofold.profiles.figures import measured, unknown

    took = (
        unknown("s", "it was finished before")
        if elapsed_s is None
        else measured(round(elapsed_s, 1), "s", "wall clock of quantising")
    )
    if elapsed_s is None:
        _say_otherwise_made(job)
    if job.as_json:
        print_json({"schema_version": 1, "folder": str(job.folder), "time": took.to_json()})
        return
    err().line(f"already quantised: {job.folder}" if elapsed_s is None else f"quantised in {shown(took)} (measured)")
    out().line(str(job.folder))
    err().line(f"try it: twofold chat {job.folder}")


def _say_otherwise_made(job: Job) -> None:
    """A warning where a finished checkpoint was calibrated on another text, or refined otherwise, than is asked for
    now.
    """
    from twofold.cli.output import err
    from twofold.profiles.readers.local import read_json_object

    record = read_json_object(job.folder / "config.json")["quantization_config"].get("calibration")
    record = record if isinstance(record, dict) else {}
    differs = [_other_text(record.get("id"), job.calibration), _other_passes(record, job.options.refine_passes)]
    if not any(differs):
        return
    err().warning("; ".join([*filter(None, differs), "nothing was done"]))
    err().line("hint: --force quantises again, or -o makes another checkpoint beside it", style="cyan")


def _other_text(used: object, asked: str | None) -> str | None:
    if asked is None or not isinstance(used, str):
        return None
    wanted = asked if asked in ("shipped", "self") else f"file:{Path(asked).name}"
    if used == wanted or used.startswith(f"{wanted}:"):
        return None
    return f"its calibration text was {used}, not {wanted}"


def _other_passes(record: dict[str, object], asked: int) -> str | None:
    used = record.get("refine_passes", 0)
    if not asked or used == asked:
        return None
    return f"its draft was refined in {used} passes, not {asked}" if used else "its draft was not refined"
