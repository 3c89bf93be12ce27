"""What a step takes beside its products: looking for each row's largest logit, and around its tape the interpreter,
accepting and committing; measured in the engine's own steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from twofold.engine.bench.parts import Clock
from twofold.engine.checkpoint import Checkpoint
from twofold.engine.engine import Engine
from twofold.planner.plan import Plan
from twofold.planner.timed import names

STEPS = 24
TEXT_TOKENS = 48
CHOICES = 8
"""Rows whose choices are timed at once, as a pass makes them."""
Timed = tuple[tuple[str, str, int, int], float]
"""((operation, shape, bits, rows), seconds)."""


class _Playing:
    """Seconds that an engine's tapes took since the last look."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._seconds = clock, 0.0

    def wrap(self, play: Callable[..., None]) -> Callable[..., None]:
        def timed(tape: object) -> None:
            before = self._clock()
            play(tape)
            self._seconds += self._clock() - before

        return timed

    def take(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds


@contextmanager
def _watched(engine: Engine, clock: Clock) -> Iterator[_Playing]:
    playing, player = _Playing(clock), engine.player
    setattr(player, "play", playing.wrap(player.play))  # noqa: B010  (an instance's own, over its class's)
    try:
        yield playing
    finally:
        delattr(player, "play")


def time_beside(
    checkpoint: Checkpoint, plan: Plan, draft_rows: Sequence[int], clock: Clock = time.thread_time
) -> list[Timed]:
    """Samples of `STEP`, `GUESS` by rows, and `CHOOSE`, behind a short text."""
    widest, context = max(draft_rows), min(plan.context_tokens, 256)
    changes = {"context_tokens": context, "prefill_chunk": min(widest + 1, context)}
    engine = Engine.of(checkpoint, plan.with_drafts(0, 0).model_copy(update=changes), kernels="cpu")
    vocabulary, found = engine.spec.vocab_size, []
    tokens = [1 + 7 * i % (vocabulary - 1) for i in range(min(TEXT_TOKENS, context // 2))]
    try:
        with _watched(engine, clock) as playing:
            engine.prefill(tokens)
            shape = str(vocabulary)
            for i in range(min(STEPS, context - len(tokens) - widest - 1)):
                playing.take()
                seconds = _seconds(partial(engine.step), clock) - playing.take()
                if i:
                    found.append(((names.STEP, names.FIXED, names.FLOAT_BITS, 1), seconds))
            for rows in [one for one in draft_rows if one <= widest] * (STEPS // 4):
                playing.take()
                seconds = _seconds(partial(engine.dry_draft, tokens[:rows]), clock) - playing.take()
                found.append(((names.GUESS, shape, names.BASE_BITS, rows), seconds))
            logits = np.repeat(engine.dry_pass(tokens[:1]), CHOICES, axis=0)
            for _ in range(STEPS):
                seconds = _seconds(partial(engine.backend.ops.argmax, logits), clock) / CHOICES
                found.append(((names.CHOOSE, shape, names.FLOAT_BITS, 1), seconds))
    finally:
        engine.close()
    return found


def _seconds(run: Callable[[], object], clock: Clock) -> float:
    before = clock()
    run()
    return clock() - before
