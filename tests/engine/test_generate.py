"""Generation: reasons to finish, what the engine's text is afterwards, and the statistics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from twofold.engine.accept import accept
from twofold.engine.draft import Draft
from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.engine.sampling import SamplingParams
from twofold.planner.plan import Plan
from twofold.profiles.errors import ContextFull, InvalidOption

PROMPT = np.random.default_rng(3).integers(0, 117, 30).tolist()
pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")


@pytest.fixture(params=[0, 5], ids=["plain", "chain"])
def engine(
    request: pytest.FixtureRequest, make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> Engine:
    return Engine.load(make_checkpoint(), make_plan(draft_nodes=request.param))


def plain_text(engine: Engine, n: int) -> list[int]:
    engine.prefill(PROMPT)
    while len(engine.tokens) < len(PROMPT) + n:
        engine.step()
    found = engine.tokens[len(PROMPT) : len(PROMPT) + n]
    engine.reset()
    return found


def test_a_limit_cuts_inside_a_step(engine: Engine) -> None:
    expected = plain_text(engine, 40)
    for limit in (1, 2, 7, 40):
        generation = generate(engine, PROMPT, max_tokens=limit)
        results = list(generation)
        assert [t for result in results for t in result.tokens] == expected[:limit]
        assert engine.tokens == PROMPT + expected[:limit] and engine.cached_tokens <= len(engine.tokens) - 1
        assert [result.finish for result in results] == [None] * (len(results) - 1) + ["length"]
        assert generation.stats.finish == "length" and generation.stats.generated_tokens == limit


def test_a_stop_token_ends_the_text_wherever_it_is(engine: Engine) -> None:
    expected = plain_text(engine, 40)
    for stop in dict.fromkeys(expected):
        at = expected.index(stop)
        generation = generate(engine, PROMPT, stop_tokens={stop, 116}, max_tokens=60)
        results = list(generation)
        assert [t for result in results for t in result.tokens] == expected[:at]
        assert (results[-1].finish, results[-1].stop_token) == ("stop", stop)
        assert engine.tokens == PROMPT + expected[: at + 1]
        assert generation.stats.generated_tokens == at + 1


def test_the_text_goes_on_as_if_never_cut(engine: Engine) -> None:
    expected = plain_text(engine, 30)
    list(generate(engine, PROMPT, max_tokens=11))
    again = [t for r in generate(engine, PROMPT + expected[:11], max_tokens=19) for t in r.tokens]
    assert again == expected[11:]


def test_no_tokens_wanted(engine: Engine) -> None:
    generation = generate(engine, PROMPT, max_tokens=0)
    (result,) = generation
    assert (result.tokens, result.finish) == ((), "length")
    assert engine.cached_tokens == len(PROMPT) - 1 and generation.stats.tokens_per_check is None
    with pytest.raises(InvalidOption, match="not valid"):
        generate(engine, PROMPT, max_tokens=-1)


def test_a_prompt_as_long_as_the_context(engine: Engine) -> None:
    results = list(generate(engine, [1] * 128))
    assert [(result.tokens, result.finish) for result in results] == [((), "context")]
    with pytest.raises(ContextFull):
        next(generate(engine, [1] * 129))


def test_stopping_to_iterate_keeps_what_was_yielded(engine: Engine) -> None:
    generation = generate(engine, PROMPT)
    found: list[int] = []
    for result in generation:
        found += result.tokens
        if len(found) >= 6:
            break
    assert engine.tokens == PROMPT + found


def test_statistics_add_up(engine: Engine) -> None:
    seen: list[tuple[int, int]] = []
    generation = generate(engine, PROMPT, max_tokens=20, on_progress=lambda *step: seen.append(step))
    results = list(generation)
    stats = generation.stats
    assert stats.finish == results[-1].finish == "length" and stats.steps == len(results)
    assert (stats.prompt_tokens, stats.reused_tokens, seen[-1]) == (30, 0, (29, 29))
    assert stats.drafted == stats.steps * engine.n_draft and 0 <= stats.accepted <= stats.drafted
    assert stats.first_token_seconds >= stats.prefill_seconds > 0
    assert stats.decode_seconds == pytest.approx(sum(result.seconds for result in results))
    assert stats.decode_tokens_per_second == pytest.approx(20 / stats.decode_seconds)
    assert stats.prefill_tokens_per_second == pytest.approx(29 / stats.prefill_seconds)
    again = generate(engine, PROMPT, max_tokens=1)
    list(again)
    assert again.stats.reused_tokens == 29 and again.stats.prefill_tokens_per_second is None


def test_the_same_seed_gives_the_same_text_and_another_seed_another(engine: Engine) -> None:
    def run(seed: int) -> list[int]:
        params = SamplingParams(temperature=1.5, seed=seed)
        return [t for r in generate(engine, PROMPT, params, max_tokens=20) for t in r.tokens]

    assert run(1) == run(1) != run(2)


def test_accept_walks_any_tree() -> None:
    #        0:10 ─ 1:11 ─ 3:13 ─ 5:15
    #             └ 2:12 ─ 4:14
    draft = Draft((10, 11, 12, 13, 14, 15), (-1, 0, 0, 1, 2, 3), {})

    def verifier(text: list[int]) -> Callable[[int, list[int]], int]:
        def choose_at(row: int, emitted: list[int]) -> int:
            assert emitted == text[: len(emitted)]
            assert row == 0 or draft.tokens[row] == emitted[-1]
            return text[len(emitted)]

        return choose_at

    for text, path in (
        ([99, 0], (0,)),
        ([12, 14, 77], (0, 2, 4)),
        ([11, 13, 15, 5], (0, 1, 3, 5)),
        ([12, 13, 0], (0, 2)),
    ):
        found = accept(draft, verifier(text))
        assert found.path == path and found.tokens == tuple(text[: len(path)])
