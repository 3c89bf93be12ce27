"""Generating an answer: prefill, then steps until a stop token, a limit, or the end of the context."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from twofold.engine.engine import Engine, Finish, Progress, StepResult
from twofold.engine.sampling import SamplingParams
from twofold.profiles.errors import InvalidOption


@dataclass(slots=True)
class GenerationStats:
    """What a generation took. A stop token counts as generated; the first token's time includes the prefill."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_seconds: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    generated_tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    finish: Finish | None = None

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens per second over all steps; None before the first."""
        return self.generated_tokens / self.decode_seconds if self.decode_seconds > 0 else None

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Newly computed prompt tokens per second; None where nothing was computed."""
        computed = self.prompt_tokens - 1 - self.reused_tokens
        return computed / self.prefill_seconds if computed > 0 and self.prefill_seconds > 0 else None

    @property
    def tokens_per_check(self) -> float | None:
        """Tokens per verify pass; None before the first."""
        return self.generated_tokens / self.steps if self.steps else None


class Generation(Iterator[StepResult]):
    """Iterate for step results; `stats` grows along. The last result carries the finish reason.

    Stop tokens are not among a result's tokens, but the engine's text keeps the one that stopped it (and nothing behind
    it), as chat templates expect. Stopping to iterate, or an interruption between or in steps, leaves the engine
    consistent: its text is then the prompt and everything that was yielded (and what was about to be, where the
    interruption came just then).
    """

    def __init__(
        self,
        engine: Engine,
        prompt_tokens: Sequence[int],
        params: SamplingParams,
        stop_tokens: Collection[int],
        max_tokens: int | None,
        on_progress: Progress | None,
    ) -> None:
        if max_tokens is not None and max_tokens < 0:
            raise InvalidOption("the number of tokens is not valid", found=str(max_tokens), needed="0 or more")
        self.stats = GenerationStats(prompt_tokens=len(prompt_tokens))
        self._engine, self._prompt, self._params = engine, prompt_tokens, params
        self._stop, self._limit, self._on_progress = frozenset(stop_tokens), max_tokens, on_progress
        self._last_start = len(prompt_tokens)
        self._last: StepResult | None = None
        self._steps: Generator[StepResult] = self._run()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StepResult:
        return next(self._steps)

    def end_at(self, n_tokens: int) -> None:
        """End the answer behind the first `n_tokens` of the last result, where whoever reads it found its end.

        Text, cache and counts are then what they would be had the step given no more, whatever was drafted.
        """
        last = self._last
        if last is None or not 0 <= n_tokens <= len(last.tokens):
            raise ValueError(f"the last result has no {n_tokens} tokens to end at")
        self._steps.close()
        self._engine.truncate(self._last_start + n_tokens)
        self.stats.generated_tokens -= len(last.tokens) - n_tokens + (last.stop_token is not None)
        self.stats.finish = "stop"

    def _run(self) -> Generator[StepResult]:
        stats, engine = self.stats, self._engine
        start = time.perf_counter()
        stats.reused_tokens = engine.prefill(self._prompt, self._on_progress)
        stats.prefill_seconds = time.perf_counter() - start
        while True:
            finish = self._before_step()
            if finish is not None:
                stats.finish = finish
                yield StepResult((), 0, 0, 0.0, finish)
                return
            length = len(engine.tokens)
            try:
                result = self._cut(engine.step(self._params), length)
                self._count(result, start)
            except BaseException:
                engine.truncate(min(length, len(engine.tokens)))
                raise
            self._last_start, self._last = length, result
            yield result
            if result.finish is not None:
                return

    def _before_step(self) -> Finish | None:
        if self._limit == 0:
            return "length"
        return "context" if self._engine.room <= 0 else None

    def _cut(self, result: StepResult, length: int) -> StepResult:
        """End the step's tokens at a stop token or the limit, in the engine's text as well."""
        limit = None if self._limit is None else self._limit - self.stats.generated_tokens
        tokens = result.tokens[:limit]
        stop_at = next((i for i, token in enumerate(tokens) if token in self._stop), None)
        if stop_at is not None:
            self._engine.truncate(length + stop_at + 1)
            return replace(result, tokens=tokens[:stop_at], finish="stop", stop_token=tokens[stop_at])
        if limit is not None and len(result.tokens) >= limit:
            self._engine.truncate(length + limit)
            return replace(result, tokens=tokens, finish="length")
        return replace(result, finish="context") if self._engine.room <= 0 else result

    def _count(self, result: StepResult, start: float) -> None:
        stats = self.stats
        if stats.steps == 0:
            stats.first_token_seconds = time.perf_counter() - start
        stats.steps += 1
        stats.generated_tokens += len(result.tokens) + (result.stop_token is not None)
        stats.decode_seconds += result.seconds
        stats.drafted += result.drafted
        stats.accepted += result.accepted
        stats.finish = result.finish


def generate(
    engine: Engine,
    prompt_tokens: Sequence[int],
    params: SamplingParams | None = None,
    *,
    stop_tokens: Collection[int] = (),
    max_tokens: int | None = None,
    on_progress: Progress | None = None,
) -> Generation:
    """Answer a prompt; the last result says how it ended (`Finish`).

    Raises (while iterating):
        ContextFull: the prompt does not fit. EngineFailed: logits that are not finite.
    Raises (at once):
        InvalidOption: a negative `max_tokens`.
    """
    return Generation(engine, prompt_tokens, params or SamplingParams(), stop_tokens, max_tokens, on_progress)
