"""Activations by name, and the planes that they are."""

from __future__ import annotations

from typing import get_args

import pytest

from twofold.profiles.activations import CHOICES, PLANES, USUAL, Activations, activation_words, of_planes


def test_names_and_planes_are_one_to_one() -> None:
    assert set(PLANES) == set(get_args(Activations)) and set(PLANES.values()) == {
        (a, b) for a in (1, 2) for b in (1, 2)
    }
    assert all(of_planes(*planes) == name for name, planes in PLANES.items())
    assert {PLANES[name] for name in CHOICES} == {(2, 2), (1, 1)} and PLANES[USUAL] == (2, 2)
    with pytest.raises(ValueError, match="one or two planes"):
        of_planes(2, 3)


def test_only_what_is_unusual_is_said() -> None:
    assert activation_words(None, ", ") == activation_words(USUAL, ", ") == ""
    assert activation_words("int8", ", ") == ", int8 activations"
