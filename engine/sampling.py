"""Choosing a token from logits: deterministic in (logits, history, seed, absolute position) and nothing else.

Order: repetition penalty, temperature, top-k, top-p, min-p, then one uniform draw by inverse CDF over the survivors in
order of (−logit, id). The uniform comes from a counter-based generator (Philox) keyed by (seed, position), so what was
computed before, in which chunks or by how many threads never changes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.profiles.errors import EngineFailed, InvalidOption

F32 = NDArray[np.float32]
_FIRST_PREFIX = 256


def _check(name: str, value: float, ok: bool, needed: str) -> None:
    if not ok or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidOption(f"{name} is not valid", found=repr(value), needed=needed)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen. `temperature` 0 is greedy; top_k 0, top_p 1, min_p 0, repetition_penalty 1 are off.

    Raises:
        InvalidOption: when a value is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0 <= self.temperature <= 100, "0 … 100")
        _check("top_k", self.top_k, self.top_k >= 0 and self.top_k == int(self.top_k), "an integer ≥ 0")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, up to 1")
        _check("min_p", self.min_p, 0 <= self.min_p < 1, "0 up to below 1")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, 0 < penalty <= 100, "above 0, up to 100")
        _check("seed", self.seed, 0 <= self.seed < 1 << 64, "0 … 2^64 − 1")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any], **overrides: Any) -> SamplingParams:
        """A model's own defaults: greedy unless `do_sample`, absent fields off; `overrides` win where not None.

        Raises:
            InvalidOption: when a value is out of range or not a number.
        """
        known = [one.name for one in fields(cls) if one.name != "seed"]
        values = {name: config[name] for name in known if config.get(name) is not None}
        if not config.get("do_sample", False):
            values["temperature"] = 0.0
        elif "temperature" not in values:
            values["temperature"] = 1.0
        values |= {name: value for name, value in overrides.items() if value is not None}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidOption(f"{name} is not a number", found=repr(value))
        return cls(**values)


def uniform(seed: int, position: int) -> float:
    """The draw for an absolute position: 53 bits in [0, 1)."""
    return int(np.random.Philox(key=[seed, position]).random_raw() >> 11) * 2.0**-53


def check_finite(logits: F32, position: int) -> None:
    """Refuse logits whose maximum is NaN or infinite (NaN anywhere shows in the maximum).

    Raises:
        EngineFailed: naming the position.
    """
    peak = float(np.max(logits))
    if not math.isfinite(peak):
        raise EngineFailed(
            f"the model's output for position {position} is not finite",
            found=repr(peak),
            needed="finite logits",
            hint="the checkpoint is damaged: quantise it again (twofold quantize MODEL -o DIR)",
        )


def choose_greedily(logits: F32, position: int, argmax: Callable[[F32], NDArray[np.int64]]) -> int:
    """What `choose` gives without a penalty at temperature 0, by a kernel's `argmax` over rows.

    Raises:
        EngineFailed: when the logits are not finite.
    """
    try:
        best = int(argmax(logits[None])[0])
    except ValueError:
        check_finite(logits, position)  # a NaN
        raise
    if not math.isfinite(logits[best]):
        check_finite(logits, position)
    return best


def _penalised(logits: F32, history: Sequence[int], penalty: float) -> F32:
    if penalty == 1.0 or not len(history):
        return logits
    seen = np.unique(np.asarray(history, np.int64))
    result = logits.copy()
    chosen = result[seen]
    factor = np.float32(penalty)
    result[seen] = np.where(chosen > 0, chosen / factor, chosen * factor)
    return result


def _ordered_prefix(logits: F32, count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest logits, by (−logit, id)."""
    if count >= logits.size:
        return np.argsort(-logits, kind="stable")
    threshold = np.partition(logits, logits.size - count)[logits.size - count]
    above, equal = np.flatnonzero(logits > threshold), np.flatnonzero(logits == threshold)
    ids = np.sort(np.concatenate((above, equal[: count - above.size])))
    return ids[np.argsort(-logits[ids], kind="stable")]


def _growing_prefixes(logits: F32, limit: int) -> Iterator[NDArray[np.int64]]:
    """Longer and longer ordered prefixes up to `limit`: a draw rarely needs more than the first."""
    count = min(_FIRST_PREFIX, limit)
    while True:
        yield _ordered_prefix(logits, count)
        if count == limit:
            return
        count = min(count * 16, limit)


def _draw(logits: F32, params: SamplingParams, u: float) -> int:
    peak = np.float64(np.max(logits))

    def weights(part: F32) -> NDArray[np.float64]:
        return np.exp((part.astype(np.float64) - peak) / params.temperature)

    limit = min(params.top_k, logits.size) if params.top_k else logits.size
    total = float(np.sum(weights(logits[_ordered_prefix(logits, limit)] if params.top_k else logits)))
    for ids in _growing_prefixes(logits, limit):
        mass = weights(logits[ids])
        reached = np.cumsum(mass)
        complete = ids.size == limit
        kept = ids.size
        if params.top_p < 1:
            cut = int(np.searchsorted(reached, params.top_p * total)) + 1
            complete, kept = complete or cut <= kept, min(kept, cut)
        above_floor = int(np.count_nonzero(mass >= params.min_p)) if params.min_p else ids.size
        complete, kept = complete or above_floor < ids.size, min(kept, above_floor)
        mass_kept = float(reached[kept - 1]) if complete else total
        pick = int(np.searchsorted(reached[:kept], u * mass_kept, side="right"))
        if complete or (params.top_p == 1 and params.min_p == 0 and pick < kept):
            return int(ids[min(pick, kept - 1)])
    raise AssertionError("the last prefix is complete")


def choose(logits: F32, params: SamplingParams, position: int, history: Sequence[int]) -> int:
    """The token for absolute `position`, given fp32 logits [vocab] and the tokens before it (the row's own history).

    Greedy takes the lowest id among the largest logits.

    Raises:
        EngineFailed: when the logits are not finite.
    """
    check_finite(logits, position)
    logits = _penalised(logits, history, params.repetition_penalty)
    if params.greedy:
        return int(np.argmax(logits))
    return _draw(logits, params, uniform(params.seed, position))
