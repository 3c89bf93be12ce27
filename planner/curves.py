"""Decode speed as the cache fills: the curve behind one plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twofold.planner.acceptance import DEFAULT_STATISTICS, RankStatistics
from twofold.planner.host_needs import EXAMPLE_GB_S
from twofold.planner.knobs import Knobs
from twofold.planner.kv import cache_bytes
from twofold.planner.latency import SpeedModel
from twofold.planner.machine import CardBudget, HostBudget
from twofold.planner.propose import NOMINAL_HOST
from twofold.profiles.figures import Figure, reasoned
from twofold.profiles.model_spec import ModelSpec

STEPS = 16


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """tok/s by tokens in the cache. `ram_gb_s` is the assumed RAM speed; None: the machine's own."""

    ram_gb_s: float | None
    points: tuple[tuple[int, Figure], ...]


def decode_behind(spec: ModelSpec, model: SpeedModel, tokens: int) -> Figure:
    """tok/s of `model`'s plan behind `tokens` of context."""
    if model.timed is not None:
        return model.timed.decode_tok_s(tokens)
    cache = cache_bytes(spec, tokens, model.knobs.k_type, model.knobs.v_type)
    return model.decode_tok_s(cache.total, f"{tokens} tokens in the cache")


def _curve(
    spec: ModelSpec, knobs: Knobs, card: CardBudget | None, host: HostBudget | None, statistics: RankStatistics
) -> tuple[tuple[int, Figure], ...]:
    model = SpeedModel(spec, knobs, card, host, statistics)
    places = sorted({max(1, knobs.context_tokens * i // STEPS) for i in range(STEPS + 1)})
    return tuple((n, decode_behind(spec, model, n)) for n in places)


def speed_curves(
    spec: ModelSpec,
    knobs: Knobs,
    card: CardBudget | None,
    host: HostBudget | None,
    statistics: RankStatistics = DEFAULT_STATISTICS,
) -> tuple[SpeedCurve, ...]:
    """One curve on the known host; where its RAM's speed is needed and unknown, one for each of some usual speeds."""
    own = _curve(spec, knobs, card, host, statistics)
    if own[0][1].is_known:
        return (SpeedCurve(None, own),)
    base = host if host is not None and not host.is_partial else NOMINAL_HOST
    found = []
    for gb_s in EXAMPLE_GB_S:
        assumed = replace(base, ram_read_gb_s=reasoned(gb_s, "GB/s", "assumed"))
        found.append(SpeedCurve(gb_s, _curve(spec, knobs, card, assumed, statistics)))
    return tuple(one for one in found if one.points[0][1].is_known)
