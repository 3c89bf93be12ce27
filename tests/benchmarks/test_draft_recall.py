"""The arithmetic of `benchmarks/draft_recall.py`, and one answer of a small model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draft_recall", ROOT / "benchmarks" / "draft_recall.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


def test_checks_of_a_chain(bench: ModuleType) -> None:
    never, always = np.zeros((4, 10), bool), np.ones((4, 10), bool)
    assert bench.chain_checks(never) == 10 and bench.chain_checks(always) == 2
    first = never.copy()
    first[0] = True  # two tokens a check
    assert bench.chain_checks(first) == 5


def test_shares_count_what_a_chain_could_reach(bench: ModuleType) -> None:
    exact = np.zeros((4, 6), bool)
    exact[0, :3] = True
    exact[1, 1:] = True
    seen = bench.Seen(exact, np.array([1, 0, 0, 0, 0, 0], bool), np.array([0.2, 0.4, 0.6, 0.95, 0.995, 1.0]))
    found = bench.summary([seen, seen])
    assert found["exact_kv_by_depth"] == [0.5, 1.0, 0.0, 0.0] and found["own_kv"] == round(1 / 6, 3)
    assert [(one["n"], one["recall"]) for one in found["by_probability"]] == [(4, 1.0), (2, 1.0), (2, 0.0), (4, 0.0)]
    assert [one["n"] for one in found["by_place"]] == [12] and found["tokens"] == 12


def test_one_answer_of_a_small_model(bench: ModuleType, tmp_path: Path) -> None:
    tiny = _module(ROOT / "tests" / "cli" / "repl" / "tiny_model.py")
    launched = tiny.open_model(tiny.write_model(tmp_path / "tiny"))
    engine = _with_drafts(launched)
    seen = bench.look_at(engine, [5, 9, 17, 33], (), 12)
    assert seen.exact.shape == (4, 12) and seen.own.shape == (12,) and (seen.sure > 0).all() and (seen.sure <= 1).all()
    step = _with_drafts(launched)
    step.prefill([5, 9, 17, 33])
    guesses: list[Any] = []
    kept = step._guess
    step._guess = lambda *a: guesses.append(kept(*a)) or guesses[-1]  # type: ignore[method-assign,func-returns-value]
    token = step.step().tokens[0]
    assert bool(seen.exact[0, 0]) == (int(guesses[0][0, 0]) == token)


def _with_drafts(launched: Any) -> Any:
    from twofold.engine.engine import Engine

    plan = launched.plan.model_copy(update={"draft_nodes": 4, "draft_depth": 4})
    return Engine.of(launched.engine.checkpoint, plan, kernels="naive")


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
