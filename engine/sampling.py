"""Choosing a token from logits: deterministic in (logits, history, seed, absolute position) and nothing else.

Order: repetition penalty, temperature, top-k, top-p, min-p, then one uniform draw by inverse CDF over the survivors in
order of (−logit, id), by a kernel whose weights are the same on every machine. The uniform comes from a counter-based
generator (Philox) keyed by (seed, position), so what was computed before, in which chunks or by how many threads never
changes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twofold.profiles.errors import EngineFailed, InvalidOption

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


class ChoosingOps(Protocol):
    """The kernels that choose: `twofold.kernels.cpu.ops`, or the naive ones."""

    @property
    def argmax(self) -> Callable[[F32], I64]:
        """The id of each row's largest logit."""
        ...

    @property
    def draw(self) -> Callable[..., int]:
        """The id at a uniform number among what the filters leave."""
        ...

    @property
    def uniform(self) -> Callable[[int, int], float]:
        """The uniform number of a (seed, position)."""
        ...


def _check(name: str, value: float, ok: bool, needed: str) -> None:
    if not ok or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidOption(f"{name} is not valid", found=repr(value), needed=needed)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen. `temperature` 0 is greedy; top_k 0, top_p 1, min_p 0, repetition_penalty 1 are off.

    Products of logits and a penalty (0.01 … 100) stay in fp32.

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
        _check("repetition_penalty", penalty, 0.01 <= penalty <= 100, "0.01 … 100")
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


def _not_finite(logits: F32, position: int) -> EngineFailed:
    return EngineFailed(
        f"the model's output for position {position} is not finite",
        found=repr(float(logits[~np.isfinite(logits)][0])),
        needed="finite logits",
        hint="the checkpoint is damaged: quantise it again (twofold quantize MODEL -o DIR)",
    )


def _penalised(logits: F32, history: Sequence[int], penalty: float) -> F32:
    seen = np.asarray(history, np.int64)  # with repetitions: each takes the same value again
    result, factor = logits.copy(), np.float32(penalty)
    chosen = logits[seen]
    result[seen] = np.where(chosen > 0, chosen / factor, chosen * factor)
    return result


def choose(
    logits: F32, best: int, params: SamplingParams, position: int, history: Sequence[int], ops: ChoosingOps
) -> int:
    """The token for absolute `position`, given fp32 logits [vocab] and the tokens before it (the row's own history).

    `best` is `ops.argmax` of the row; greedy takes it (after a penalty the argmax of what that leaves). `ops` are the
    kernels, native or not.

    Raises:
        EngineFailed: a logit is not finite.
    """
    if best >= 0 and params.repetition_penalty != 1 and len(history):
        logits = _penalised(logits, history, params.repetition_penalty)
        best = int(ops.argmax(logits[None])[0])
    if best < 0:
        raise _not_finite(logits, position)
    if params.greedy:
        return best
    return ops.draw(
        logits,
        float(logits[best]),
        temperature=params.temperature,
        keep=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        u=ops.uniform(params.seed, position),
    )
