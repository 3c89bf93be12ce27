"""What the variants answer: shipped chat prompts, and one that is longer than the longest chunk."""

from __future__ import annotations

from twofold.engine.bench.prompts import KINDS, bench_texts
from twofold.engine.parity.variants import CHUNKS
from twofold.engine.text import ChatTemplate, Tokenizer

LONG_TOKENS = max(CHUNKS) + 45
"""Two chunks of the long kind, the second one not whole."""
PROMPTS, TOKENS = 4, 64
FULL_PROMPTS, FULL_TOKENS = 20, 200


def parity_prompts(tokenizer: Tokenizer, template: ChatTemplate, n_prompts: int) -> list[tuple[int, ...]]:
    """Tokens of `n_prompts` texts, prose and code in turn; every fifth one is long."""
    texts = bench_texts(tokenizer, template, LONG_TOKENS + n_prompts)
    chats = [chat for pair in zip(*(texts[kind].chats for kind in KINDS), strict=True) for chat in pair]
    longs = [texts[kind].long[: LONG_TOKENS + i] for i in range(n_prompts) for kind in KINDS]
    prompts: list[tuple[int, ...]] = []
    for index in range(n_prompts):
        prompts.append(longs[index // 5] if index % 5 == 0 else chats[(index - 1 - index // 5) % len(chats)])
    return prompts
