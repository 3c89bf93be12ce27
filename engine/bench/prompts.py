"""The chat prompts that ship for timing: prose and code apart, since drafts are accepted at different rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

from twofold.engine.text import ChatTemplate, Tokenizer

Kind = Literal["prose", "code"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FILE_NAME = "bench_prompts.jsonl"


@dataclass(frozen=True, slots=True)
class BenchTexts:
    """Tokens of one kind: `chats` are prompts in the model's template, `long` has exactly the length asked for."""

    chats: tuple[tuple[int, ...], ...]
    long: tuple[int, ...]


def shipped_prompts(kind: Kind) -> tuple[str, ...]:
    """The prompts of one kind, in the file's order."""
    text = files("twofold.engine").joinpath("data", FILE_NAME).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return tuple(row["prompt"] for row in rows if row["kind"] == kind)


def bench_texts(tokenizer: Tokenizer, template: ChatTemplate, prompt_tokens: int) -> dict[Kind, BenchTexts]:
    """Prompts of both kinds as tokens. The long one is all prompts of the kind in one message, repeated and cut."""
    found: dict[Kind, BenchTexts] = {}
    for kind in KINDS:
        prompts = shipped_prompts(kind)
        chats = tuple(tuple(_encode(tokenizer, template, prompt)) for prompt in prompts)
        found[kind] = BenchTexts(chats, tuple(_long(tokenizer, template, prompts, prompt_tokens)))
    return found


def _encode(tokenizer: Tokenizer, template: ChatTemplate, text: str) -> list[int]:
    return template.encode(tokenizer, [{"role": "user", "content": text}])


def _long(tokenizer: Tokenizer, template: ChatTemplate, prompts: Sequence[str], n_tokens: int) -> list[int]:
    once = "\n\n".join(prompts)
    n_once = len(tokenizer.encode(once))
    copies = -(-n_tokens // max(n_once, 1)) + 1
    return _encode(tokenizer, template, "\n\n".join([once] * copies))[:n_tokens]
