"""`Term`: one line of a device's memory budget, and `DeviceMemory`: all lines of one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twofold.profiles.figures import Figure, reasoned
from twofold.profiles.units import MIB

Device = Literal["vram", "ram"]


@dataclass(frozen=True, slots=True)
class Term:
    """One line of a device's budget: bytes with bounds, and the formula they come from. Exact where low == high.

    `n` > 0: measured on this machine, that many times; `by` then says in what.
    """

    name: str
    device: Device
    bytes: int
    low: int
    high: int
    by: str
    n: int = 0

    @property
    def figure(self) -> Figure:
        value, low, high = (round(part / MIB, 4) for part in (self.bytes, self.low, self.high))
        if self.n:
            return Figure(value, "MiB", "measured", self.by, low=low, high=high, n=self.n)
        return reasoned(value, "MiB", self.by, low=low, high=high)


def exact(name: str, device: Device, n_bytes: int, by: str) -> Term:
    return Term(name, device, n_bytes, n_bytes, n_bytes, by)


def estimate(name: str, device: Device, mib: tuple[float, float, float], by: str) -> Term:
    low, point, high = (int(value * MIB) for value in mib)
    return Term(name, device, point, low, high, by)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """All terms of one device."""

    device: Device
    terms: tuple[Term, ...]

    @property
    def total(self) -> int:
        return sum(term.bytes for term in self.terms)

    @property
    def low(self) -> int:
        return sum(term.low for term in self.terms)

    @property
    def high(self) -> int:
        return sum(term.high for term in self.terms)

    @property
    def total_figure(self) -> Figure:
        return reasoned(
            round(self.total / MIB, 4),
            "MiB",
            "sum of the terms",
            low=round(self.low / MIB, 4),
            high=round(self.high / MIB, 4),
        )

    def find(self, name: str) -> Term | None:
        return next((term for term in self.terms if term.name == name), None)

    def to_json(self) -> dict[str, object]:
        figures: dict[str, object] = {f"{term.name}_mib": term.figure.to_json() for term in self.terms}
        return {**figures, "total_mib": self.total_figure.to_json()}
