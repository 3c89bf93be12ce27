"""Repeated measurements: their median and spread, and when their noise says that more samples would tell no more."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.profiles.figures import Figure, measured


@dataclass(frozen=True, slots=True)
class Series:
    """Samples in the order they were taken, and what ended the measurement."""

    samples: tuple[float, ...]
    ended_by: str

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def iqr(self) -> float:
        """Interquartile range, in the samples' unit."""
        return iqr(self.samples)

    def figure(self, unit: str, by: str) -> Figure:
        """The median as a measured figure with n and spread."""
        value, spread = float(f"{self.median:.4g}"), float(f"{self.iqr:.3g}")
        return measured(value, unit, f"{by}; median; ended by: {self.ended_by}", n=len(self.samples), spread=spread)


def iqr(samples: Sequence[float]) -> float:
    """Interquartile range (inclusive method); 0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
    return upper - lower


def noise(samples: Sequence[float]) -> float:
    """Interquartile range over median; 0 where the median is 0."""
    middle = statistics.median(samples)
    return iqr(samples) / middle if middle else 0.0


def is_stable(noises: Sequence[float], window: int, drift: float) -> bool:
    """Whether the last `window` noises differ by no more than `drift` of their mean."""
    recent = noises[-window:]
    return max(recent) - min(recent) <= drift * statistics.fmean(recent)
