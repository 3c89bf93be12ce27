"""Tuned plans in the state folder: kept, replaced, and told apart from those of another machine or build."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest

from twofold.profiles import plan_store
from twofold.profiles.plan_store import ANY_CACHE, TunedPlan, read_tuned, save_tuned, tuned_dir, tuned_path

MACHINE = {"cpu": "a processor", "cores": "2/4/None", "isa": "avx2", "build": "abc1234 0123"}
TUNED = TunedPlan("a" * 32, 8192, ANY_CACHE, "int16", MACHINE, "2026-11-30", {"draft_nodes": 4})


def test_a_plan_is_found_by_what_it_is_for() -> None:
    path = save_tuned(TUNED)
    assert read_tuned(TUNED.model_key, 8192, ANY_CACHE, "int16") == TUNED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = TUNED.model_key
    for other in ((key, 4096, ANY_CACHE), (key, 8192, "q8_0"), ("b" * 32, 8192, ANY_CACHE)):
        assert read_tuned(*other, "int16") is None
    assert read_tuned(key, 8192, ANY_CACHE, "int8") is None


def test_a_later_plan_replaces_the_older_one() -> None:
    save_tuned(TUNED)
    save_tuned(replace(TUNED, day="2026-12-01"))
    found = read_tuned(TUNED.model_key, 8192, ANY_CACHE, "int16")
    assert found is not None and found.day == "2026-12-01"
    assert len(list(tuned_dir().glob("*.json"))) == 1


def test_what_differs_here_is_named() -> None:
    assert TUNED.differences(MACHINE) == []
    other = MACHINE | {"build": "def5678 4567", "isa": "generic"}
    assert TUNED.differences(other) == ["isa generic, tuned with avx2", "build def5678 4567, tuned with abc1234 0123"]
    assert len(TUNED.differences({})) == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: "not JSON",
        lambda document: json.dumps(document | {"schema_version": 99}),
        lambda document: json.dumps({name: value for name, value in document.items() if name != "plan"}),
        lambda document: json.dumps(document | {"model_key": "c" * 32}),
        lambda document: json.dumps(document | {"machine": {"cpu": "x"}}),
        lambda document: json.dumps(document | {"machine": document["machine"] | {"isa": "x" * 999}}),
        lambda document: json.dumps(document | {"plan": [1]}),
        lambda document: json.dumps(document | {"extra": 1}),
        lambda document: json.dumps(document | {"activations": "int8"}),
        lambda document: json.dumps({name: value for name, value in document.items() if name != "activations"}),
        lambda document: "[" * 100_000,
        lambda document: json.dumps(document) + " " * (1 << 20),
    ],
)
def test_a_damaged_file_counts_for_nothing(damage: object) -> None:
    path = save_tuned(TUNED)
    path.write_text(damage(json.loads(path.read_text())))  # type: ignore[operator]
    assert read_tuned(TUNED.model_key, 8192, ANY_CACHE, "int16") is None


def test_old_plans_go_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_store, "MAX_FILES", 3)
    for context in range(100, 106):
        save_tuned(replace(TUNED, context_tokens=context))
    assert len(list(tuned_dir().glob("*.json"))) == 3
    assert tuned_path(TUNED.model_key, 105, ANY_CACHE, "int16").exists()
