"""When to stop repeating a measurement, and what it then says.

A series ends when it has enough samples and time and its noise (interquartile range over median) is either small or has
stopped changing; failing that, at a wall-clock limit. Which of the three it was is part of the result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from twofold.profiles.figures import Figure, measured

Ending = Literal["noise small", "noise stable", "time limit"]


@dataclass(frozen=True, slots=True)
class StopRule:
    """Bounds of a series. `noise` and `noise_drift` are relative; the drift is over the last `window` samples."""

    min_samples: int = 7
    min_seconds: float = 0.2
    max_seconds: float = 1.5
    noise: float = 0.02
    noise_drift: float = 0.1
    window: int = 8

    def __post_init__(self) -> None:
        if self.min_samples < 2 or self.window < 2 or self.max_seconds <= 0:
            raise ValueError(f"a series needs at least two samples, a window of two and time: {self!r}")


@dataclass(frozen=True, slots=True)
class Series:
    """Samples in the order they were taken, and what ended the series."""

    samples: tuple[float, ...]
    ended_by: Ending

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def iqr(self) -> float:
        """Interquartile range, in the samples' unit."""
        return iqr(self.samples)

    def figure(self, unit: str, by: str) -> Figure:
        """The median as a measured figure with n and spread."""
        value = float(f"{self.median:.4g}")
        spread = float(f"{self.iqr:.3g}")
        return measured(value, unit, f"{by}; ended by: {self.ended_by}", n=len(self.samples), spread=spread)


def iqr(samples: tuple[float, ...] | list[float]) -> float:
    """Interquartile range (inclusive method); 0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
    return upper - lower


def _ending(samples: list[float], noises: list[float], elapsed_s: float, rule: StopRule) -> Ending | None:
    if len(samples) >= rule.min_samples and elapsed_s >= rule.min_seconds:
        if noises[-1] <= rule.noise:
            return "noise small"
        recent = noises[-rule.window :]
        is_full = len(samples) >= rule.min_samples + rule.window
        if is_full and max(recent) - min(recent) <= rule.noise_drift * statistics.fmean(recent):
            return "noise stable"
    return "time limit" if elapsed_s >= rule.max_seconds else None


def collect(sample: Callable[[], float], rule: StopRule, clock: Callable[[], float] = time.perf_counter) -> Series:
    """Call `sample` until `rule` ends the series. At least one sample is taken, however slow it is.

    Raises:
        whatever `sample` raises; KeyboardInterrupt between samples.
    """
    samples: list[float] = []
    noises: list[float] = []
    started = clock()
    while True:
        samples.append(sample())
        middle = statistics.median(samples)
        noises.append(iqr(samples) / middle if middle else 0.0)
        ending = _ending(samples, noises, clock() - started, rule)
        if ending is not None:
            return Series(tuple(samples), ending)
