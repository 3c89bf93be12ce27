"""Quick pass times: measured on a real engine, bounded in time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from twofold.engine.bench.quick import DRAFT_ROWS, VERIFY_ROWS, quick_pass_times
from twofold.engine.engine import Engine
from twofold.planner.acceptance import DEFAULT_STATISTICS
from twofold.planner.draft_choice import PassSeconds, choose_draft
from twofold.planner.plan import Plan


def test_every_width_where_there_is_time(make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(draft_nodes=max(VERIFY_ROWS) - 1))
    ticks = itertools.count()
    times = quick_pass_times(engine, wall=lambda: next(ticks) * 1e-3)
    assert tuple(sorted(times["verify"])) == VERIFY_ROWS and tuple(sorted(times["draft"])) == DRAFT_ROWS
    assert all(0 < seconds < 1 for kind in times.values() for seconds in kind.values())
    assert engine.tokens == [] and engine.cached_tokens == 0 and engine.ranks.counts == ()
    choose_draft(DEFAULT_STATISTICS, PassSeconds(times["verify"], times["draft"]))


def test_a_slow_model_is_not_waited_for(make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(draft_nodes=max(VERIFY_ROWS) - 1))
    seconds = itertools.count()
    times = quick_pass_times(engine, wall=lambda: float(next(seconds)))
    assert set(times["verify"]) == {1} and set(times["draft"]) == {1}
