"""Whether drafting pays, from made-up machines whose answer is plain."""

from __future__ import annotations

import pytest

from twofold.planner.acceptance import DEFAULT_STATISTICS, RankStatistics, TreeShape, tree_shape
from twofold.planner.draft_choice import LEAST_GAIN, DraftChoice, PassSeconds, choose_draft

GOOD, POOR = RankStatistics((0.8, 0.1, 0.03), 1.0, "test"), RankStatistics((0.1, 0.05), 1.0, "test")


def machine(row: float, draft: float, fixed: float = 1.0) -> PassSeconds:
    """A verify pass costs `fixed` + `row` per row more; a draft pass `draft`, whatever its width."""
    return PassSeconds({1: fixed, 17: fixed + 16 * row}, {1: draft, 4: draft})


def test_at_the_memory_wall_long_drafts_pay_and_more_so_where_rows_are_free() -> None:
    free = choose_draft(GOOD, machine(row=0.0, draft=0.2))
    dear = choose_draft(GOOD, machine(row=0.15, draft=0.2))
    assert free.nodes > dear.nodes > 0 and free.gain > dear.gain > LEAST_GAIN
    assert free.gain == pytest.approx(
        tree_shape(GOOD, free.nodes, free.depth).tokens / (1 + 0.2 * free.depth), rel=1e-9
    )


def test_where_every_row_costs_a_pass_nothing_is_drafted() -> None:
    assert choose_draft(GOOD, machine(row=1.0, draft=0.5)) == DraftChoice(0, 0, 1.0)
    assert choose_draft(GOOD, machine(row=0.0, draft=1.0)).nodes == 0
    assert choose_draft(POOR, machine(row=0.05, draft=0.3)).nodes == 0


def test_a_step_is_its_levels_and_one_check() -> None:
    times = PassSeconds({1: 1.0, 3: 2.0, 5: 5.0}, {1: 0.1, 2: 0.3})
    assert times.step(TreeShape((), (), ())) == 1.0
    assert times.step(TreeShape((0, 1, 2), (0, 0, 0), (0.5, 0.2, 0.1))) == pytest.approx(3.5 + 3 * 0.1)
    two_wide = TreeShape((0, 0, 1, 2), (0, 1, 0, 0), (0.5, 0.2, 0.1, 0.1))
    assert times.step(two_wide) == pytest.approx(5.0 + 0.1 + 0.3)
    wide = TreeShape((0, 0, 0, 1, 2, 3), (0, 1, 2, 0, 0, 0), (0.1,) * 6)
    assert times.step(wide) == pytest.approx(5.0 + 2 * 1.5 + 0.1 + 0.5)  # both carried on by their last slope


def test_one_known_width_is_taken_as_cost_per_row() -> None:
    times = PassSeconds({1: 1.0}, {1: 0.1})
    assert times.step(TreeShape((0,), (0,), (0.5,))) == pytest.approx(2.1)
    assert choose_draft(DEFAULT_STATISTICS, times).nodes == 0


@pytest.mark.parametrize("verify, draft", [({}, {1: 1.0}), ({1: 1.0}, {2: 1.0}), ({1: 0.0}, {1: 1.0})])
def test_times_that_cannot_be(verify: dict[int, float], draft: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="pass times"):
        PassSeconds(verify, draft)
