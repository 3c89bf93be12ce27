"""What a plan does on the CPU engine, as figures from timed passes: reasoned, with the range of the timings."""

from __future__ import annotations

from dataclasses import dataclass

from twofold.planner.acceptance import SPREAD, RankStatistics, TreeShape, tree_shape
from twofold.planner.draft_choice import DraftChoice, PassSeconds, choose_draft
from twofold.planner.knobs import Knobs
from twofold.planner.timed.curve import Estimate
from twofold.planner.timed.passes import TimedPasses, timed_passes
from twofold.planner.timed.source import KernelSource
from twofold.profiles.figures import Figure, reasoned, unknown
from twofold.profiles.model_spec import ModelSpec

CHOICE_CONTEXT = 1024
"""Committed positions that a draft is chosen for, or half of the context where that is less."""
MOST_GAPS = 3


@dataclass(frozen=True, slots=True)
class TimedSpeed:
    """Knobs on a machine whose kernels were timed; made by `timed_speed`."""

    passes: TimedPasses
    shape: TreeShape
    source: str

    def _by(self, what: str, estimate: Estimate) -> str:
        gaps = sorted(estimate.gaps)
        more = f" and {len(gaps) - MOST_GAPS} more" if len(gaps) > MOST_GAPS else ""
        note = f"; not timed: {', '.join(gaps[:MOST_GAPS])}{more}" if gaps else ""
        return f"{what}; seconds: {self.source}{note}"

    def step(self, context: int) -> Estimate:
        """Seconds of a step behind `context` committed positions."""
        return self.passes.step(self.shape, context)

    def likely_tok_s(self, context: int) -> float:
        """Tokens per second of the likely case."""
        return self.shape.tokens / self.step(context).likely

    def decode_tok_s(self, context: int) -> Figure:
        """Tokens per second behind `context` committed positions."""
        step, extra = self.step(context), self.shape.tokens - 1
        what = f"tokens per check / ({self.shape.depth} draft passes + 1 verify pass), {context} tokens in the cache"
        return reasoned(
            round(self.shape.tokens / step.likely, 3),
            "tok/s",
            self._by(what, step),
            low=round((1 + extra * (1 - SPREAD)) / step.high, 3),
            high=round((1 + extra * (1 + SPREAD)) / step.low, 3),
        )

    def check_ms(self, context: int) -> Figure:
        """Milliseconds of a verify pass."""
        rows = self.shape.nodes + 1
        return self._milliseconds(self.passes.verify(rows, context), f"a verify pass of {rows} rows")

    def draft_ms(self, context: int) -> Figure:
        """Milliseconds of a draft pass of one row."""
        return self._milliseconds(self.passes.draft(1, context), "a draft pass of 1 row")

    def _milliseconds(self, one: Estimate, what: str) -> Figure:
        low, likely, high = (round(part * 1e3, 4) for part in (one.low, one.likely, one.high))
        return reasoned(likely, "ms", self._by(what, one), low=low, high=high)

    def first_token_s(self, prompt: int) -> Figure:
        """Seconds until the first token after a prompt of so many."""
        knobs = self.passes.knobs
        if prompt > knobs.context_tokens:
            return unknown("s", f"a prompt of {prompt} tokens is longer than the context")
        one = self.passes.prefill(prompt)
        low, likely, high = (round(part, 4) for part in (one.low, one.likely, one.high))
        by = self._by(f"{prompt} tokens in passes of {knobs.prefill_chunk}", one)
        return reasoned(likely, "s", by, low=low, high=high)

    def turn_seconds(self, prompt: int, answer: int, context: int) -> float:
        """Likely seconds of a turn: a prompt read, and an answer written behind `context` committed positions."""
        return self.passes.prefill(prompt).likely + answer / self.likely_tok_s(context)


def timed_speed(
    spec: ModelSpec, knobs: Knobs, source: KernelSource | None, statistics: RankStatistics
) -> TimedSpeed | None:
    """None on a card, and where the machine's kernels were not timed as the plan runs them."""
    kernels = None if source is None else source.kernels_of(knobs)
    passes = timed_passes(spec, knobs, kernels)
    if passes is None or source is None or kernels is None:
        return None
    shape = tree_shape(statistics, knobs.draft_nodes, knobs.draft_depth, spec.vocab_size)
    return TimedSpeed(passes, shape, source.words(kernels))


def timed_pass_seconds(spec: ModelSpec, knobs: Knobs, source: KernelSource | None) -> PassSeconds | None:
    """What a draft is chosen by, from timed kernels; None where there are none."""
    kernels = None if source is None else source.kernels_of(knobs)
    passes = timed_passes(spec, knobs, kernels)
    return None if passes is None else passes.pass_seconds(min(CHOICE_CONTEXT, knobs.context_tokens // 2))


def timed_draft(
    spec: ModelSpec, knobs: Knobs, source: KernelSource | None, statistics: RankStatistics
) -> DraftChoice | None:
    """The draft that is fastest on a machine whose kernels were timed; None where they were not."""
    times = timed_pass_seconds(spec, knobs, source)
    return None if times is None else choose_draft(statistics, times)
