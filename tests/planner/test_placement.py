"""Placement: whole fused Linears, never above the budget."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.planner import codecs
from twofold.planner.placement import place
from twofold.profiles.model_spec import ModelSpec


def _bytes(spec: ModelSpec, names: tuple[str, ...], bits: int) -> int:
    return sum(codecs.residual_bytes(group, bits) for group in spec.groups if group.name in names)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1.2), bits=st.integers(4, 8))
def test_the_budget_is_kept_and_nothing_small_is_left_out(odd_model: ModelSpec, share: float, bits: int) -> None:
    total = sum(codecs.residual_bytes(group, bits) for group in odd_model.groups)
    budget = int(total * share)
    chosen = place(odd_model, bits, budget)
    used = _bytes(odd_model, chosen, bits)
    assert used <= budget
    left = [codecs.residual_bytes(g, bits) for g in odd_model.groups if g.name not in chosen]
    assert all(size > budget - used for size in left)
    order = [group.name for group in odd_model.groups]
    assert list(chosen) == sorted(chosen, key=order.index)


def test_small_linears_come_first(shipped: Callable[[str], ModelSpec]) -> None:
    """With half of the bytes resident, more than half of the hand-offs are gone."""
    spec = shipped("google/gemma-4-31B-it")
    total = sum(codecs.residual_bytes(group, 6) for group in spec.groups)
    chosen = place(spec, 6, total // 2)
    assert len(chosen) > 0.55 * len(spec.groups)
    assert _bytes(spec, chosen, 6) > 0.98 * (total // 2)


@pytest.mark.parametrize("budget", [0, -5])
def test_no_budget_places_nothing(odd_model: ModelSpec, budget: int) -> None:
    assert place(odd_model, 6, budget) == ()
