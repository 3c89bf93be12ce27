"""Answers under every variant of the speed knobs, compared token for token and logit for logit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.engine.parity.variants import Variant
from twofold.engine.sampling import SamplingParams
from twofold.planner.plan import Plan
from twofold.profiles.errors import EngineFailed

MODES: Mapping[str, SamplingParams] = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=20),
}
Load = Callable[[Plan], Engine]
Share = Callable[[int, int], None]
"""(answers done, answers in all)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens, and for each a digest of the fp32 logits [vocab] that it was chosen from."""

    tokens: tuple[int, ...]
    logits: tuple[bytes, ...]
    checks: int


@dataclass(frozen=True, slots=True)
class Compared:
    """What a variant's answers showed: how many tokens were compared, and how many a check gave."""

    variant: Variant
    tokens: int
    tokens_per_check: float


Expected = dict[tuple[str, int], Answer]
"""(mode, prompt's index) → what every setting must answer."""


def compare(
    plan: Plan,
    variants: Sequence[Variant],
    prompts: Sequence[Sequence[int]],
    n_tokens: int,
    load: Load,
    on_share: Share = lambda *_: None,
    expected: Expected | None = None,
) -> Iterator[Compared]:
    """Answer `prompts` greedily and sampled under each variant; the first one is what the others must equal.

    Args:
        expected: answers of an earlier run, to which those of the first variant are added where they are missing.

    Raises:
        EngineFailed: at the first difference, naming where it is. ContextFull: the plan's context is too short.
    """
    expected = {} if expected is None else expected
    done, total = 0, len(variants) * len(MODES) * len(prompts)
    for variant in variants:
        engine = load(variant.plan(plan))
        n_compared = n_checks = 0
        try:
            for mode, params in MODES.items():
                for index, prompt in enumerate(prompts):
                    found = answer(engine, prompt, params, n_tokens)
                    _check(expected.setdefault((mode, index), found), found, f"{variant}; {mode}, prompt {index + 1}")
                    n_compared, n_checks, done = n_compared + len(found.tokens), n_checks + found.checks, done + 1
                    on_share(done, total)
        finally:
            engine.close()
        yield Compared(variant, n_compared, n_compared / n_checks)


def answer(engine: Engine, prompt: Sequence[int], params: SamplingParams, n_tokens: int) -> Answer:
    """The engine's answer to `prompt` from an empty cache, `n_tokens` long."""
    digests: dict[int, bytes] = {}

    def keep(position: int, logits: NDArray[np.float32]) -> None:
        digests[position] = hashlib.sha256(logits.tobytes()).digest()

    engine.reset()
    engine.on_logits = keep
    try:
        generation = generate(engine, prompt, params, max_tokens=n_tokens)
        tokens = tuple(token for result in generation for token in result.tokens)
    finally:
        engine.on_logits = None
    return Answer(tokens, tuple(digests[len(prompt) + i] for i in range(len(tokens))), generation.stats.steps)


def _check(expected: Answer, found: Answer, where: str) -> None:
    for at, (right, given) in enumerate(zip(expected.logits, found.logits, strict=False)):
        if right != given:
            tokens = (expected.tokens[at], found.tokens[at])
            what = "the text differs" if tokens[0] != tokens[1] else "the same token, but other logits"
            raise _difference(what, where, f"token {at + 1}: {tokens[1]}", f"{tokens[0]}")
    if expected.tokens != found.tokens:
        raise _difference("the text differs, and no logits do", where, str(found.tokens), str(expected.tokens))


def _difference(what: str, where: str, found: str, needed: str) -> EngineFailed:
    return EngineFailed(
        f"a speed knob changed the result ({where}): {what}",
        found=found,
        needed=needed,
        hint="this is a defect: report it with the output of twofold doctor",
    )
