"""What a session's answers took together, for the record that a session leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from twofold.engine.generate import GenerationStats


@dataclass(slots=True)
class Tally:
    """Sums over answers. `first_tokens` are the seconds to each first token, `filled_tokens` the longest text so far.

    An answer that was stopped counts with what it came to.
    """

    answers: int = 0
    tokens: int = 0
    checks: int = 0
    decode_seconds: float = 0.0
    computed_tokens: int = 0
    prefill_seconds: float = 0.0
    filled_tokens: int = 0
    first_tokens: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def add(self, stats: GenerationStats, filled_tokens: int) -> None:
        """Count an answer after which the text has `filled_tokens`."""
        self.filled_tokens = max(self.filled_tokens, filled_tokens)
        computed = stats.prompt_tokens - 1 - stats.reused_tokens
        if stats.prefill_seconds > 0 and computed > 0:
            self.computed_tokens += computed
            self.prefill_seconds += stats.prefill_seconds
        if not stats.steps:
            return
        self.answers += 1
        self.tokens += stats.generated_tokens
        self.checks += stats.steps
        self.decode_seconds += stats.decode_seconds
        self.first_tokens.append(stats.first_token_seconds)
        if stats.decode_tokens_per_second is not None:
            self.rates.append(stats.decode_tokens_per_second)
