"""A figure and where it comes from.

A figure is `measured` (on this machine), `reported` (by someone else, `by` names the source), `reasoned` (computed,
`by` names the formula, with a range), or `unknown` (with the reason in `by`). There is no figure without one of these,
and an unknown one has no value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

Source = Literal["measured", "reported", "reasoned", "unknown"]
Value = bool | int | float | str | list[str]

NONE = "none"
"""The value of a limit that is known not to be there, which is neither 0 nor unknown."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One value with unit and provenance.

    `low` and `high` bound a reasoned figure; `n` and `spread` (interquartile range, in `unit`) describe a measured one.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}

    value: Value | None
    unit: str
    source: Source
    by: str
    low: float | None = None
    high: float | None = None
    n: int | None = None
    spread: float | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.source == "unknown"):
            raise ValueError(f"a figure has a value exactly when its source is known: {self!r}")

    @property
    def number(self) -> float:
        """The value as a number.

        Raises:
            TypeError: when the figure is unknown or not numeric.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise TypeError(f"not a number: {self!r}")
        return float(self.value)

    @property
    def is_known(self) -> bool:
        return self.source != "unknown"

    @property
    def is_number(self) -> bool:
        """Whether there is a number: a known figure may also say that there is none."""
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)

    def to_json(self) -> dict[str, Any]:
        """The JSON object; absent optional parts are left out."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        optional = ("low", "high", "n", "spread")
        return {key: value for key, value in found.items() if key not in optional or value is not None}


def measured(value: Value, unit: str, by: str, *, n: int | None = None, spread: float | None = None) -> Figure:
    """A figure measured on this machine; `by` says how."""
    return Figure(value, unit, "measured", by, n=n, spread=spread)


def reported(value: Value, unit: str, by: str) -> Figure:
    """A figure that somebody else published; `by` is the source."""
    return Figure(value, unit, "reported", by)


def reasoned(value: float, unit: str, by: str, *, low: float | None = None, high: float | None = None) -> Figure:
    """A computed figure; `by` names the formula. Exact results have `low == high == value`."""
    return Figure(value, unit, "reasoned", by, low=value if low is None else low, high=value if high is None else high)


def unknown(unit: str, reason: str) -> Figure:
    """A figure that could not be had, with the reason."""
    return Figure(None, unit, "unknown", reason)
