"""A validator's findings in our words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from twofold.profiles.problems import problem_words


class _Made(BaseModel, extra="forbid"):
    count: Annotated[int, Field(ge=1, lt=5000, strict=True)] = 1
    share: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    name: Annotated[str, Field(min_length=2, max_length=4)] = "ab"
    parts: Annotated[list[int], Field(max_length=2)] = []
    is_on: bool = True
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"count": 0}, "0 is not at least 1"),
        ({"count": 5000}, "5000 is not less than 5,000"),
        ({"count": "x"}, "'x' is no whole number"),
        ({"share": 0}, "0 is not more than 0"),
        ({"share": "x"}, "'x' is no number"),
        ({"share": float("nan")}, "nan is no finite number"),
        ({"name": "a"}, "it has fewer than 2 characters"),
        ({"name": "abcde"}, "it has more than 4 characters"),
        ({"name": 3}, "3 is no text"),
        ({"parts": [1, 2, 3]}, "it has more than 2 entries"),
        ({"parts": 1}, "1 is no list"),
        ({"is_on": "x"}, "'x' is neither true nor false"),
        ({"kind": "c"}, "'c' is not 'a' or 'b'"),
        ({"other": 1}, "it is not known"),
    ],
)
def test_words(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as failed:
        _Made(**values)
    assert problem_words(failed.value.errors()[0]) == words  # type: ignore[arg-type]


def test_what_is_no_json_is_called_so_and_a_long_value_is_cut() -> None:
    with pytest.raises(ValidationError) as failed:
        _Made.model_validate_json("{")
    assert problem_words(failed.value.errors()[0]) == "not JSON"  # type: ignore[arg-type]
    with pytest.raises(ValidationError) as failed:
        _Made(count="x" * 5000)  # type: ignore[arg-type]
    assert len(problem_words(failed.value.errors()[0])) < 100  # type: ignore[arg-type]
