"""The timed part: every engine answers the same prompts in turn, in rounds that run forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from twofold.engine.bench.prompts import BenchTexts
from twofold.engine.bench.rounds import Rule, interleave
from twofold.profiles.errors import EngineFailed
from versus.answers import Answer
from versus.llama_bench import LlamaBench
from versus.ratios import Speed
from versus.workers import Worker

WARM_TOKENS = 8
WARM_PROMPT_TOKENS = 64


class Player(Protocol):
    """An engine under one setting; both methods give tokens per second."""

    name: str

    def decode(self, prompt: Sequence[int], n_tokens: int) -> float: ...

    def prefill(self, tokens: Sequence[int]) -> float: ...


@dataclass(slots=True)
class WorkerPlayer:
    """A worker's engine, called with `first` before the other arguments; keeps every answer by its prompt."""

    name: str
    worker: Worker
    first: tuple[str, ...] = ()
    answers: dict[tuple[int, ...], list[Answer]] = field(default_factory=dict)

    def decode(self, prompt: Sequence[int], n_tokens: int) -> float:
        answer: Answer = self.worker.ask("decode", *self.first, tuple(prompt), n_tokens)
        if len(answer.tokens) != n_tokens:
            raise EngineFailed(
                f"{self.name} ended early: no speed is reported",
                found=f"{len(answer.tokens)} tokens",
                needed=f"{n_tokens} tokens",
            )
        self.answers.setdefault(tuple(prompt), []).append(answer)
        return answer.tokens_per_second

    def prefill(self, tokens: Sequence[int]) -> float:
        return len(tokens) / float(self.worker.ask("prefill", *self.first, tuple(tokens)))


@dataclass(slots=True)
class BinaryPlayer:
    """A llama-bench."""

    name: str
    binary: LlamaBench

    def decode(self, prompt: Sequence[int], n_tokens: int) -> float:
        return self.binary.decode_speed(n_tokens, len(prompt))

    def prefill(self, tokens: Sequence[int]) -> float:
        return self.binary.prefill_speed(len(tokens))


def time_decoding(
    players: Sequence[Player],
    texts: Mapping[str, BenchTexts],
    n_tokens: int,
    rounds: int,
    on_share: Callable[[float], None] = lambda _: None,
) -> dict[str, Speed]:
    """Speed of answers by player; round i answers prompt i of each kind."""
    for player in players:
        for text in texts.values():
            player.decode(text.chats[0], WARM_TOKENS)
        if isinstance(player, WorkerPlayer):
            player.answers.clear()

    def sample(player: Player, kind: str, round_: int) -> float:
        chats = texts[kind].chats
        return player.decode(chats[round_ % len(chats)], n_tokens)

    return _interleaved(players, texts, sample, rounds, on_share)


def time_prefill(
    players: Sequence[Player],
    texts: Mapping[str, BenchTexts],
    n_tokens: int,
    rounds: int,
    on_share: Callable[[float], None] = lambda _: None,
) -> dict[str, Speed]:
    """Speed of prompts of `n_tokens` from an empty cache, by player."""
    for player in players:
        for text in texts.values():
            player.prefill(text.long[: min(WARM_PROMPT_TOKENS, n_tokens)])

    def sample(player: Player, kind: str, _round: int) -> float:
        return player.prefill(texts[kind].long[:n_tokens])

    return _interleaved(players, texts, sample, rounds, on_share)


def _interleaved(
    players: Sequence[Player],
    kinds: Mapping[str, BenchTexts],
    sample: Callable[[Player, str, int], float],
    rounds: int,
    on_share: Callable[[float], None],
) -> dict[str, Speed]:
    samplers = {(player.name, kind): partial(sample, player, kind) for kind in kinds for player in players}
    series = interleave(samplers, Rule(repeats=rounds), on_share)
    return {player.name: Speed({kind: series[player.name, kind] for kind in kinds}) for player in players}


def check_same_text(plain: WorkerPlayer, other: WorkerPlayer) -> int:
    """Refuse to go on where drafts changed the text; returns how many answers were compared.

    Raises:
        EngineFailed: naming the first token that differs.
    """
    compared = 0
    for number, (prompt, answers) in enumerate(other.answers.items(), 1):
        expected = plain.answers[prompt][0].tokens
        for answer in [*answers, *plain.answers[prompt]]:
            compared += 1
            if answer.tokens == expected:
                continue
            at = next(i for i, (a, b) in enumerate(zip(answer.tokens, expected, strict=True)) if a != b)
            raise EngineFailed(
                f"no speed is reported: {other.name} gave another text than {plain.name}",
                found=f"prompt {number}, token {at + 1}: {answer.tokens[at]}",
                needed=str(expected[at]),
                hint="report this with the output of: twofold doctor",
            )
    return compared


def check_same_tokens(worker: Worker, rendered: Mapping[tuple[int, ...], str]) -> int:
    """llama.cpp's own tokenizer must give the tokens that both engines are fed; returns how many prompts it was asked.

    Raises:
        EngineFailed: naming the first difference.
    """
    for tokens, text in rendered.items():
        found = tuple(worker.ask("tokenize", text))
        if found == tokens:
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(found, tokens, strict=False)) if a != b), min(map(len, (found, tokens)))
        )
        raise EngineFailed(
            "no speed is reported: the two tokenizers read a prompt differently",
            found=f"llama.cpp: {list(found[at : at + 3])} at token {at + 1} of {len(found)}",
            needed=f"{list(tokens[at : at + 3])} of {len(tokens)}: {text[:60]!r}…",
        )
    return len(rendered)
