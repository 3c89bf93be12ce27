"""Ranks counted from real steps, and the tree that they shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from twofold.engine.accept import Accepted
from twofold.engine.draft import KEPT_RANKS, Draft
from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.engine.rank_counts import RankCounts
from twofold.planner.acceptance import PRIOR_WEIGHT, RankStatistics, learned_ranks, tree_shape
from twofold.planner.plan import Plan

PROMPT = np.random.default_rng(3).integers(0, 117, 40).tolist()
PRIOR = RankStatistics((0.6, 0.2), 0.9, "a test")


def test_what_one_step_counts() -> None:
    draft = Draft((5, 6, 7, 8), (-1, 0, 0, 1), {0: (6, 7, 9), 1: (8, 3)})
    ranks = RankCounts()
    ranks.note(draft, Accepted((0,), (9,)))  # guessed, but not in the tree
    ranks.note(draft, Accepted((0,), (44,)))  # not guessed
    ranks.note(draft, Accepted((0, 2), (7, 1)))  # row 2 had no guesses
    ranks.note(draft, Accepted((0, 1, 3), (6, 8, 2)))
    assert len(ranks.counts) == 2 and all(len(depth) == KEPT_RANKS + 1 for depth in ranks.counts)
    assert ranks.counts[0][:3] == (1, 1, 1) and ranks.counts[0][-1] == 1 and ranks.counts[1][0] == 1
    ranks.clear()
    assert ranks.counts == ()


def test_an_engine_counts_every_check(make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(draft_nodes=12, draft_depth=3))
    generation = generate(engine, PROMPT, max_tokens=30)
    list(generation)
    first, *deeper = engine.ranks.counts
    assert sum(first) == generation.stats.steps
    assert all(sum(b) <= sum(a) for a, b in zip(engine.ranks.counts, deeper, strict=False)) and len(deeper) <= 2
    plain = Engine.load(make_checkpoint(name="plain"), make_plan())
    list(generate(plain, PROMPT, max_tokens=3))
    assert plain.ranks.counts == ()


def test_counts_correct_the_prior_as_they_grow() -> None:
    assert learned_ranks(PRIOR, ()) is PRIOR and learned_ranks(PRIOR, [[0] * 17]) is PRIOR
    few = learned_ranks(PRIOR, [[0, 10, *[0] * 15]])
    many = learned_ranks(PRIOR, [[0, 100_000, *[0] * 15]])
    assert PRIOR.probability(1, 0) > few.probability(1, 0) > 0.5 and many.probability(1, 0) < 0.01
    assert few.probability(1, 1) == pytest.approx((10 + PRIOR_WEIGHT * 0.2) / (10 + PRIOR_WEIGHT))
    assert many.probability(1, 1) > 0.99 and "100000 checks here" in many.by
    assert many.probability(1, 16) == 0
    assert tree_shape(many, 1, 0).ranks == (1,)  # what is learned shapes the tree


def test_statistics_shape_the_tree_and_never_the_text(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    folder, texts, shapes = make_checkpoint(), [], set()
    for statistics in (None, PRIOR, RankStatistics((0.1, 0.1, 0.1, 0.1), 1.0, "a test")):
        engine = Engine.load(folder, make_plan(draft_nodes=8), statistics=statistics)
        texts.append([token for result in generate(engine, PROMPT, max_tokens=20) for token in result.tokens])
        shapes.add(engine.tree)
    assert texts[0] == texts[1] == texts[2] and len(shapes) == 3
