"""Answers that are interrupted at named points of a step, or by a signal at any time, and go on: always the same text.

Both kinds of layers: growing caches, and windows so short that they move again and again.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine import engine as engine_module
from twofold.engine.engine import Engine
from twofold.engine.sampling import SamplingParams
from twofold.planner.plan import Plan

Make = Callable[..., Path]
MakePlan = Callable[..., Plan]
pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")
SLIDING: dict[str, Any] = {
    "model_type": "gemma3_text",
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 6,
    "query_pre_attn_scalar": 9,
}
LOOKED_UP = {"lookup_nodes": 5, "lookup_least": 0.0}
DRAFTS = pytest.mark.parametrize("drafts", [{}, LOOKED_UP], ids=["tree", "looked up"])
MODELS = pytest.mark.parametrize("model", [{}, SLIDING], ids=["growing", "sliding"])
SAMPLED = SamplingParams(temperature=1.1, repetition_penalty=1.1, seed=4)
VOCAB = 40
"""So few that branches of a tree are accepted now and then."""
START = np.random.default_rng(3).integers(0, VOCAB, 30).tolist()
LENGTH = 54
DEPTH = 3


class Points:
    """Calls `at(point)` where a step passes one: before and behind draft levels, passes, choosing and committing."""

    def __init__(self, engine: Engine, at: Callable[[str], None]) -> None:
        self.at, self._level = at, 0
        cache = engine._cache
        run, guesses, commit, make_room = engine._play, engine._draft_head.guesses, cache.commit, cache.make_room

        def passed(makers: Any, tokens: Any, parents: Any, use_residual: bool) -> Any:
            if use_residual:
                self._level, what = 0, "a chunk" if self.in_prompt else "the verify pass"
            else:
                self._level += 1
                what = f"draft level {self._level}"
            self.at(f"before {what}")
            tape = run(makers, tokens, parents, use_residual)
            self.at(f"behind {what}")
            return tape

        def guessed(hidden: Any, logits: Any, k: int) -> Any:
            self.at("before the guesses")
            return guesses(hidden, logits, k)

        def committed(path: Any) -> None:
            self.at("before the commit")
            commit(path)
            self.at("behind the commit")

        def moved(rows: int) -> None:
            before = cache.length, [state.first_position for state in cache.layers]
            make_room(rows)
            if [state.first_position for state in cache.layers] != before[1]:
                self.at("behind a move of windows")

        self.in_prompt = False
        engine._play, engine._draft_head.guesses = passed, guessed  # type: ignore[method-assign]
        cache.commit, cache.make_room = committed, moved  # type: ignore[method-assign]
        for index, state in enumerate(cache.layers):
            self._watch_layer(index, state)

    def _watch_layer(self, index: int, state: Any) -> None:
        move, commit = state.move_window, state.commit

        def moving(length: int) -> None:
            self.at("before a window moves")
            move(length)

        def committing(length: int, path: Any) -> None:
            self.at(f"in the commit, before layer {index}")
            commit(length, path)

        state.move_window, state.commit = moving, committing


@pytest.fixture
def engines(make_checkpoint: Make, make_plan: MakePlan) -> Callable[..., tuple[Engine, list[int]]]:
    """`engines(model)`: an engine that drafts (a tree, unless told otherwise), and the text of one that does not."""

    def make(model: dict[str, Any], kernels: Any = "auto", **drafts: Any) -> tuple[Engine, list[int]]:
        folder = make_checkpoint(vocab_size=VOCAB, **model)
        plain = Engine.load(folder, make_plan())
        plain.prefill(START)
        while len(plain.tokens) < LENGTH:
            plain.step(SAMPLED)
        plan = make_plan(**(drafts or {"draft_nodes": 7, "draft_depth": DEPTH}), prefill_chunk=8)
        return Engine.load(folder, plan, kernels=kernels), plain.tokens[:LENGTH]

    return make


def finish(engine: Engine, length: int = LENGTH) -> list[int]:
    """The rest of the text."""
    while len(engine.tokens) < length:
        engine.step(SAMPLED)
    return engine.tokens[:length]


POINTS = (
    *(f"{where} draft level {level}" for level in range(1, DEPTH + 1) for where in ("before", "behind")),
    "before the verify pass",
    "behind the verify pass",
    "before the guesses",
    "between verifying and choosing",
    "before the commit",
    "in the commit, before layer 0",
    "in the commit, before layer 1",
    "behind the commit",
    "before a window moves",
    "behind a move of windows",
)
ONLY_SLIDING = POINTS[-2:]


@MODELS
def test_every_point_of_a_step(
    engines: Callable[..., tuple[Engine, list[int]]], model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, expected = engines(model)
    wanted: list[str] = []
    met: dict[str, int] = {}

    def at(point: str) -> None:
        if wanted == [point]:
            wanted.clear()
            met[point] = met.get(point, 0) + 1
            raise KeyboardInterrupt

    points = Points(engine, at)
    accept = engine_module.accept

    def accepting(*arguments: Any) -> Any:
        points.at("between verifying and choosing")
        return accept(*arguments)

    monkeypatch.setattr(engine_module, "accept", accepting)
    for point in POINTS:
        for before in (0, 1, 2, 4, 6):
            engine.reset()
            engine.prefill(START)
            for _ in range(before):
                engine.step(SAMPLED)
            wanted[:] = [point]
            try:
                finish(engine)
            except KeyboardInterrupt:
                text = engine.tokens[:LENGTH]
                assert text == expected[: len(text)] and engine.cached_tokens < len(engine.tokens), point
            wanted.clear()
            assert finish(engine) == expected, (point, before)
    missed = set(POINTS) - set(met)
    assert missed == (set() if model else set(ONLY_SLIDING))


@MODELS
def test_every_point_of_a_prompt(engines: Callable[..., tuple[Engine, list[int]]], model: dict[str, Any]) -> None:
    engine, expected = engines(model)
    count = [0, 0]

    def at(point: str) -> None:
        count[0] += 1
        if count[0] == count[1]:
            raise KeyboardInterrupt

    points = Points(engine, at)
    points.in_prompt = True
    kept = []
    for number in range(1, 100):
        engine.reset()
        engine.prefill([*START[:11], 1, 2, 3])  # partly another text, which is taken back
        count[:] = [0, number]
        try:
            engine.prefill(START)
        except KeyboardInterrupt:
            kept.append(engine.cached_tokens)
            engine.prefill(START)
        else:
            break
        count[1] = 0
        assert finish(engine) == expected, number
    assert number > 8 and len(set(kept)) > 2


@MODELS
@DRAFTS
@pytest.mark.parametrize("seed", range(3))
def test_interrupts_again_and_again(
    engines: Callable[..., tuple[Engine, list[int]]], model: dict[str, Any], drafts: dict[str, Any], seed: int
) -> None:
    """Every second step is torn at some point, as is what takes its place."""
    engine, expected = engines(model, **drafts)
    draw = random.Random(seed)
    torn = 0

    def at(point: str) -> None:
        nonlocal torn
        if draw.random() < 0.06:
            torn += 1
            raise KeyboardInterrupt

    Points(engine, at)
    for _ in range(6):
        engine.reset()
        text = START
        while len(text) < LENGTH:
            try:
                engine.prefill(text)
                engine.step(SAMPLED)
            except KeyboardInterrupt:
                if draw.random() < 0.5 and engine.tokens[: len(text)] == text:
                    continue_with = engine.tokens
                    assert continue_with == expected[: len(continue_with)] or len(continue_with) > LENGTH
            if engine.tokens[: len(text)] == text:
                text = list(engine.tokens)
        assert text[:LENGTH] == expected
    assert torn > 20


@contextmanager
def alarms(seconds: float) -> Iterator[None]:
    """KeyboardInterrupt from a signal, once after `seconds`, wherever the program is then."""

    def raise_interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
@pytest.mark.parametrize("kernels", ["auto", "naive"])
@MODELS
@DRAFTS
def test_a_signal_at_any_time(
    engines: Callable[..., tuple[Engine, list[int]]], model: dict[str, Any], drafts: dict[str, Any], kernels: str
) -> None:
    """Also in the middle of an operation, which points and lines do not reach."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")
    engine, expected = engines(model, kernels, **drafts)
    fast = engine.backend.name == "cpu"
    draw, length = random.Random(1), LENGTH if fast else len(START) + 5
    for _ in range(25 if fast else 6):
        engine.reset()
        try:
            with alarms(draw.uniform(1e-4, 8e-3 if fast else 0.8)):
                engine.prefill(START)
                finish(engine, length)
        except KeyboardInterrupt:
            text = engine.tokens[:length]
            assert text == expected[: len(text)]
        engine.prefill(engine.tokens or START)
        if len(engine.tokens) < len(START):
            engine.prefill(START)
        assert finish(engine, length) == expected[:length]
