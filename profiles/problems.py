"""What is wrong with a value, in words, from an entry of a validation error's list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twofold.profiles.text import one_line

_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_LENGTHS = {"min_length": "fewer than", "max_length": "more than"}
_KINDS = {
    "int": "no whole number",
    "float": "no number",
    "finite": "no finite number",
    "bool": "neither true nor false",
    "string": "no text",
    "tuple": "no list",
    "list": "no list",
    "dict": "no object",
    "model": "no object",
}
_PLAIN = {"missing": "it is missing", "json": "not JSON", "extra": "it is not known"}


def problem_words(problem: Mapping[str, Any]) -> str:
    """The problem without the validator's own words where it has a common one: `'0' is not at least 1`."""
    kind = str(problem["type"]).split("_")[0]
    if kind in _PLAIN:
        return _PLAIN[kind]
    found, limits = one_line(repr(problem.get("input")), 60), problem.get("ctx") or {}
    for name, words in _BOUNDS.items():
        if isinstance(limits.get(name), int | float):
            return f"{found} is not {words} {limits[name]:,.10g}"
    for name, words in _LENGTHS.items():
        if isinstance(limits.get(name), int):
            return f"it has {words} {limits[name]:,} {'characters' if kind == 'string' else 'entries'}"
    if kind == "literal":
        return f"{found} is not {limits['expected']}"
    if kind in _KINDS:
        return f"{found} is {_KINDS[kind]}"
    return one_line(str(problem["msg"]).removeprefix("Value error, "), 160)
