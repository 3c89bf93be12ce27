"""Tokens per second of whole answers, and of prompts: each draft setting answers the same prompts in turn.

Greedy, without stop tokens, so that every answer has the same length. The text of a setting with drafts must be the
plain text; where it is not, no speed is reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from twofold.engine.bench.prompts import KINDS, BenchTexts, Kind
from twofold.engine.bench.rounds import Rule, Share, interleave
from twofold.engine.engine import Engine
from twofold.engine.generate import generate
from twofold.profiles.errors import EngineFailed
from twofold.profiles.figures import Figure, measured
from twofold.profiles.series import Series, iqr

WARM_TOKENS = 8
WARM_PROMPT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its tokens, and the verify passes and accepted nodes that it took."""

    tokens: tuple[int, ...]
    checks: int
    accepted: int


@dataclass(slots=True)
class Setting:
    """A draft setting under test, with what its engine answered, by prompt."""

    name: str
    engine: Engine
    answers: dict[tuple[Kind, int], Answer] = field(default_factory=dict)

    @property
    def drafts(self) -> str:
        tree, looked_up = self.engine.tree, self.engine.plan.lookup_nodes
        words = [f"up to {looked_up} tokens looked up in the text"] if looked_up else []
        if tree.nodes and tree.depth == tree.nodes:
            words.append(f"a chain of {tree.nodes} drafted tokens")
        elif tree.nodes:
            words.append(f"a tree of {tree.nodes} drafted tokens, {tree.depth} deep")
        return " or ".join(words) or "no drafts"


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second by kind of text, and over all of it in equal parts."""

    kinds: Mapping[Kind, Series]

    @property
    def both(self) -> Series:
        """Per round: the tokens of every kind over the time of every kind."""
        rounds = zip(*(series.samples for series in self.kinds.values()), strict=True)
        samples = tuple(statistics.harmonic_mean(round_) for round_ in rounds)
        return Series(samples, next(iter(self.kinds.values())).ended_by)


def time_decoding(
    settings: Sequence[Setting],
    texts: Mapping[Kind, BenchTexts],
    n_tokens: int,
    rule: Rule,
    on_share: Share = lambda _: None,
) -> dict[str, Speed]:
    """Decode speed of each setting (by its name); the first is the plain one that the others must agree with.

    Raises:
        EngineFailed: the texts differ.
    """
    for setting in settings:
        for kind in KINDS:
            _generate(setting.engine, texts[kind].chats[0], WARM_TOKENS)
    samplers = {
        (setting.name, kind): partial(_answer, setting, kind, texts[kind].chats, n_tokens)
        for setting in settings
        for kind in KINDS
    }
    series = interleave(samplers, rule, on_share)
    plain, *others = settings
    for setting in others:
        check_same_text(plain, setting)
    return {setting.name: Speed({kind: series[setting.name, kind] for kind in KINDS}) for setting in settings}


def time_prefill(
    engine: Engine, texts: Mapping[Kind, BenchTexts], n_tokens: int, rule: Rule, on_share: Share = lambda _: None
) -> Speed:
    """Speed of computing a prompt of `n_tokens` from an empty cache."""
    samplers = {kind: partial(_prefill, engine, texts[kind].long[: n_tokens + 1]) for kind in KINDS}
    for kind in KINDS:
        _prefill(engine, texts[kind].long[:WARM_PROMPT_TOKENS], 0)
    return Speed(interleave(samplers, rule, on_share))


def tokens_per_check(setting: Setting, kind: Kind | None = None) -> Figure:
    """Tokens that a verify pass gave on average, over all prompts answered; the spread is over prompts."""
    answers = [answer for (of, _), answer in setting.answers.items() if kind in (None, of)]
    checks = sum(answer.checks for answer in answers)
    accepted = sum(answer.accepted for answer in answers)
    single = [1 + answer.accepted / answer.checks for answer in answers]
    what = {"prose": "prose", "code": "code", None: "prose and code"}[kind]
    return measured(
        float(f"{1 + accepted / checks:.4g}"),
        "tokens",
        f"greedy answers to {len(answers)} shipped prompts ({what}), {setting.drafts}; n counts checks",
        n=checks,
        spread=float(f"{iqr(single):.3g}"),
    )


def check_same_text(plain: Setting, setting: Setting) -> None:
    """Refuse to go on when drafts changed the text.

    Raises:
        EngineFailed: naming the first token that differs.
    """
    for (kind, index), answer in setting.answers.items():
        expected = plain.answers[kind, index].tokens
        if answer.tokens == expected:
            continue
        at = next((i for i, (a, b) in enumerate(zip(answer.tokens, expected, strict=False)) if a != b), len(expected))
        raise EngineFailed(
            f"no speed is reported: with {setting.drafts} the text differs from the plain text",
            found=f"{kind} prompt {index + 1}, token {at + 1}: {list(answer.tokens[at : at + 1])}",
            needed=f"{list(expected[at : at + 1])}",
            hint="report this with the output of: twofold doctor",
        )


def _answer(setting: Setting, kind: Kind, prompts: Sequence[Sequence[int]], n_tokens: int, round_: int) -> float:
    index = round_ % len(prompts)
    answer, tokens_per_second = _generate(setting.engine, prompts[index], n_tokens)
    setting.answers[kind, index] = answer
    return tokens_per_second


def _generate(engine: Engine, prompt: Sequence[int], n_tokens: int) -> tuple[Answer, float]:
    engine.reset()
    generation = generate(engine, prompt, max_tokens=n_tokens)
    tokens = tuple(token for result in generation for token in result.tokens)
    stats = generation.stats
    return Answer(tokens, stats.steps, stats.accepted), stats.generated_tokens / stats.decode_seconds


def _prefill(engine: Engine, text: Sequence[int], _round: int) -> float:
    """The engine leaves a text's last token to the first step: it is not counted."""
    engine.reset()
    start = time.perf_counter()
    engine.prefill(text)
    return (len(text) - 1) / (time.perf_counter() - start)
