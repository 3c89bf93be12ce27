"""When to stop repeating a measurement, and what it then says.

A series ends when it has enough samples and time and its noise (interquartile range over median) is either small or has
stopped changing; failing that, at a wall-clock limit. Which of the three it was is part of the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from twofold.profiles.series import Series, is_stable, noise

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


def _ending(samples: list[float], noises: list[float], elapsed_s: float, rule: StopRule) -> Ending | None:
    if len(samples) >= rule.min_samples and elapsed_s >= rule.min_seconds:
        if noises[-1] <= rule.noise:
            return "noise small"
        is_full = len(samples) >= rule.min_samples + rule.window
        if is_full and is_stable(noises, rule.window, rule.noise_drift):
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
        noises.append(noise(samples))
        ending = _ending(samples, noises, clock() - started, rule)
        if ending is not None:
            return Series(tuple(samples), ending)
