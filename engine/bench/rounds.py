"""Interleaved rounds: every alternative is sampled once a round, so that a slow minute of the machine slows them all.

A measurement ends when every series has enough samples and its noise (interquartile range over median) is small or
has stopped changing; failing that, at a limit. Which of them it was is part of the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from twofold.profiles.series import Series, is_stable, noise

Key = TypeVar("Key", bound=Hashable)
Sampler = Callable[[int], float]
"""Round number → one sample; whatever it returns must be above 0."""
Share = Callable[[float], None]
"""Told how much of a measurement's limit is used up, 0 to 1; it usually ends earlier."""
Ending = Literal["noise small", "noise stable", "rounds asked for", "time limit"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Bounds of a measurement. `repeats` fixes the number of rounds; `noise` and `drift` are relative.

    Warming up ends when no sampler changes by more than `warm_drift` from one round to the next, or at a limit.
    """

    repeats: int | None = None
    min_rounds: int = 7
    max_seconds: float = 20.0
    noise: float = 0.02
    drift: float = 0.1
    window: int = 8
    warm_rounds: int = 6
    warm_seconds: float = 5.0
    warm_drift: float = 0.1

    def __post_init__(self) -> None:
        is_finite = self.repeats is None or self.repeats >= 1
        if self.min_rounds < 2 or self.window < 2 or self.max_seconds <= 0 or not is_finite:
            raise ValueError(f"a measurement needs at least two rounds, a window of two, and time: {self!r}")


def warm_up(samplers: Mapping[Key, Sampler], rule: Rule, clock: Callable[[], float] = time.perf_counter) -> int:
    """Run rounds until the samples are stable; returns how many were thrown away."""
    before: dict[Key, float] = {}
    started = clock()
    for done in range(rule.warm_rounds):
        now = {key: sample(done) for key, sample in samplers.items()}
        is_stable = before and all(abs(now[key] - before[key]) <= rule.warm_drift * before[key] for key in now)
        if is_stable or clock() - started >= rule.warm_seconds:
            return done + 1
        before = now
    return rule.warm_rounds


def interleave(
    samplers: Mapping[Key, Sampler],
    rule: Rule,
    on_share: Share = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Key, Series]:
    """Sample until `rule` ends it; every other round runs in reverse order.

    Raises:
        whatever a sampler raises; KeyboardInterrupt between samples.
    """
    samples: dict[Key, list[float]] = {key: [] for key in samplers}
    noises: dict[Key, list[float]] = {key: [] for key in samplers}
    started, done = clock(), 0
    while True:
        order = list(samplers)[:: 1 if done % 2 == 0 else -1]
        for key in order:
            samples[key].append(samplers[key](done))
            noises[key].append(noise(samples[key]))
        done += 1
        elapsed_s = clock() - started
        ending = _ending(list(noises.values()), done, elapsed_s, rule)
        on_share(min(1.0, elapsed_s / rule.max_seconds if rule.repeats is None else done / rule.repeats))
        if ending is not None:
            return {key: Series(tuple(found), ending) for key, found in samples.items()}


def _ending(noises: list[list[float]], done: int, elapsed_s: float, rule: Rule) -> Ending | None:
    if rule.repeats is not None:
        return "rounds asked for" if done >= rule.repeats else None
    if done >= rule.min_rounds:
        if all(series[-1] <= rule.noise for series in noises):
            return "noise small"
        if done >= rule.min_rounds + rule.window and all(_is_stable(series, rule) for series in noises):
            return "noise stable"
    return "time limit" if elapsed_s >= rule.max_seconds else None


def _is_stable(noises: list[float], rule: Rule) -> bool:
    return noises[-1] <= rule.noise or is_stable(noises, rule.window, rule.drift)
