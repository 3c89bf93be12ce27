"""What an engine's process hands back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy continuation: its tokens, and what they took after the prompt. `checks` counts verify passes."""

    tokens: tuple[int, ...]
    seconds: float
    cpu_seconds: float
    checks: int = 0

    @property
    def tokens_per_second(self) -> float:
        return len(self.tokens) / self.seconds
