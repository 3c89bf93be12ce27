"""Drafts looked up in the text itself: what is found, what is counted, and that the text never shows them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine.allocations import allocated
from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.engine.lookup import Found, LookupCounts, TextLookup
from twofold.engine.sampling import SamplingParams
from twofold.kernels.naive import ops as naive
from twofold.planner.components import planned
from twofold.planner.lookup import PRIOR, PRIOR_WEIGHT, LookupChoice, class_of
from twofold.planner.plan import Plan

Make = Callable[..., Path]
MakePlan = Callable[..., Plan]
pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")
GREEDY, SAMPLED = SamplingParams(), SamplingParams(temperature=1.1, repetition_penalty=1.1, seed=4)
# a vocabulary so small that the text's end nearly always stood before
VOCAB = 11
PROMPT = [1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 7, 8, 1, 2, 3]
LOOKUP = {"lookup_nodes": 6, "lookup_least": 0.0}


def lookup(nodes: int = 4, least: float = 0.0, context: int = 64) -> TextLookup:
    return TextLookup(LookupChoice(nodes, least), np.empty(context, np.int32), naive)


def test_what_followed_is_found_and_goes_on_where_it_repeats() -> None:
    assert lookup().find([5, 6, 7, 8, 9, 5, 6]) == Found(2, (7, 8, 9, 5, 6))
    assert lookup(nodes=2).find([5, 6, 7, 8, 9, 5, 6]) == Found(2, (7, 8, 9))
    assert lookup().find([5, 6, 7]) is None and lookup().find([5]) is None
    assert lookup().find([3, 3]) == Found(1, (3, 3, 3, 3, 3)), "a run that goes on"
    assert lookup().find([1, 2, 3, 1, 2, 3]) == Found(3, (1, 2, 3, 1, 2))
    assert lookup(nodes=0).find([3, 3]) is None


def test_the_text_is_followed_through_every_change() -> None:
    draw, followed, text = random.Random(5), lookup(context=300), [3]
    for _ in range(400):
        if draw.random() < 0.3:
            kept = draw.randrange(1, len(text) + 1)
            followed.keep(kept)
            text = text[:kept]
        text = [*text, *(draw.randrange(VOCAB) for _ in range(draw.randrange(1, 6)))][:300]
        if draw.random() < 0.7:
            assert followed.find(text) == lookup(context=300).find(text)


def test_a_chain_needs_room_and_promise() -> None:
    found = Found(24, (7, 8, 9, 5, 6))
    draft = lookup().draft(6, found, room=10, tokens_wanted=1.0)
    assert draft is not None and draft.tokens == (6, 7, 8, 9, 5) and draft.parents == (-1, 0, 1, 2, 3)
    assert draft.guesses == {}
    short = lookup().draft(6, found, room=2, tokens_wanted=1.0)
    assert short is not None and short.tokens == (6, 7, 8)
    assert lookup().draft(6, found, room=0, tokens_wanted=1.0) is None
    assert lookup().draft(6, found, room=10, tokens_wanted=5.0) is None
    assert lookup(least=0.99).draft(6, found, room=10, tokens_wanted=1.0) is None


def test_counts_move_the_prior() -> None:
    counts, found = LookupCounts(), Found(4, (7, 8, 9))
    assert counts.probabilities == pytest.approx(PRIOR)
    counts.note(found, [7, 8, 1, 9])  # two came as found, behind 4 and 5 tokens; the one behind 6 did not
    assert counts.counts[class_of(4)] == (2, 2) and counts.counts[class_of(6)] == (1, 0)
    assert sum(tries for tries, _ in counts.counts) == 3
    weight = PRIOR_WEIGHT
    assert counts.probabilities[class_of(6)] == pytest.approx(weight * PRIOR[class_of(6)] / (weight + 1))
    alone = lookup()
    alone.note(found, [7, 8, 9], was_drafted=False)
    assert sum(tries for tries, _ in alone.counts.counts) == 1, "behind another draft only the first token counts"
    for _ in range(1000):
        counts.note(Found(24, (7,)), [1])
    assert counts.probabilities[-1] < 0.02
    assert lookup().draft(6, Found(1, (7, 8)), 9, 1.5) is None


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("knobs", [{}, {"draft_nodes": 3, "draft_depth": 3}], ids=["alone", "beside a chain"])
@pytest.mark.parametrize("model", [{}, {"model_type": "gemma3_text", "sliding_window": 6}], ids=["llama", "sliding"])
def test_the_text_never_shows_it(
    make_checkpoint: Make, make_plan: MakePlan, params: SamplingParams, knobs: dict[str, Any], model: dict[str, Any]
) -> None:
    gemma = {"layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 9, **model}
    folder = make_checkpoint(vocab_size=VOCAB, **(gemma if model else {}))
    expected, plain = _answer(Engine.load(folder, make_plan()), params)
    engine = Engine.load(folder, make_plan(**knobs, **LOOKUP))
    found, checks = _answer(engine, params)
    assert found == expected and checks <= plain
    assert sum(tries for tries, _ in engine.lookup.counts.counts) > 0
    engine.reset()
    assert _answer(engine, params)[0] == expected, "what was counted moves drafts, not text"


def _answer(engine: Engine, params: SamplingParams) -> tuple[list[int], int]:
    generation = generate(engine, PROMPT, params, max_tokens=60)
    return [token for result in generation for token in result.tokens], generation.stats.steps


def test_a_text_that_repeats_takes_fewer_checks(make_checkpoint: Make, make_plan: MakePlan) -> None:
    folder = make_checkpoint(vocab_size=VOCAB)
    plan = make_plan(context_tokens=512)
    plain = Engine.load(folder, plan)
    tokens = [token for one in generate(plain, PROMPT, max_tokens=400) for token in one.tokens]
    # greedy over eleven tokens runs into a circle
    assert len({tuple(tokens[i : i + 8]) for i in range(200, 392)}) < 100
    engine = Engine.load(folder, plan.model_copy(update=LOOKUP))
    generation = generate(engine, PROMPT, max_tokens=400)
    assert [token for one in generation for token in one.tokens] == tokens
    stats = generation.stats
    assert stats.steps < 250 and stats.accepted == stats.generated_tokens - stats.steps > 150


def test_a_context_that_fills(make_checkpoint: Make, make_plan: MakePlan) -> None:
    folder = make_checkpoint(vocab_size=VOCAB)
    for context in range(len(PROMPT) + 1, len(PROMPT) + 12):
        plan = make_plan(context_tokens=context)
        texts = []
        for one in (plan, plan.model_copy(update=LOOKUP)):
            engine = Engine.load(folder, one)
            generation = generate(engine, PROMPT)
            texts.append([token for result in generation for token in result.tokens])
            assert generation.stats.finish == "context" and len(engine.tokens) == context
        assert texts[0] == texts[1]


def test_turns_and_rollbacks(make_checkpoint: Make, make_plan: MakePlan) -> None:
    """Prefills that share a prefix, cuts, and a reset: each answer is what a fresh engine says."""
    folder, draw = make_checkpoint(vocab_size=VOCAB), random.Random(1)
    plain, engine = (Engine.load(folder, make_plan(**knobs)) for knobs in ({}, LOOKUP))
    text = list(PROMPT)
    for _ in range(25):
        for one in (plain, engine):
            one.prefill(text)
            while len(one.tokens) < len(text) + 5:
                one.step(SAMPLED)
            one.truncate(len(text) + 5)
        assert engine.tokens == plain.tokens
        text = engine.tokens[: draw.randrange(2, len(engine.tokens))] + [draw.randrange(VOCAB) for _ in range(3)]
        text = text[:100]
        if draw.random() < 0.2:
            engine.reset()


@pytest.mark.parametrize("nodes", [0, 1, 6, 60])
def test_its_memory_is_planned(make_checkpoint: Make, make_plan: MakePlan, nodes: int) -> None:
    engine = Engine.load(make_checkpoint(), make_plan(lookup_nodes=nodes))
    bytes_of = {name: term.bytes for name, term in planned(engine.spec, engine.plan).items()}
    reserved = allocated(engine)
    for name in ("pass_state", "kv_cache", "logits", "activations", "rope_tables"):
        assert bytes_of[name] == reserved[name], name
