"""What was said, and how much of it still goes into the prompt.

When a conversation outgrows the context, the oldest exchanges (a question with its answer) leave the prompt until it
takes at most half of the context, so that the recomputing that this costs happens rarely. The system prompt stays.
Nothing leaves the history itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from twofold.engine.text.chat_template import THINK_CLOSE, THINK_OPEN, ChatTemplate
from twofold.profiles.errors import ContextFull


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `thinking` is what the model wrote before its answer, without the tags."""

    role: Literal["user", "assistant"]
    content: str
    thinking: str = ""


@dataclass(slots=True)
class History:
    """Turns in order, from a user's first; `first` is the first one that is still in the prompt."""

    system: str | None = None
    turns: list[Turn] = field(default_factory=list)
    first: int = 0

    def clear(self) -> None:
        self.turns.clear()
        self.first = 0

    def messages(self, template: ChatTemplate) -> list[dict[str, str]]:
        """The messages for the template, thinking in the shape that it understands."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return system + [_message(turn, template) for turn in self.turns[self.first :]]

    def make_room(self, encode: Callable[[Sequence[dict[str, str]]], list[int]], template: ChatTemplate,
                  context_tokens: int, reserve_tokens: int) -> tuple[list[int], int]:  # fmt: skip
        """The prompt's tokens, with `reserve_tokens` left for an answer; and how many exchanges left the prompt for it.

        Raises:
            ContextFull: when not even the last message fits.
        """
        tokens = encode(self.messages(template))
        if len(tokens) + reserve_tokens <= context_tokens:
            return tokens, 0
        before = self.first
        while len(tokens) > context_tokens // 2 and self.first + 2 < len(self.turns):
            self.first += 2
            tokens = encode(self.messages(template))
        if len(tokens) >= context_tokens:
            self.first = before
            raise ContextFull(
                "the message does not fit the context",
                found=f"{len(tokens)} tokens with the system prompt",
                needed=f"fewer than {context_tokens} tokens",
                hint="shorten it, or start again with a larger --ctx",
            )
        return tokens, (self.first - before) // 2


def _message(turn: Turn, template: ChatTemplate) -> dict[str, str]:
    message = {"role": turn.role, "content": turn.content}
    if not turn.thinking:
        return message
    if template.knows_thinking and not template.splits_thinking:
        return message | {"reasoning_content": turn.thinking}
    return message | {"content": f"{THINK_OPEN}\n{turn.thinking}\n{THINK_CLOSE}\n\n{turn.content}"}
