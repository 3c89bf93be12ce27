"""Figures on the page: each shown with its range and kind, each with a row in the table of where numbers come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twofold.profiles.figures import Figure

Shown = dict[str, Any]
"""A figure as the template shows it: `value`, `text` with the unit, `range`, `source`, `by`, and `ref`: its row."""


def number(value: float) -> str:
    """As many decimals as are worth reading: three significant digits, whole numbers as they are."""
    size = abs(value)
    if value == int(value) or size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.3g}"


def span(figure: Figure) -> str | None:
    """`low to high` where they differ from each other."""
    if figure.low is not None and figure.high is not None and figure.low != figure.high:
        return f"{number(figure.low)} to {number(figure.high)}"
    if figure.spread:
        return f"± {number(figure.spread / 2)}" + (f", n = {figure.n}" if figure.n else "")
    return None


@dataclass(slots=True)
class Provenance:
    """Collects what the page shows. The same figure under the same name is one row."""

    rows: list[Shown] = field(default_factory=list)

    def show(self, name: str, figure: Figure) -> Shown:
        """`figure` for the page; its row is called `name`."""
        value = "unknown"
        if figure.is_known:
            value = number(figure.number) if figure.is_number else str(figure.value)
        shown: Shown = {
            "name": name,
            "value": value,
            "text": f"{value} {figure.unit}".strip() if figure.is_number else value,
            "range": span(figure) if figure.is_number else None,
            "source": figure.source,
            "by": figure.by,
        }
        for row in self.rows:
            if all(row[key] == shown[key] for key in shown):
                return row
        shown["ref"] = len(self.rows) + 1
        self.rows.append(shown)
        return shown
