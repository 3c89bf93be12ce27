"""Speeds that were taken in turn, and what one engine's are over the other's within each round.

A ratio is taken between samples of the same round, which lie next to each other in time: a machine that is slow for a
minute slows both. Its spread is the interquartile range over rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twofold.profiles.series import Series


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second of one engine by kind of text, sample i from round i."""

    kinds: Mapping[str, Series]

    @property
    def both(self) -> Series:
        """Per round, over all kinds in equal parts: the tokens of every kind over the time of every kind."""
        return Series(
            tuple(statistics.harmonic_mean(round_) for round_ in _rounds(list(self.kinds.values()))),
            next(iter(self.kinds.values())).ended_by,
        )


def ratio(over: Series, under: Series) -> Series:
    """`over` / `under`, round by round.

    Raises:
        ValueError: when the two did not run in the same rounds.
    """
    if len(over.samples) != len(under.samples):
        raise ValueError(f"{len(over.samples)} and {len(under.samples)} rounds cannot be compared")
    return Series(tuple(a / b for a, b in zip(over.samples, under.samples, strict=True)), over.ended_by)


def speed_ratio(over: Speed, under: Speed) -> tuple[Series, dict[str, Series]]:
    """The ratio over all kinds, and that of each."""
    kinds = {kind: ratio(series, under.kinds[kind]) for kind, series in over.kinds.items()}
    return ratio(over.both, under.both), kinds


def _rounds(series: Sequence[Series]) -> list[tuple[float, ...]]:
    return list(zip(*(one.samples for one in series), strict=True))
