"""Ratios are taken within rounds, and bars are judged on them."""

from __future__ import annotations

import pytest
from versus.judge import bars, decode_bar
from versus.ratios import Speed, ratio, speed_ratio

from twofold.profiles.figures import Figure, measured, unknown
from twofold.profiles.series import Series


def _series(*samples: float) -> Series:
    return Series(samples, "rounds asked for")


def test_a_slow_minute_that_hits_both_leaves_the_ratio_alone() -> None:
    found = ratio(_series(100, 50, 10, 100), _series(50, 25, 5, 50))
    assert found.samples == (2, 2, 2, 2)
    assert (found.median, found.iqr) == (2, 0)


def test_the_ratio_of_medians_is_not_the_median_of_ratios() -> None:
    over, under = _series(10, 20, 90), _series(10, 5, 30)
    assert ratio(over, under).median == 3
    assert over.median / under.median == 2


def test_kinds_count_in_equal_tokens() -> None:
    # 100 tok/s and 50 tok/s on as many tokens each: 2 tokens in 0.03 s.
    over = Speed({"prose": _series(100.0), "code": _series(50.0)})
    under = Speed({"prose": _series(50.0), "code": _series(50.0)})
    assert over.both.samples == pytest.approx((2 / 0.03,))
    both, kinds = speed_ratio(over, under)
    assert both.samples == pytest.approx((2 / 0.03 / 50,))
    assert (kinds["prose"].median, kinds["code"].median) == (2, 1)


def test_series_of_other_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1 rounds"):
        ratio(_series(1, 2), _series(1))


def _found(value: float) -> Figure:
    return measured(value, "ratio", "test", n=8, spread=0.1)


def _judged(
    decode: float, plain: float, prefill: float, kl: Figure, llama: Figure, model: str = "smollm2"
) -> list[bool]:
    ratios = {"decode": _found(decode), "plain": _found(plain), "prefill": _found(prefill)}
    return [bar.is_reached for bar in bars(model, ratios, kl, llama)]


def test_bars_are_reached_at_their_value() -> None:
    kl = measured(0.001, "nats", "test")
    assert _judged(2.0, 1.5, 1.0, kl, kl) == [True, True, True, True]
    assert _judged(1.99, 1.49, 0.99, measured(0.0011, "nats", "test"), kl) == [False, False, False, False]


def test_the_decode_bar_is_the_models_own() -> None:
    assert decode_bar("HuggingFaceTB/SmolLM2-135M-Instruct") == 2.0
    assert decode_bar("smollm2") == 2.0
    assert decode_bar("google/gemma-3-270m-it") == decode_bar("gemma3-270m") == 1.5
    assert decode_bar("some/other-model") is None
    kl = measured(0.001, "nats", "test")
    assert _judged(1.5, 1.5, 1.0, kl, kl, "gemma3-270m") == [True, True, True, True]
    assert len(_judged(0.1, 1.5, 1.0, kl, kl, "some/other-model")) == 3


def test_what_is_unknown_has_not_reached_its_bar() -> None:
    known, missing = measured(0.001, "nats", "test"), unknown("nats", "llama-bench gives no logits")
    assert _judged(3, 3, 3, known, missing)[-1] is False
    assert _judged(3, 3, 3, missing, known)[-1] is False
    ratios = {name: _found(3) for name in ("decode", "plain", "prefill")}
    bar = bars("smollm2", ratios, known, missing)[-1].to_json()
    assert (bar["needed"], bar["reached"]) == ("at most unknown", False)
