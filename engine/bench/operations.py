"""`bench --ops`: where a pass's time goes, by operation of the native tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twofold.engine.bench.passes import enter_text
from twofold.engine.engine import Engine
from twofold.engine.native_replay import NativePlayer
from twofold.profiles.errors import EngineUnavailable
from twofold.profiles.figures import Figure
from twofold.profiles.series import Series

ROUNDS = 30


@dataclass(frozen=True, slots=True)
class OperationTime:
    """All calls of one operation in passes of `rows` rows; `share` is of the time of all operations."""

    operation: str
    rows: int
    residual: bool
    calls: int
    share: float
    time_us: Figure

    def to_json(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "rows": self.rows,
            "residual": self.residual,
            "calls": self.calls,
            "share": self.share,
            "time_us": self.time_us.to_json(),
        }


def time_operations(
    engine: Engine,
    text: Sequence[int],
    widths: Sequence[int],
    rounds: int | None = None,
    on_share: Callable[[float], None] = lambda _: None,
) -> list[OperationTime]:
    """Profile verify passes behind `text`, as `time_passes` times them; slowest operation first for each width.

    Raises:
        EngineUnavailable: numpy's operations are not profiled.
    """
    player = engine.player
    if not isinstance(player, NativePlayer):
        raise EngineUnavailable("only the native kernels can be profiled", found="naive kernels", hint="twofold doctor")
    rows = enter_text(engine, text, max(widths))
    found: list[OperationTime] = []
    for done, width in enumerate(widths):
        on_share(done / len(widths))
        found += _time_width(engine, player, rows[:width], rounds or ROUNDS)
    return found


def _time_width(engine: Engine, player: NativePlayer, rows: Sequence[int], rounds: int) -> list[OperationTime]:
    engine.dry_pass(rows)
    samples: dict[str, list[float]] = {}
    calls: dict[str, int] = {}
    try:
        for _ in range(rounds):
            player.profile(True)
            engine.dry_pass(rows)
            for name, (seconds, n) in player.spent().items():
                samples.setdefault(name, []).append(seconds * 1e6)
                calls[name] = n
    finally:
        player.profile(False)
    series = {name: Series(tuple(found), "rounds asked for") for name, found in samples.items()}
    total = sum(one.median for one in series.values())
    by = f"wall time of all its calls in a pass behind {engine.cached_tokens} cached tokens, head included"
    slowest_first = sorted(series.items(), key=lambda item: -item[1].median)
    return [
        OperationTime(name, len(rows), True, calls[name], one.median / total, one.figure("us", by))
        for name, one in slowest_first
    ]
