"""Plan files: what is no plan of the schema is refused, and nothing is converted into one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twofold.planner.plan import MAX_MIB, Plan
from twofold.profiles.errors import InvalidProfile

GOOD: dict[str, Any] = {
    "schema_version": 1, "model": "smollm2", "device": "cpu", "context_tokens": 256, "residual_bits": 6,
    "k_type": "f16", "v_type": "f16", "resident_linears": [], "draft_nodes": 0, "draft_depth": 0,
    "prefill_chunk": 64, "threads": 2, "cpu_isa": "avx2", "expected_ram_mib": 300, "expected_vram_mib": 0.0,
    "tuned": True, "verified": None,
}  # fmt: skip


def test_a_good_one_comes_back() -> None:
    plan = Plan.from_json(json.dumps(GOOD))
    assert Plan.from_json(plan.to_json()) == plan == Plan.from_dict(GOOD)
    seen = {"day": "2026-11-30", "peak_mib": 290.5, "expected_mib": 300}
    assert Plan.from_dict(GOOD | {"verified": seen, "resident_linears": ["a"]}).verified is not None


def test_activations_are_written_always_and_read_where_they_are_stated() -> None:
    assert "activations" not in GOOD and Plan.from_dict(GOOD).activations == "int16"
    assert json.loads(Plan.from_dict(GOOD).to_json())["activations"] == "int16"
    for activations in ("int8", "int16/int8"):
        plan = Plan.from_dict(GOOD | {"activations": activations})
        assert Plan.from_json(plan.to_json()) == plan and plan.activations == activations


@pytest.mark.parametrize(
    "change",
    [
        {"draft_nodes": True},
        {"threads": "2"},
        {"threads": 2.0},
        {"context_tokens": "256"},
        {"context_tokens": 1 << 40},
        {"tuned": 1},
        {"schema_version": True},
        {"expected_ram_mib": True},
        {"expected_ram_mib": "300"},
        {"expected_ram_mib": 1e300},
        {"expected_ram_mib": 10**400},
        {"expected_ram_mib": float("inf")},
        {"expected_ram_mib": float("nan")},
        {"expected_vram_mib": 2 * MAX_MIB},
        {"verified": {"day": "x", "peak_mib": 1e300, "expected_mib": 1}},
        {"verified": {"day": "x", "peak_mib": 1, "expected_mib": 1e300}},
        {"verified": {"day": "x", "peak_mib": "1", "expected_mib": 1}},
        {"model": ""},
        {"model": "x" * 5000},
        {"cpu_isa": "x" * 100},
        {"k_type": None},
        {"activations": None},
        {"activations": "int4"},
        {"activations": 8},
        {"resident_linears": "ab"},
        {"resident_linears": [1]},
    ],
)
def test_what_is_no_plan_is_refused(change: dict[str, Any]) -> None:
    for read in (lambda: Plan.from_json(json.dumps(GOOD | change)), lambda: Plan.from_dict(GOOD | change)):
        with pytest.raises(InvalidProfile, match="the plan is not valid") as refused:
            read()
        assert refused.value.hint
        assert not any(words in refused.value.what for words in ("Input should", "Value error", "String should"))
