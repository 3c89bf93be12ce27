"""Samples of a turn: real passes at depth, by an engine that serves several plans, and tokens per check by decoding."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.engine.bench.prompts import BenchTexts
from twofold.engine.bench.turn import TurnBench, decoded_tokens_per_check
from twofold.engine.draft import DraftTree
from twofold.engine.engine import Engine
from twofold.kernels.cpu import missing_reason
from twofold.planner.acceptance import DEFAULT_STATISTICS, tree_shape
from twofold.planner.plan import Plan

pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")
TEXT = tuple(1 + 7 * i % 110 for i in range(64))
TEXTS = {
    "prose": BenchTexts(((5, 6, 7), (8, 9)), TEXT),
    "code": BenchTexts(((10, 11, 12), (13,)), TEXT),
}


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    made = make_plan(context_tokens=128, prefill_chunk=16, draft_nodes=0)
    return made.model_copy(update={"draft_depth": 0})


@pytest.fixture
def bench(make_checkpoint: Callable[..., Path]) -> TurnBench:
    ticks = itertools.count()
    return TurnBench(make_checkpoint(), TEXTS, 64, 32, DEFAULT_STATISTICS, clock=lambda: float(next(ticks)))


def _opened(bench: TurnBench) -> Engine:
    assert bench._engine is not None
    return bench._engine


def test_passes_run_behind_a_cache_that_is_half_full_and_leave_it_so(bench: TurnBench, plan: Plan) -> None:
    for part in ("prefill", "step"):
        assert bench.measure(plan, part) > 0  # type: ignore[arg-type]
        assert _opened(bench).cached_tokens == 64
    assert _opened(bench).ranks.counts == ()
    bench.close()
    bench.close()


def test_the_engine_is_made_anew_only_for_a_wider_plan(bench: TurnBench, plan: Plan) -> None:
    bench.measure(plan, "prefill")
    first = _opened(bench)
    bench.measure(plan.model_copy(update={"prefill_chunk": 8}), "prefill")
    assert _opened(bench) is first
    bench.measure(plan.model_copy(update={"draft_nodes": 6, "draft_depth": 3}), "step")
    wider = _opened(bench)
    assert wider is not first and wider.plan.draft_nodes == 6
    bench.measure(plan.model_copy(update={"activations": "int8"}), "step")
    assert _opened(bench) is not wider and _opened(bench).config.activations == "int8"
    bench.measure(plan.model_copy(update={"prefill_chunk": 32}), "prefill")
    assert _opened(bench).plan.prefill_chunk == 32 and _opened(bench).plan.draft_nodes == 6
    bench.measure(plan.model_copy(update={"k_type": "q8_0", "v_type": "q8_0"}), "step")
    assert _opened(bench).plan.k_type == "q8_0" and _opened(bench).cached_tokens == 64


def test_an_engine_for_two_plans_is_made_only_where_it_fits(make_checkpoint: Callable[..., Path], plan: Plan) -> None:
    asked: list[Plan] = []

    def fits(union: Plan) -> bool:
        asked.append(union)
        return False

    bench = TurnBench(make_checkpoint(), TEXTS, 64, 32, DEFAULT_STATISTICS, fits)
    bench.measure(plan.model_copy(update={"prefill_chunk": 32}), "prefill")
    bench.measure(plan.model_copy(update={"draft_nodes": 4, "draft_depth": 2}), "step")
    assert (asked[0].prefill_chunk, asked[0].draft_nodes) == (32, 4)
    assert (_opened(bench).plan.prefill_chunk, _opened(bench).plan.draft_nodes) == (16, 4)


def test_a_sample_is_one_pass_after_others_that_are_thrown_away(
    bench: TurnBench, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    whole = Engine.dry_prefill

    def counted(self: Engine, tokens: tuple[int, ...]) -> None:
        rows.append(len(tokens))
        whole(self, tokens)

    monkeypatch.setattr(Engine, "dry_prefill", counted)
    ticks = iter([0, 0.5, 1, 1.3, 2, 2.3, 3, 3.25, 4, 4.5])
    bench._clock = lambda: next(ticks)
    assert bench.measure(plan, "prefill") == pytest.approx(0.25)  # after 0.5, 0.3 and 0.3: two agree
    assert bench.measure(plan, "prefill") == pytest.approx(0.5)
    assert rows == [16] * 5


def test_a_slow_pass_warms_itself(bench: TurnBench, plan: Plan) -> None:
    ticks = iter([0, 7.0])
    bench._clock = lambda: next(ticks)
    assert bench.measure(plan, "step") == 7.0


def test_a_dry_step_is_a_step_that_commits_nothing(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(context_tokens=128, draft_nodes=6))
    engine.prefill(TEXT[:20])
    tree = DraftTree(tree_shape(DEFAULT_STATISTICS, 6, 3, engine.spec.vocab_size))
    before = engine.cached_tokens, list(engine.tokens)
    n = engine.dry_step(tree)
    assert (engine.cached_tokens, engine.tokens) == before and engine.ranks.counts == ()
    engine.tree = tree.shape
    assert len(engine.step().tokens) == n


def test_a_repeated_cache_holds_no_text(make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(context_tokens=128))
    engine.prefill(TEXT[:11])
    engine.repeat_cached(100)
    assert engine.cached_tokens == 100 and len(engine.tokens) == 101
    with pytest.raises(ValueError, match="no room"):
        engine.repeat_cached(128)
    engine.reset()
    engine.prefill(TEXT[:11])
    again = engine.step().tokens
    fresh = Engine.load(make_checkpoint(), make_plan(context_tokens=128))
    fresh.prefill(TEXT[:11])
    assert fresh.step().tokens == again


def test_tokens_per_check_are_counted_on_answers(make_checkpoint: Callable[..., Path], plan: Plan) -> None:
    path = make_checkpoint()
    plans = [plan, plan.model_copy(update={"draft_nodes": 4, "draft_depth": 4})]
    found = decoded_tokens_per_check(path, plans, TEXTS, DEFAULT_STATISTICS, n_tokens=8, rounds=1)
    assert found is not None and found[0] == 1.0 and 1.0 <= found[1] <= 5.0
    short = [one.model_copy(update={"context_tokens": 8, "prefill_chunk": 8}) for one in plans]
    assert decoded_tokens_per_check(path, short, TEXTS, DEFAULT_STATISTICS, n_tokens=8) is None


@pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
def test_plans_of_other_threads_take_turns_with_the_pool(bench: TurnBench, plan: Plan) -> None:
    from twofold.kernels.cpu import native

    for threads in (1, 2, 1):
        bench.measure(plan.model_copy(update={"threads": threads, "cpu_isa": "auto"}), "step")
        assert native().threads() == threads
