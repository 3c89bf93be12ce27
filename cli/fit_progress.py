"""How far a search for a plan is, on stderr, once it takes long enough to be asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_SECONDS = 2.0
"""A search that is over by then shows nothing."""


@contextmanager
def showing_trials(n_trials: int) -> Iterator[Callable[[int], None]]:
    """Tell what is given the number of plans tried; nothing is shown where stderr is no terminal."""
    from twofold.cli.output import err

    started = time.monotonic()
    bars: list[Progress] = []

    def tell(done: int) -> None:
        if not bars:
            if time.monotonic() - started < QUIET_SECONDS:
                return
            bars.append(err().progress())
            bars[0].add_task("trying plans", total=n_trials)
            bars[0].start()
        bars[0].update(bars[0].task_ids[0], completed=min(done, n_trials))

    try:
        yield tell
    finally:
        for bar in bars:
            bar.stop()
