"""Quality floors and the knobs that they allow."""

from __future__ import annotations

import pytest

from twofold.planner.request import QualityFloor, Request, resolve_context
from twofold.profiles.errors import InvalidOption


@pytest.mark.parametrize("floor, bits, kv", [("q8", 6, "q8_0"), ("Q6", 5, "q8_0"), ("q4", 4, "q4_0")])
def test_classes(floor: str, bits: int, kv: str) -> None:
    request = Request(quality=QualityFloor.parse(floor))
    assert request.bits() == bits
    assert request.kv_choices()[0] == "f16"
    assert request.kv_choices()[-1] == kv


def test_a_kl_is_not_guessed_into_bits() -> None:
    floor = QualityFloor.parse("0.002")
    assert floor.min_residual_bits == 8
    assert floor.kv_types == ("f16",)
    assert floor.note is not None and "cannot be turned" in floor.note


@pytest.mark.parametrize("text", ["q5", "", "-1", "nan", "inf", "0", "10.1", "1e9", "q8_0"])
def test_nonsense_floors(text: str) -> None:
    with pytest.raises(InvalidOption, match="quality floor"):
        QualityFloor.parse(text)


def test_knobs_below_the_floor_are_refused() -> None:
    with pytest.raises(InvalidOption, match="below the quality floor"):
        Request(residual_bits=5).bits()
    with pytest.raises(InvalidOption, match="below the quality floor"):
        Request(kv_type="q4_0").kv_choices()
    assert Request(residual_bits=4, quality=QualityFloor.parse("q4")).bits() == 4
    assert Request(kv_type="q4_0", quality=QualityFloor.parse("q4")).kv_choices() == ("q4_0",)


def test_int8_activations_are_of_every_class_and_of_no_kl() -> None:
    for floor in ("q8", "q6", "q4"):
        assert Request(activations="int8", quality=QualityFloor.parse(floor)).rounding() == "int8"
    strict = QualityFloor.parse("0.002")
    assert Request(quality=strict).rounding() == Request().rounding() == "int16"
    with pytest.raises(InvalidOption, match="int8 activations are below the quality floor KL") as refused:
        Request(activations="int8", quality=strict).rounding()
    assert refused.value.hint is not None and "--activations int16" in refused.value.hint


@pytest.mark.parametrize("bits", [3, 9])
def test_impossible_widths(bits: int) -> None:
    with pytest.raises(InvalidOption, match="not possible"):
        Request(residual_bits=bits).bits()


def test_a_checkpoints_width_is_kept() -> None:
    assert Request(fixed_bits=7).bits() == 7


def test_contexts() -> None:
    assert resolve_context(None, 2048, "m") == 2048
    assert resolve_context(None, 131072, "m") == 8192
    assert resolve_context(131072, 131072, "m") == 131072
    with pytest.raises(InvalidOption, match="longer than m allows") as caught:
        resolve_context(131073, 131072, "m")
    assert caught.value.hint == "--ctx 131072"
