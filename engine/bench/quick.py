"""Pass times in a few hundred milliseconds: what a first start measures to decide about drafts."""

from __future__ import annotations

import time
from collections.abc import Callable

from twofold.engine.engine import Engine

VERIFY_ROWS = (1, 2, 3, 5, 9, 17)
DRAFT_ROWS = (1, 2, 4)
TEXT_TOKENS = 24
SECONDS = 1.0
"""When no further width is begun; a slow model's wide passes are not worth waiting for."""
Clock = Callable[[], float]
REPEATS = 3


def quick_pass_times(
    engine: Engine, clock: Clock = time.thread_time, wall: Clock = time.perf_counter
) -> dict[str, dict[int, float]]:
    """`verify` and `draft`: the least seconds of a pass by its rows, over `REPEATS`, behind a short text.

    The engine's passes must be wide enough (`VERIFY_ROWS`), and its text is forgotten. Time is this thread's own on a
    processor (it takes part in every operation and spins while it waits), and the least of all: what else runs here
    would otherwise decide. Widths are timed in turn, so that a slow moment hits all of them.
    """
    vocabulary = engine.spec.vocab_size
    tokens = [1 + 7 * i % (vocabulary - 1) for i in range(TEXT_TOKENS + max(VERIFY_ROWS))]
    engine.reset()
    engine.prefill(tokens[:TEXT_TOKENS])
    engine.dry_pass(tokens[:1])
    found: dict[str, dict[int, float]] = {"verify": {}, "draft": {}}
    started = wall()
    for kind, rows in _in_turn():
        if wall() - started > SECONDS and 1 in found["verify"] and 1 in found["draft"]:
            break
        part = tokens[TEXT_TOKENS : TEXT_TOKENS + rows]
        before = clock()
        if kind == "verify":
            engine.dry_pass(part)
        else:
            engine.dry_draft(part)
        seconds = max(clock() - before, 1e-9)
        found[kind][rows] = min(seconds, found[kind].get(rows, seconds))
    engine.reset()
    return found


def _in_turn() -> list[tuple[str, int]]:
    """Narrow passes first: they decide between no draft and a chain, whatever else is cut off."""
    once = [("verify", 1), ("draft", 1), ("verify", 2), ("verify", 5), ("draft", 2), ("verify", 3), ("verify", 9)]
    once += [("draft", 4), ("verify", 17)]
    return once * REPEATS
