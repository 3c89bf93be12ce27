"""A figure has a value exactly when it has a source, and says so in JSON."""

from __future__ import annotations

import json

import pytest

from twofold.profiles.figures import Figure, measured, reasoned, reported, unknown


def test_json_has_the_parts_that_are_there_and_nothing_else() -> None:
    assert reported(24564, "MiB", "the driver").to_json() == {
        "value": 24564, "unit": "MiB", "source": "reported", "by": "the driver"
    }  # fmt: skip
    assert measured(4.7, "GB/s", "read", n=9, spread=0.1).to_json()["spread"] == 0.1
    assert reasoned(2, "GB", "sum").to_json()["low"] == 2
    assert json.loads(json.dumps(unknown("W", "no driver").to_json()))["value"] is None


def test_unknown_has_no_value_and_known_has_one() -> None:
    with pytest.raises(ValueError, match="value"):
        Figure(0, "MiB", "unknown", "not read")
    with pytest.raises(ValueError, match="value"):
        Figure(None, "MiB", "measured", "read")
    assert not unknown("MiB", "why").is_known


@pytest.mark.parametrize("value", [None, True, "12", ["a"]])
def test_only_numbers_are_numbers(value: object) -> None:
    figure = unknown("", "x") if value is None else reported(value, "", "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _ = figure.number
