"""What a figure of a profile may plausibly be: kind of value, unit, and range.

The ranges are wide enough for any machine of the next years and narrow enough that a value outside them is a mistake
or an attack. An unknown figure has no value and passes; its reason is still checked as text.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from twofold.profiles.figures import NONE, Figure
from twofold.profiles.text import is_one_line

MAX_TEXT = 256
MAX_ITEMS = 1024
MAX_MIB = float(1 << 26)  # 64 TiB
MIN_GB_S = 0.001
MAX_GB_S = 100_000.0
MAX_WATTS = 20_000.0
MAX_COUNT = 65_536.0
MIN_QUOTA = 0.001
ISA_TIERS = ("generic", "avx2", "avx512", "avx512vbmi")
EARLIEST, LATEST = datetime.date(1970, 1, 1), datetime.date(2200, 1, 1)


def _need(condition: bool, needed: str) -> None:
    if not condition:
        raise ValueError(needed)


def _one_line(text: str) -> str:
    _need(is_one_line(text), "text on one line without control or invisible characters")
    return text


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT), AfterValidator(_one_line)]


def _check_text(text: str, what: str, limit: int = MAX_TEXT) -> None:
    _need(len(text) <= limit, f"{what} of at most {limit} characters")
    _need(is_one_line(text), f"{what} on one line without control or invisible characters")


def _check_parts(figure: Figure) -> None:
    """Rules for every figure: short plain texts, a range in order, plausible statistics."""
    _check_text(figure.by, "a source")
    _check_text(figure.unit, "a unit", 32)
    _need(bool(figure.by), "a source: how it was measured, who reported it, which formula, or why it is unknown")
    if figure.low is not None and figure.high is not None:
        _need(figure.low <= figure.high, "low ≤ high")
    _need(figure.n is None or 1 <= figure.n <= 1_000_000_000, "n between 1 and 1e9")
    for part in (figure.low, figure.high, figure.spread):
        _need(part is None or (math.isfinite(part) and abs(part) <= 1e12), "a finite number of at most 1e12")
    _need(figure.spread is None or figure.spread >= 0, "a spread that is not negative")


def _number(
    units: tuple[str, ...] | None, low: float, high: float, *, may_be_none: bool = False
) -> Callable[[Figure], Figure]:
    def check(figure: Figure) -> Figure:
        _check_parts(figure)
        if units is not None:
            _need(figure.unit in units, f"the unit {' or '.join(units)}")
        value = figure.value
        if value is None or (may_be_none and value == NONE):
            return figure
        _need(figure.is_number, f"a number or {NONE!r}" if may_be_none else "a number")
        for part in (figure.number, figure.low, figure.high):
            _need(part is None or low <= part <= high, f"a number from {low:,g} to {high:,.0f} {figure.unit}".rstrip())
        return figure

    return check


def _flag(figure: Figure) -> Figure:
    _check_parts(figure)
    _need(figure.value is None or isinstance(figure.value, bool), "true or false")
    return figure


def _words(figure: Figure) -> Figure:
    """Text, a flag, or a small number: a name, a version, a mode."""
    _check_parts(figure)
    value = figure.value
    _need(not isinstance(value, list), "one text, not a list")
    if isinstance(value, str):
        _check_text(value, "text")
    elif isinstance(value, int | float):
        _need(abs(value) <= 1e6, "a number from -1e6 to 1e6")
    return figure


def _list(figure: Figure) -> Figure:
    _check_parts(figure)
    if figure.value is None:
        return figure
    _need(isinstance(figure.value, list), "a list of texts")
    items = figure.value if isinstance(figure.value, list) else []
    _need(len(items) <= MAX_ITEMS, f"a list of at most {MAX_ITEMS} texts")
    for item in items:
        _check_text(item, "each a text", 64)
    return figure


def _tiers(figure: Figure) -> Figure:
    """Kernel tiers: every processor has one."""
    _list(figure)
    if isinstance(figure.value, list):
        is_known = bool(figure.value) and all(tier in ISA_TIERS for tier in figure.value)
        _need(is_known, f"a list of one or more of {', '.join(ISA_TIERS)}")
    return figure


def _day(day: datetime.date) -> datetime.date:
    """A clock that was never set says 1970; anything outside is no day of a capture."""
    _need(EARLIEST <= day <= LATEST, f"a date from {EARLIEST} to {LATEST}")
    return day


Mib = Annotated[Figure, AfterValidator(_number(("MiB",), 0, MAX_MIB))]
# Times are bytes divided by these: 0 is no rate; a rate that is not known is an unknown figure.
GbPerSecond = Annotated[Figure, AfterValidator(_number(("GB/s",), MIN_GB_S, MAX_GB_S))]
Watts = Annotated[Figure, AfterValidator(_number(("W",), 0, MAX_WATTS))]
MibLimit = Annotated[Figure, AfterValidator(_number(("MiB",), 0, MAX_MIB, may_be_none=True))]
CountLimit = Annotated[Figure, AfterValidator(_number(None, MIN_QUOTA, MAX_COUNT, may_be_none=True))]
Count = Annotated[Figure, AfterValidator(_number(None, 0, MAX_COUNT))]
Cores = Annotated[Figure, AfterValidator(_number(None, 1, MAX_COUNT))]
PcieGeneration = Annotated[Figure, AfterValidator(_number(None, 0, 16))]
PcieWidth = Annotated[Figure, AfterValidator(_number(None, 0, 64))]
Microseconds = Annotated[Figure, AfterValidator(_number(("us", "µs"), 0.001, 1e10))]
TokensPerSecond = Annotated[Figure, AfterValidator(_number(("tok/s",), 0, 1e7))]
Seconds = Annotated[Figure, AfterValidator(_number(("s",), 0, 1e6))]
TokensPerCheck = Annotated[Figure, AfterValidator(_number(None, 0, 4096))]
Flag = Annotated[Figure, AfterValidator(_flag)]
Words = Annotated[Figure, AfterValidator(_words)]
Names = Annotated[Figure, AfterValidator(_list)]
Tiers = Annotated[Figure, AfterValidator(_tiers)]
Day = Annotated[datetime.date, AfterValidator(_day)]
