"""Coordinates of the charts: axes, lines, bands. The template only draws them, so that every text is escaped there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twofold.profiles.figures import Figure

WIDE = (680, 320)
NARROW = (360, 300)
"""Sizes in pixels. Text in a picture shrinks with it, so a narrow window gets a narrow picture."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 22, 12, 44


@dataclass(frozen=True, slots=True)
class Series:
    """A line with its range: (x, figure) in order of x; figures that are unknown are left out."""

    name: str
    points: tuple[tuple[float, Figure], ...]
    style: int
    has_band: bool = True


@dataclass(frozen=True, slots=True)
class Drawn:
    """A series in pixels: corners of the line, of its band, of its dots."""

    name: str
    style: int
    line: str
    band: str | None
    dots: tuple[tuple[float, float], ...]


@dataclass(slots=True)
class Chart:
    """A picture of one size."""

    width: int
    height: int
    x_label: str
    y_label: str
    left: int = _LEFT
    right: int = 0
    bottom: int = 0
    top: int = _TOP
    x_ticks: list[tuple[float, str]] = field(default_factory=list)
    y_ticks: list[tuple[float, str]] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)


def tokens_label(tokens: float) -> str:
    """`32K`, `1M`; plain below 1024."""
    if tokens >= 1 << 20 and tokens % (1 << 20) == 0:
        return f"{tokens / (1 << 20):g}M"
    return f"{tokens / 1024:g}K" if tokens >= 1024 and tokens % 256 == 0 else f"{tokens:g}"


def nice_ticks(top: float, n: int = 4) -> list[float]:
    """Up to about `n` round steps from 0 that reach `top`."""
    if top <= 0 or not math.isfinite(top):
        return [0.0, 1.0]
    raw = top / n
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    return [step * i for i in range(math.ceil(top / step - 1e-9) + 1)]


def _draw(one: Series, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> Drawn | None:
    known = [(x, figure) for x, figure in one.points if figure.is_number]
    if not known:
        return None
    at = [(round(x_of(x), 1), round(y_of(figure.number), 1)) for x, figure in known]
    band = None
    if one.has_band:
        low = [(x_of(x), y_of(figure.number if figure.low is None else figure.low)) for x, figure in known]
        high = [(x_of(x), y_of(figure.number if figure.high is None else figure.high)) for x, figure in known]
        band = _corners([*high, *reversed(low)])
    return Drawn(one.name, one.style, _corners(at), band, tuple(at) if len(at) <= 12 else ())


def _corners(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _top(series: Sequence[Series]) -> float:
    figures = [figure for one in series for _, figure in one.points if figure.is_number]
    banded = [figure.high or 0.0 for one in series if one.has_band for _, figure in one.points if figure.is_number]
    return max([figure.number for figure in figures] + banded, default=1.0)


def line_chart(
    series: Sequence[Series], size: tuple[int, int], x_label: str, y_label: str, *, is_log: bool = False
) -> Chart:
    """Lines over tokens; with `is_log` each doubling is as wide as the next."""
    width, height = size
    right, bottom = width - _RIGHT, height - _BOTTOM
    xs = sorted({x for one in series for x, _ in one.points}) or [0.0, 1.0]
    low, high = (math.log2(xs[0]), math.log2(xs[-1])) if is_log else (0.0, xs[-1])
    y_ticks = nice_ticks(_top(series))

    def x_of(x: float) -> float:
        place = math.log2(x) if is_log else x
        return _LEFT + (right - _LEFT) * ((place - low) / (high - low) if high > low else 0.5)

    def y_of(y: float) -> float:
        return bottom - (bottom - _TOP) * y / y_ticks[-1]

    chart = Chart(width, height, x_label, y_label, right=right, bottom=bottom)
    wanted = _x_ticks(xs, is_log, room=width // 70)
    chart.x_ticks = [(round(x_of(x), 1), tokens_label(x)) for x in wanted]
    chart.y_ticks = [(round(y_of(y), 1), f"{y:,g}") for y in y_ticks]
    chart.drawn = [drawn for one in series if (drawn := _draw(one, x_of, y_of)) is not None]
    return chart


def _x_ticks(xs: Sequence[float], is_log: bool, room: int) -> list[float]:
    """Powers of two among `xs`, or quarters of the last; no more than there is room for."""
    if not is_log:
        parts = 4 if room >= 5 else 2
        return [xs[-1] * i / parts for i in range(parts + 1)]
    powers = [x for x in xs if math.log2(x).is_integer()] or list(xs)
    step = -(-len(powers) // max(2, room))
    return powers[::-1][::step][::-1]
