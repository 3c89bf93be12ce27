"""Tokens per second and time to first token. Always ranges: slow, likely and fast case of the machine's rates, or, on
a CPU whose kernels were timed (`twofold bench MODEL --kernels`), of the sums of those.

A step is one draft pass per tree level and one verify pass; tokens per second are the tokens per check over that.
Where a needed bandwidth is unknown, so is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twofold.planner.acceptance import DEFAULT_STATISTICS, SPREAD, RankStatistics, tree_tokens
from twofold.planner.knobs import Knobs
from twofold.planner.machine import CardBudget, HostBudget
from twofold.planner.passes import Work
from twofold.planner.rates import Rates, case_figure, rates
from twofold.planner.timed.speed import TimedSpeed, timed_speed
from twofold.profiles.figures import Figure, reasoned, unknown
from twofold.profiles.model_spec import ModelSpec

FRESH_TOKENS = 1024
"""Context at which "fresh" speed is stated."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a plan is expected to do. `host_ms` is the part of a check that the CPU spends on residuals in RAM."""

    decode_tok_s: Figure
    decode_full_tok_s: Figure
    tokens_per_check: Figure
    draft_pass_ms: Figure
    check_ms: Figure
    host_ms: Figure
    ttft_1k_s: Figure
    ttft_8k_s: Figure

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name).to_json() for name in self.__dataclass_fields__}


def _missing(card: CardBudget | None, host: HostBudget | None) -> str:
    if card is not None and not card.bandwidth_gb_s.is_known:
        return f"the card's memory bandwidth is unknown: {card.bandwidth_gb_s.by}"
    if host is None:
        return "part of the residual lives in RAM, and the host is unknown (give --ram, --ram-gb-s and --cpu)"
    if not host.ram_read_gb_s.is_known:
        return f"the RAM bandwidth is unknown: {host.ram_read_gb_s.by}"
    return "the link between card and host is unknown"


class SpeedModel:
    """The speed of one set of knobs on one card (or none) and host."""

    def __init__(
        self,
        spec: ModelSpec,
        knobs: Knobs,
        card: CardBudget | None,
        host: HostBudget | None,
        statistics: RankStatistics = DEFAULT_STATISTICS,
    ) -> None:
        self.knobs = knobs
        self.cases = rates(card, host)
        self.work = Work.of(spec, knobs, FRESH_TOKENS)
        self.tokens, self.levels = tree_tokens(statistics, knobs.draft_nodes, knobs.draft_depth)
        self._statistics = statistics
        self.timed: TimedSpeed | None = timed_speed(spec, knobs, host.kernels if host else None, statistics)
        self._why = _missing(card, host)

    def likely_tok_s(self, rate: Rates | None = None) -> float | None:
        """Tokens per second of the likely case (or at `rate`), little context: what plans are compared by."""
        if self.timed is not None and rate is None:
            return self.timed.likely_tok_s(min(FRESH_TOKENS, self.knobs.context_tokens))
        seconds = self.work.step_seconds(self.levels, self.work.kv_fresh, rate or self.cases[1])
        return None if seconds is None else self.tokens / seconds

    def tokens_per_check(self) -> Figure:
        uncounted = "; what is looked up in the text is not counted" if self.knobs.lookup_nodes else ""
        if not self.knobs.draft_nodes:
            return reasoned(1.0, "tokens", f"no draft by the base: one token per pass{uncounted}")
        extra = self.tokens - 1
        return reasoned(
            round(self.tokens, 3),
            "tokens",
            f"best-first tree of {self.knobs.draft_nodes} nodes: {self._statistics.by}{uncounted}",
            low=round(1 + extra * (1 - SPREAD), 3),
            high=round(1 + extra * (1 + SPREAD), 3),
        )

    def decode_tok_s(self, kv_bytes: int, label: str) -> Figure:
        slow, likely, fast = (self.work.step_seconds(self.levels, kv_bytes, rate) for rate in self.cases)
        if slow is None or likely is None or fast is None:
            return unknown("tok/s", self._why)
        extra = self.tokens - 1
        by = f"tokens per check / ({self.levels} draft passes + 1 verify pass), {label}"
        return reasoned(
            round(self.tokens / likely, 3),
            "tok/s",
            by,
            low=round((1 + extra * (1 - SPREAD)) / slow, 3),
            high=round((1 + extra * (1 + SPREAD)) / fast, 3),
        )

    def _seconds(self, compute: Callable[[Rates], float | None], unit: str, by: str) -> Figure:
        """Seconds in the three cases as one figure in `unit` (s or ms); low is the fast case."""
        found = case_figure([compute(rate) for rate in self.cases], unit, by, scale=1e3 if unit == "ms" else 1.0)
        return found or unknown(unit, self._why)

    def first_token_s(self, prompt: int) -> Figure:
        if prompt > self.knobs.context_tokens:
            return unknown("s", f"a prompt of {prompt} tokens is longer than the context")
        by = f"{prompt} tokens in passes of {self.knobs.prefill_chunk}: the longer of bytes moved and arithmetic"
        return self._seconds(lambda rate: self.work.prefill_seconds(prompt, rate), "s", by)

    def speed(self) -> Speed:
        """All of it."""
        work, knobs = self.work, self.knobs
        fresh = min(FRESH_TOKENS, knobs.context_tokens)
        host_ms = unknown("ms", "no card: the CPU computes the whole pass")
        if self.timed is not None:
            return self._timed_speed(self.timed, fresh, host_ms)
        if knobs.device == "cuda":
            host_ms = self._seconds(work.host_seconds, "ms", "residual bytes in RAM / bandwidth + transfer")
        return Speed(
            decode_tok_s=self.decode_tok_s(work.kv_fresh, f"{fresh} tokens in the cache"),
            decode_full_tok_s=self.decode_tok_s(work.kv_full, f"{knobs.context_tokens} tokens in the cache"),
            tokens_per_check=self.tokens_per_check(),
            draft_pass_ms=self._seconds(
                lambda rate: work.draft_seconds(work.kv_fresh, rate), "ms", "base and cache bytes / bandwidth"
            ),
            check_ms=self._seconds(
                lambda rate: work.verify_seconds(work.kv_fresh, rate), "ms", "sum over fused Linears of the slower side"
            ),
            host_ms=host_ms,
            ttft_1k_s=self.first_token_s(1024),
            ttft_8k_s=self.first_token_s(8192),
        )

    def _timed_speed(self, timed: TimedSpeed, fresh: int, host_ms: Figure) -> Speed:
        return Speed(
            decode_tok_s=timed.decode_tok_s(fresh),
            decode_full_tok_s=timed.decode_tok_s(self.knobs.context_tokens),
            tokens_per_check=self.tokens_per_check(),
            draft_pass_ms=timed.draft_ms(fresh),
            check_ms=timed.check_ms(fresh),
            host_ms=host_ms,
            ttft_1k_s=timed.first_token_s(1024),
            ttft_8k_s=timed.first_token_s(8192),
        )


def estimate_speed(
    spec: ModelSpec,
    knobs: Knobs,
    card: CardBudget | None,
    host: HostBudget | None,
    statistics: RankStatistics = DEFAULT_STATISTICS,
) -> Speed:
    """Ranges of tokens per second and of the times they come from."""
    return SpeedModel(spec, knobs, card, host, statistics).speed()
