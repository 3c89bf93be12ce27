"""The cost sheet as a person reads it and as JSON, and progress bars of quantising."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from twofold.cli.output import Sink, err
from twofold.profiles.figures import Figure

if TYPE_CHECKING:
    from twofold.engine.quantize.cost import CostSheet
    from twofold.engine.quantize.request import CalibrationChoice

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def _bytes(value: float) -> str:
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.1f} {unit}" if size > 1 else f"{value:.0f} B"
    return "0 B"


def _seconds(value: float) -> str:
    if value >= 5400:
        return f"{value / 3600:.1f} h"
    return f"{value / 60:.0f} min" if value >= 150 else f"{value:.0f} s"


def shown(figure: Figure) -> str:
    """The value in a handy unit, with its range where it has one."""
    if not figure.is_known:
        return "unknown"
    form: Callable[[float], str] = _bytes if figure.unit == "B" else _seconds
    text = form(figure.number)
    if figure.low is not None and figure.high is not None and figure.low < figure.high:
        text += f" ({form(figure.low)} to {form(figure.high)})"
    return text


def print_sheet(sink: Sink, sheet: CostSheet, choice: CalibrationChoice, licence: str | None) -> None:
    """What it will take, one line a figure, each with its provenance, then the terms where they are known."""
    rows = [[label, shown(figure), f"{figure.source}: {figure.by}"] for label, figure in sheet.rows()]
    if choice.time is not None:
        rows.append(["time to write calibration text", shown(choice.time), f"{choice.time.source}: {choice.time.by}"])
    name = choice.path.name if choice.path is not None else choice.kind
    rows.append(["calibration text", name, choice.reason])
    sink.table(f"Quantising {sheet.model} takes", ("what", "how much", "how it is known"), rows)
    if licence is not None:
        sink.prose(f"licence: {licence}")


def sheet_json(sheet: CostSheet, choice: CalibrationChoice, licence: str | None) -> dict[str, Any]:
    """The sheet as a document's part."""
    keys = ("download", "result", "work_files", "disk_needed", "peak_ram", "time")
    figures: dict[str, Any] = {key: getattr(sheet, key).to_json() for key in keys}
    calibration: dict[str, Any] = {"kind": choice.kind, "reason": choice.reason}
    if choice.time is not None:
        calibration["time"] = choice.time.to_json()
    return {"model": sheet.model, **figures, "calibration": calibration, "licence": licence}


@contextlib.contextmanager
def bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar with time left; the callable takes (done, total, what is being done)."""
    sink = err()
    sink.stage(title)
    with sink.progress() as progress:
        task = progress.add_task(title, total=None)

        def tell(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=f"{title}: {what}" if what else title)

        yield tell
