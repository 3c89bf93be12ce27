"""twofold as a benchmark drives it: the engine alone, through the calls that a session makes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from versus.answers import Answer


class TwofoldSide:
    """A checkpoint under several plans (by name), which share the mapped weights and the threads."""

    def __init__(self, checkpoint: Path, plans: Mapping[str, str]) -> None:
        from twofold.engine.engine import Engine
        from twofold.planner.plan import Plan

        self._engines = {
            name: Engine.load(checkpoint, Plan.from_json(plan), kernels="cpu") for name, plan in plans.items()
        }

    def decode(self, plan: str, prompt: Sequence[int], n_tokens: int) -> Answer:
        """Answer greedily, stop tokens or not; the prompt's pass (all but its last token) is not timed."""
        from twofold.engine.generate import generate

        engine = self._engines[plan]
        engine.reset()
        engine.prefill(prompt)
        cpu, start = time.process_time(), time.perf_counter()
        generation = generate(engine, prompt, max_tokens=n_tokens)
        tokens = tuple(token for step in generation for token in step.tokens)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        return Answer(tokens, seconds, cpu_seconds, generation.stats.steps)

    def prefill(self, plan: str, tokens: Sequence[int]) -> float:
        """Seconds for `tokens` from an empty cache."""
        engine = self._engines[plan]
        engine.reset()
        start = time.perf_counter()
        engine.prefill([*tokens, tokens[-1]])  # the engine leaves a text's last token to its first step
        return time.perf_counter() - start

    def logits(self, plan: str, tokens: Sequence[int]) -> np.ndarray:
        """fp32 logits [len(tokens), vocab_size] of the verifier: integer products and its KV cache."""
        return self._engines[plan].forward_logits(tokens)

    def self_check(self, plan: str, tokens: Sequence[int]) -> dict[str, Any]:
        """Compare the kernels with numpy, bit for bit.

        Raises:
            EngineFailed: a bit differs.
        """
        from twofold.engine.bench.self_check import check_kernels

        engine = self._engines[plan]
        return check_kernels(engine.checkpoint, engine.backend.ops, tokens).to_json()

    def about(self) -> dict[str, Any]:
        """The tier and threads that run."""
        from twofold.kernels.cpu import native

        return {"isa": str(native().isa()), "threads": int(native().threads())}
