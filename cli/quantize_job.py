"""One quantisation as a person runs it: cost sheet, question, download, calibration text, quantising.

Shared by `quantize` and by the commands that open a model and find it not quantised yet.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.cli.output import err, out, print_json
from twofold.cli.quantize_view import bar, print_sheet, sheet_json

if TYPE_CHECKING:
    from twofold.engine.quantize.cost import CostSheet
    from twofold.engine.quantize.options import QuantizeOptions
    from twofold.engine.quantize.request import CalibrationChoice
    from twofold.profiles.model_spec import ModelSpec
    from twofold.profiles.sources import ModelRef


def default_folder(ref: ModelRef, options: QuantizeOptions) -> Path:
    """Where a checkpoint goes without -o: one folder for each model, width and seed."""
    from twofold.profiles.settings import checkpoints_dir

    return checkpoints_dir() / f"{ref.name}-r{options.residual_bits}-s{options.seed}"


def refuse_changed_source(ref: ModelRef, folder: Path, bits: int) -> None:
    """Refuse a finished checkpoint whose source at the same path is another model now.

    The source is hashed only where it was written or moved after the checkpoint's dense file (which nothing rewrites);
    where it is still the same, that file's time is set to now, so that the next start need not hash again.

    Raises:
        TwofoldError: the fingerprints differ.
    """
    import contextlib
    import os
    import shlex

    from twofold.engine.checkpoint.layout import DENSE_FILE
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.readers.local import read_json_object

    dense = folder / DENSE_FILE
    if ref.kind not in ("folder", "gguf") or ref.path is None or ref.alias is not None or not dense.is_file():
        return
    files = sorted(ref.path.glob("*.safetensors")) if ref.path.is_dir() else [ref.path]
    changed = max((max(stat.st_mtime, stat.st_ctime) for stat in (file.stat() for file in files)), default=0.0)
    record = read_json_object(folder / "config.json")["quantization_config"].get("source")
    made_from = record.get("sha256") if isinstance(record, dict) else None
    if changed <= dense.stat().st_mtime or made_from is None:
        return
    from twofold.engine.weights import open_weights

    err().line(f"{ref.text} is newer than its checkpoint: comparing")
    with open_weights(ref.path) as source:
        found = source.sha256()
    if found != made_from:
        raise TwofoldError(
            f"{ref.text} is not the model that {folder} was made from",
            found=f"SHA-256 {found[:12]}…",
            needed=f"SHA-256 {str(made_from)[:12]}…",
            hint=f"twofold quantize {shlex.quote(ref.text)} --residual-bits {bits} --force, or open the checkpoint: "
            f"twofold chat {shlex.quote(str(folder))}",
        )
    with contextlib.suppress(OSError):  # somebody else's checkpoint: the next start compares again
        os.utime(dense)


class Job:
    """See the module."""

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

    @property
    def licence(self) -> str | None:
        """The source's terms, where an alias knows them."""
        from twofold.profiles.sources.aliases import ALIASES

        return None if self.ref.alias is None else ALIASES[self.ref.alias].licence

    def run(self, *, assume_yes: bool, force: bool = False) -> float | None:
        """Make the checkpoint in `folder`; the seconds that it took, or None where a finished one is there already.

        Raises:
            TwofoldError: whatever `quantize`, `fetch` and the calibration text can raise.
        """
        from twofold.cli.output import confirm
        from twofold.engine.quantize.cost import check
        from twofold.engine.quantize.workspace import check_target, is_finished
        from twofold.profiles.errors import UnsupportedModel

        if self.ref.kind == "checkpoint":
            raise UnsupportedModel(
                f"{self.ref.name} is a twofold checkpoint already", hint=f"twofold chat {self.ref.text}"
            )
        check_target(self.folder)
        if is_finished(self.folder) and not force:
            refuse_changed_source(self.ref, self.folder, self.options.residual_bits)
            return None
        sheet, choice = self.costs(force=force)
        if not self.as_json:
            print_sheet(err(), sheet, choice, self.licence)
        check(sheet, self.folder, available_ram_bytes())
        confirm(
            f"Quantise {self.spec.name} into {self.folder}?",
            assume_yes=assume_yes,
            hint="add --yes to go on unasked",
            declined="nothing was downloaded or written",
        )
        return self._quantize(choice, force=force)

    def show_costs(self, *, force: bool = False) -> None:
        """The cost sheet on stdout: what a dry run is for."""
        sheet, choice = self.costs(force=force)
        if self.as_json:
            print_json(
                {"schema_version": 1, "folder": str(self.folder), "cost": sheet_json(sheet, choice, self.licence)}
            )
        else:
            print_sheet(out(), sheet, choice, self.licence)

    def costs(self, *, force: bool = False) -> tuple[CostSheet, CalibrationChoice]:
        """The cost sheet and the calibration text that will be used, from a second of measuring.

        What an interrupted run has done is not counted again, unless `force` throws it away.
        """
        from twofold.engine.quantize import request
        from twofold.engine.quantize.cost import cost_sheet, measure_rates
        from twofold.engine.quantize.workspace import Done, left_by
        from twofold.profiles.sources import download_bytes

        rates = measure_rates()
        choice = request.choose(self.calibration, self.spec, self.tokens, rates, available_ram_bytes())
        done = Done() if force else left_by(self.folder, self.options)
        return cost_sheet(self.spec, download_bytes(self.ref), self.options, self.tokens, rates, done), choice

    def _quantize(self, choice: CalibrationChoice, *, force: bool) -> float:
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
        try:
            with bar("quantising") as tell:
                run(source, self.spec, self.folder, self.options, text, tell, force=force)
        except (KeyboardInterrupt, SystemExit):  # SIGTERM and SIGHUP end in the second one
            self._say_kept(force=force)
            raise
        return time.monotonic() - begin

    def _say_kept(self, *, force: bool) -> None:
        """What a stopped run left, for whoever wonders whether it starts over."""
        from twofold.engine.quantize.workspace import left_by

        done = left_by(self.folder, self.options).layers
        step = "step" if self.options.refine_passes else "layer"
        kept = "nothing is" if not done else f"{done} {step} is" if done == 1 else f"{done} {step}s are"
        again = "the same command without --force" if force else "the same command"
        err().prose(f"{kept} finished and kept: {again} {'goes on from there' if done else 'starts over'}")


def available_ram_bytes() -> int | None:
    """Memory that this process may still use, or None where it cannot be told."""
    from twofold.probes.memory import read_memory

    available = read_memory().available_mib
    return int(available.number) << 20 if available.is_known else None
