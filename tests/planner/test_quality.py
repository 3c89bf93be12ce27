"""Classes and known KL: a figure is of what was measured, activations included."""

from __future__ import annotations

from typing import Any

import pytest

from twofold.planner import quality
from twofold.planner.quality import OTHER_ACTIVATIONS, checkpoint_kl, known_kl, measured_under


def _report(kl: float) -> dict[str, Any]:
    return {"rows": {"verifier": {"kl": {"value": kl}}}, "tokens": 7}


def test_a_kl_under_other_activations_is_not_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(quality._KNOWN, "a", {6: (0.001, "x"), "Q8_0": (0.002, "y")})
    monkeypatch.setitem(quality._KNOWN_INT8, "a", {6: (0.003, "z")})
    assert known_kl("a", 6, "f16", "f16").number == 0.001
    assert known_kl("a", "Q8_0", "f16", "f16").number == 0.002
    assert known_kl("a", 6, "f16", "f16", "int8").number == 0.003
    assert "K q8_0" in known_kl("a", 6, "q8_0", "q8_0", "int8").by
    for bits, activations in ((7, "int8"), (6, "int16/int8")):
        found = known_kl("a", bits, "f16", "f16", activations)  # type: ignore[arg-type]
        assert not found.is_known and f"--activations {activations}" in found.by
    assert not known_kl("b", 6, "f16", "f16", "int8").is_known


def test_what_a_checkpoint_holds_is_read_under_the_activations_asked_for() -> None:
    measured = _report(0.001) | {OTHER_ACTIVATIONS: {"int8": _report(0.002)}}
    for own, asked, kl in (("int16", "int16", 0.001), ("int16", "int8", 0.002), ("int8", "int8", 0.001)):
        figure = checkpoint_kl(measured_under(measured, own, asked))  # type: ignore[arg-type]
        assert figure is not None and figure.number == kl
    assert checkpoint_kl(measured_under(measured, "int16", "int16/int8")) is None


@pytest.mark.parametrize("others", [None, 3, [], {"int8": None}, {"int8": {"rows": 1}}])
def test_a_damaged_record_tells_nothing(others: object) -> None:
    assert checkpoint_kl(measured_under({OTHER_ACTIVATIONS: others}, "int16", "int8")) is None
