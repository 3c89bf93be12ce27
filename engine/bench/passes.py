"""What a pass costs by its width: t(n) of a verify pass (base and residual) and of a draft pass (the base alone)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from twofold.engine.bench.rounds import Rule, Share, interleave, warm_up
from twofold.engine.engine import Engine
from twofold.profiles.figures import Figure


@dataclass(frozen=True, slots=True)
class PassTime:
    """The latency of passes of `rows` rows; without `residual` it is a draft pass."""

    rows: int
    residual: bool
    latency_us: Figure

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "residual": self.residual, "latency_us": self.latency_us.to_json()}


def time_passes(
    engine: Engine, text: Sequence[int], widths: Sequence[int], rule: Rule, on_share: Share = lambda _: None
) -> list[PassTime]:
    """Time passes behind `text`, whose last max(widths) tokens are the rows and whose others fill the cache.

    Head included, sampling not. Nothing is committed, so every pass sees the same cache.

    Raises:
        ValueError: the text is not longer than the widest pass, or the engine's passes are narrower.
    """
    rows = enter_text(engine, text, max(widths))
    samplers = {
        (width, residual): partial(_time_pass, engine, rows[:width], residual)
        for width in widths
        for residual in (True, False)
    }
    warm_up(samplers, rule)
    found = interleave(samplers, rule, on_share)
    by = f"a pass behind {engine.cached_tokens} cached tokens, head included"
    return [PassTime(width, residual, series.figure("us", by)) for (width, residual), series in found.items()]


def enter_text(engine: Engine, text: Sequence[int], widest: int) -> tuple[int, ...]:
    """Cache all of `text` but its last `widest` tokens, which are returned.

    Raises:
        ValueError: the text is not longer.
    """
    if len(text) <= widest:
        raise ValueError(f"{len(text)} tokens cannot hold a pass of {widest} rows and a cache")
    engine.reset()
    engine.prefill([*text[: len(text) - widest], text[-1]])  # the last token of a text is not computed
    return tuple(text[-widest:])


def _time_pass(engine: Engine, tokens: Sequence[int], residual: bool, _round: int) -> float:
    start = time.perf_counter()
    engine.dry_pass(tokens, use_residual=residual)
    return (time.perf_counter() - start) * 1e6
