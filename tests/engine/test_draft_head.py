"""The draft's shortlist: weighed in full it is ordered as the whole head orders it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine.draft_head import SHORTLIST
from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.planner.plan import Plan

pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")
PROMPT = np.random.default_rng(3).integers(0, 117, 40).tolist()


@pytest.mark.parametrize("tied", [True, False])
def test_guesses_are_the_shortlist_in_the_whole_heads_order(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan], tied: bool
) -> None:
    folder = make_checkpoint(tie_word_embeddings=tied, vocab_size=333)
    engine = Engine.load(folder, make_plan(draft_nodes=4))
    engine.prefill(PROMPT)
    found = engine._guess(PROMPT[:3], (-1, 0, 0), 16)
    hidden = engine._pass(PROMPT[:3], (-1, 0, 0), use_residual=False).copy()
    rough, whole = engine._logits(hidden, False).copy(), engine._logits(hidden).copy()
    assert found.shape == (3, 16) and found.dtype == np.int64
    for row in range(3):
        short = np.sort(np.argsort(-rough[row], kind="stable")[:SHORTLIST])
        expected = short[np.argsort(-whole[row, short], kind="stable")][:16]
        assert found[row].tolist() == expected.tolist()
    assert not np.array_equal(np.argsort(-rough, kind="stable")[:, :16], found)


def test_a_small_vocabulary_is_weighed_whole(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    engine = Engine.load(make_checkpoint(vocab_size=20), make_plan(draft_nodes=4))
    engine.prefill([1, 2, 3])
    found = engine._guess([3, 4], (-1, 0), 16)
    whole = engine._logits(engine._pass([3, 4], (-1, 0), use_residual=False)).copy()
    assert found.tolist() == np.argsort(-whole, kind="stable")[:, :16].tolist()
    assert sum(len(result.tokens) for result in generate(engine, [1, 2, 3], max_tokens=9)) == 9


@pytest.mark.parametrize("bad", [np.nan])
def test_what_is_not_a_number_is_refused(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan], bad: Any
) -> None:
    engine = Engine.load(make_checkpoint(vocab_size=333), make_plan(draft_nodes=4))
    hidden = np.ones((2, engine.spec.hidden_size), np.float32)
    hidden[1, 5] = bad
    logits = engine._logits(hidden, False)
    with pytest.raises(ValueError, match="NaN among the logits of row 1"):
        engine._draft_head.guesses(hidden, logits, 3)
