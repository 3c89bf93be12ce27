"""`twofold quantize`: make a checkpoint of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from twofold.engine.quantize.options import QuantizeOptions
    from twofold.engine.quantize.request import CalibrationChoice
    from twofold.profiles.model_spec import ModelSpec
    from twofold.profiles.sources import ModelRef


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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it takes, then stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start again over an earlier quantisation.")] = False,
    format: Annotated[str, typer.Option("--format", help="human or json.")] = "human",
) -> None:
    """Quantise a model into a 2-bit base and a residual, once; the result is kept and used by chat and run."""
    from twofold.engine.graph.registry import graph_of
    from twofold.engine.quantize.options import DEFAULT_CALIBRATION_TOKENS, QuantizeOptions
    from twofold.profiles.errors import InvalidOption
    from twofold.profiles.sources import read_spec, resolve

    if format not in ("human", "json"):
        raise InvalidOption("--format is not known", found=format, needed="human or json", hint="--format human")
    tokens = DEFAULT_CALIBRATION_TOKENS if calibration_tokens is None else calibration_tokens
    options = QuantizeOptions(residual_bits=residual_bits, seed=seed)
    ref = resolve(model)
    spec = read_spec(ref)
    graph_of(spec)
    folder = out if out is not None else default_folder(ref, options)
    job = Job(ref, spec, folder, options, calibration, tokens, as_json=format == "json")
    job.run(assume_yes=yes, dry_run=dry_run, force=force)


def default_folder(ref: ModelRef, options: QuantizeOptions) -> Path:
    """Where a checkpoint goes without -o: one folder for each model, width and seed."""
    from twofold.profiles.settings import checkpoints_dir

    return checkpoints_dir() / f"{ref.name}-r{options.residual_bits}-s{options.seed}"


class Job:
    """One quantisation as a person runs it: sheet, question, download, calibration text, quantising."""

    def __init__(
        self,
        ref: ModelRef,
        spec: ModelSpec,
        folder: Path,
        options: QuantizeOptions,
        calibration: str | None,
        tokens: int,
        *,
        as_json: bool = False,
    ) -> None:
        self.ref, self.spec, self.folder, self.options = ref, spec, folder, options
        self.calibration, self.tokens, self.as_json = calibration, tokens, as_json

    def run(self, *, assume_yes: bool, dry_run: bool, force: bool) -> Path:
        """The checkpoint's folder; a finished one is left as it is.

        Raises:
            TwofoldError: whatever `quantize`, `fetch` and the calibration text can raise.
        """
        from twofold.cli.output import confirm, err
        from twofold.engine.quantize.cost import check
        from twofold.engine.quantize.workspace import check_target, is_finished
        from twofold.profiles.errors import UnsupportedModel

        if self.ref.kind == "checkpoint":
            raise UnsupportedModel(
                f"{self.ref.name} is a twofold checkpoint already", hint=f"twofold chat {self.ref.text}"
            )
        check_target(self.folder)
        if is_finished(self.folder) and not force and not dry_run:
            err().line(f"already quantised: {self.folder}")
            self._say_done(None)
            return self.folder
        sheet, choice = self.costs()
        self._show(sheet, choice, dry_run=dry_run)
        if dry_run:
            return self.folder
        check(sheet, self.folder, available_ram_bytes())
        confirm(
            f"Quantise {self.spec.name} into {self.folder}?", assume_yes=assume_yes, hint="add --yes to go on unasked"
        )
        self._quantize(choice, force=force)
        return self.folder

    def costs(self) -> tuple[Any, CalibrationChoice]:
        """The cost sheet and the calibration text that will be used, from a second of measuring."""
        from twofold.engine.quantize import request
        from twofold.engine.quantize.cost import cost_sheet, measure_rates
        from twofold.profiles.sources import download_bytes

        rates = measure_rates()
        choice = request.choose(self.calibration, self.spec, self.tokens, rates, available_ram_bytes())
        return cost_sheet(self.spec, download_bytes(self.ref), self.options, self.tokens, rates), choice

    def _show(self, sheet: Any, choice: CalibrationChoice, *, dry_run: bool) -> None:
        from twofold.cli.output import err, out, print_json
        from twofold.cli.quantize_view import print_sheet, sheet_json

        if self.as_json:
            if dry_run:
                print_json({"schema_version": 1, "folder": str(self.folder), "cost": sheet_json(sheet, choice)})
            return
        print_sheet(out() if dry_run else err(), sheet, choice)

    def _quantize(self, choice: CalibrationChoice, *, force: bool) -> None:
        import time

        from twofold.cli.output import err
        from twofold.cli.quantize_view import bar
        from twofold.engine.quantize import request
        from twofold.engine.quantize.pipeline import quantize as run
        from twofold.profiles.sources import fetch

        with bar(f"fetching {self.ref.name}") as tell:
            source = fetch(self.ref, lambda done, total: tell(done, total or 0, ""))
        with bar("calibration text") as tell:
            text = request.make(
                choice, source, self.spec, self.tokens, self.options.seed, lambda done, total: tell(done, total, "")
            )
        if text.warning is not None:
            err().warning(text.warning)
        begin = time.monotonic()
        with bar("quantising") as tell:
            run(source, self.spec, self.folder, self.options, text, tell, force=force)
        self._say_done(time.monotonic() - begin)

    def _say_done(self, elapsed_s: float | None) -> None:
        from twofold.cli.output import err, out, print_json
        from twofold.cli.quantize_view import shown
        from twofold.profiles.figures import measured, unknown

        took = (
            unknown("s", "it was finished before")
            if elapsed_s is None
            else measured(round(elapsed_s, 1), "s", "wall clock of quantising")
        )
        if self.as_json:
            print_json({"schema_version": 1, "folder": str(self.folder), "time": took.to_json()})
            return
        if elapsed_s is not None:
            err().line(f"quantised in {shown(took)} (measured)")
        out().line(str(self.folder))
        err().line(f"try it: twofold chat {self.folder}")


def available_ram_bytes() -> int | None:
    """Memory that this process may still use, or None where it cannot be told."""
    from twofold.probes.memory import read_memory

    available = read_memory().available_mib
    return int(available.number) << 20 if available.is_known else None
