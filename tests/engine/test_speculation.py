"""Speculation under fire: interruptions at any line of a step, a context that ends inside a tree, stop texts across
accepted tokens; and sampled text that follows the verifier's distribution whatever the tree.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import pytest

from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.engine.sampling import SamplingParams
from twofold.planner.plan import Plan

Make = Callable[..., Path]
MakePlan = Callable[..., Plan]
pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")
SAMPLED = SamplingParams(temperature=1.1, repetition_penalty=1.1, seed=4)
SLIDING: dict[str, Any] = {
    "model_type": "gemma3_text",
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 5,
    "query_pre_attn_scalar": 9,
}
"""Its window and the chunks below are so short that it moves in every step."""
MODELS = pytest.mark.parametrize("model", [{}, SLIDING], ids=["growing", "sliding"])
WATCHED = ("engine", "draft", "draft_head", "accept", "kv_cache", "rank_counts", "generate", "replay", "native_replay")


def prompt(length: int, vocab: int = 117) -> list[int]:
    return np.random.default_rng(3).integers(0, vocab, length).tolist()


class InterruptAt:
    """Raises KeyboardInterrupt before the n-th line that runs in the engine's own files; `seen` counts them."""

    def __init__(self, n: int | None) -> None:
        self.n, self.seen = n, 0

    def __enter__(self) -> Self:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        return self._line if path.stem in WATCHED and path.parent.name == "engine" else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.seen += 1
            if self.seen == self.n:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


@MODELS
def test_an_interrupt_at_any_line_of_a_step_costs_nothing_but_that_step(
    make_checkpoint: Make, make_plan: MakePlan, model: dict[str, Any]
) -> None:
    folder, start = make_checkpoint(**model), prompt(20)
    plain = Engine.load(folder, make_plan())
    expected = [token for result in generate(plain, start, SAMPLED, max_tokens=16) for token in result.tokens]
    engine = Engine.load(folder, make_plan(draft_nodes=9, draft_depth=3, prefill_chunk=8 if model else 32))

    def one_step(n: int | None) -> InterruptAt:
        engine.reset()
        engine.prefill(start)
        with InterruptAt(n) as watch:
            engine.step(SAMPLED)
        return watch

    one_step(None)
    lines = one_step(None).seen
    assert lines > 100
    for n in range(1, lines + 1, max(1, lines // 80)):
        with pytest.raises(KeyboardInterrupt):
            one_step(n)
        text = engine.tokens
        assert text[:20] == start and text[20:] == expected[: len(text) - 20], f"line {n}"
        assert engine.cached_tokens < len(text)
        while len(engine.tokens) < 20 + 8:
            engine.step(SAMPLED)
        assert engine.tokens[20:28] == expected[:8], f"line {n}"


@MODELS
def test_an_interrupt_at_any_line_of_the_prompt_keeps_finished_chunks(
    make_checkpoint: Make, make_plan: MakePlan, model: dict[str, Any]
) -> None:
    folder, start = make_checkpoint(**model), prompt(40)
    plain = Engine.load(folder, make_plan(prefill_chunk=64))
    expected = [token for result in generate(plain, start, SAMPLED, max_tokens=8) for token in result.tokens]
    engine = Engine.load(folder, make_plan(draft_nodes=9, draft_depth=3, prefill_chunk=8))

    def read_prompt(n: int | None) -> InterruptAt:
        engine.prefill([*start[:10], 1, 2])  # its end is taken back
        with InterruptAt(n) as watch:
            engine.prefill(start)
        return watch

    read_prompt(None)
    lines = read_prompt(None).seen
    kept = set()
    for n in range(1, lines + 1, max(1, lines // 60)):
        with pytest.raises(KeyboardInterrupt):
            read_prompt(n)
        kept.add(engine.cached_tokens)
        if n % 2:  # what goes on may be the same call, or the next step of whatever the text is now
            engine.prefill(start)
        if engine.tokens == start:
            while len(engine.tokens) < 40 + 8:
                engine.step(SAMPLED)
            assert engine.tokens[40:48] == expected, f"line {n}"
    assert len(kept) > 3


@MODELS
def test_an_interrupted_generation_keeps_what_it_yielded(
    make_checkpoint: Make, make_plan: MakePlan, model: dict[str, Any]
) -> None:
    folder, start = make_checkpoint(**model), prompt(20)
    engine = Engine.load(folder, make_plan(draft_nodes=9, draft_depth=3, prefill_chunk=8 if model else 32))
    expected = [token for result in generate(engine, start, SAMPLED, max_tokens=30) for token in result.tokens]
    engine.reset()
    with InterruptAt(None) as watch:
        list(generate(engine, start, SAMPLED, max_tokens=30))
    for n in range(1, watch.seen, max(1, watch.seen // 25)):
        engine.reset()
        yielded: list[int] = []
        with pytest.raises(KeyboardInterrupt), InterruptAt(n):
            for result in generate(engine, start, SAMPLED, max_tokens=30):
                yielded.extend(result.tokens)
        assert engine.tokens in ([], start) or engine.tokens == start + expected[: len(engine.tokens) - 20]
        assert yielded == expected[: len(yielded)] and len(engine.tokens) <= 20 + len(yielded) + 4
        rest = generate(engine, start + yielded, SAMPLED, max_tokens=30 - len(yielded))
        assert yielded + [token for result in rest for token in result.tokens] == expected


@pytest.mark.parametrize("context", [21, 22, 25, 33])
@pytest.mark.parametrize("shape", [(4, 4), (12, 3), (30, 6)])
@MODELS
def test_nothing_is_drafted_beyond_the_context(
    make_checkpoint: Make, make_plan: MakePlan, model: dict[str, Any], context: int, shape: tuple[int, int]
) -> None:
    folder, start = make_checkpoint(**model), prompt(20)
    plain = Engine.load(folder, make_plan(context_tokens=context))
    expected = [token for result in generate(plain, start) for token in result.tokens]
    assert len(expected) == context - 20
    plan = make_plan(context_tokens=context, draft_nodes=shape[0], draft_depth=shape[1], prefill_chunk=8)
    engine = Engine.load(folder, plan)
    highest: list[int] = []
    run = engine._play

    def watched(makers: Any, tokens: Sequence[int], parents: Sequence[int], use_residual: bool) -> Any:
        tape = run(makers, tokens, parents, use_residual)
        highest.append(int(engine._state.positions.max()))
        return tape

    engine._play = watched  # type: ignore[method-assign]
    results = list(generate(engine, start))
    assert [token for result in results for token in result.tokens] == expected
    assert results[-1].finish == "context" and max(highest) < context


def test_a_stop_token_inside_a_tree(make_checkpoint: Make, make_plan: MakePlan) -> None:
    folder, start = make_checkpoint(), prompt(20)
    plain = Engine.load(folder, make_plan())
    text = [token for result in generate(plain, start, max_tokens=40) for token in result.tokens]
    engine = Engine.load(folder, make_plan(draft_nodes=16, draft_depth=4))
    for stop in sorted(set(text)):
        results = list(generate(engine, start, stop_tokens=[stop], max_tokens=40))
        at = text.index(stop)
        assert [token for result in results for token in result.tokens] == text[:at]
        assert results[-1].finish == "stop" and engine.tokens == start + text[: at + 1]
        assert engine.cached_tokens < len(engine.tokens)


def quantile_999(degrees: int) -> float:
    """The 99.9 % quantile of chi-square (Wilson and Hilferty's cube)."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + 3.0902 * spread**0.5) ** 3)


def chi_square(found: Counter[Any], expected: dict[Any, float], n: int) -> tuple[float, int]:
    """The statistic and its degrees of freedom; what is expected fewer than 5 times counts together."""
    rare = [key for key, p in expected.items() if n * p < 5]
    cells = [(found[key], n * p) for key, p in expected.items() if n * p >= 5]
    cells.append((sum(found[key] for key in rare), n * sum(expected[key] for key in rare)))
    cells = [cell for cell in cells if cell[1] > 0]
    return sum((count - mean) ** 2 / mean for count, mean in cells), len(cells) - 1


@pytest.mark.parametrize("shape", [(3, 3), (8, 2), (14, 3)], ids=["chain", "flat", "tree"])
def test_sampled_text_has_the_verifiers_distribution(
    make_checkpoint: Make, make_plan: MakePlan, shape: tuple[int, int]
) -> None:
    vocab, n, temperature = 11, 600, 0.8
    folder, start = make_checkpoint(vocab_size=vocab), prompt(12, vocab)
    engine = Engine.load(folder, make_plan(draft_nodes=shape[0], draft_depth=shape[1]))

    def probabilities(after: list[int]) -> np.ndarray:
        logits = engine.forward_logits([*start, *after])[-1].astype(np.float64) / temperature
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    first, second = probabilities([]), [probabilities([token]) for token in range(vocab)]
    expected = {(a, b): float(first[a] * second[a][b]) for a, b in product(range(vocab), repeat=2)}
    found: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for seed in range(1000 * shape[0], 1000 * shape[0] + n):
        generation = generate(engine, start, SamplingParams(temperature=temperature, seed=seed), max_tokens=2)
        found[tuple(token for result in generation for token in result.tokens)] += 1
        accepted += generation.stats.accepted
    statistic, degrees = chi_square(found, expected, n)
    assert degrees >= 10 and accepted > n / 10
    assert statistic < quantile_999(degrees), (statistic, degrees)


def test_the_chi_square_test_can_fail() -> None:
    rng = np.random.default_rng(0)
    expected = {i: 1 / 20 for i in range(20)}
    even = Counter(rng.integers(0, 20, 600).tolist())
    drafts_first = Counter(np.minimum(rng.integers(0, 22, 600), 19).tolist())
    good, degrees = chi_square(even, expected, 600)
    assert degrees == 19 and quantile_999(19) == pytest.approx(43.82, rel=0.005)
    assert good < quantile_999(19) < chi_square(drafts_first, expected, 600)[0]
