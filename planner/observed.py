"""Calibration by reported peaks: a file that somebody ran tells what it takes in another run or on another card.

measured peak = weights on the card + a constant of the build + what the run decides (`planner.llama_run`). The first
two are taken from the nearest observation of the same file. A draft head that no observation of the file has (or that
all have) is estimated: its weights, stored with something between the file's own bits and Q6_K's (files differ; the
geometric mean is taken), and what its context adds, fitted to the files that were observed both ways. An observation
that disagrees with the others of its file by more than `OUTLIER_MIB` (a desktop on the card, another build) is left
out.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twofold.planner.kv import KV_BLOCKS
from twofold.planner.llama_run import LlamaRun, run_mib
from twofold.planner.memory import CUDA_CONTEXT_MIB
from twofold.planner.plan import KvType
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.observations import Observation
from twofold.profiles.units import MIB

ENGINE = "llama.cpp"
OUTLIER_MIB = 150.0
SPREAD_MIB = 100.0
"""How far an estimate may be off one observed run of the same file: builds, drivers and idle cards differ."""
HEAD_SPREAD_MIB = 200.0
"""The same where a draft head is added that no observation of the file has."""
HEAD_CONTEXT_MIB = 75.0
"""What a draft head's own context takes beside weights, cache and mask where no file was observed both ways."""
Q6_K_BITS = 6.5625


@dataclass(frozen=True, slots=True)
class _Left:
    """What an observation leaves for weights and constant, in MiB; `has_head` says whether a draft head is in it."""

    observation: Observation
    run: LlamaRun
    mib: float

    @property
    def has_head(self) -> bool:
        return self.run.draft_mtp > 0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Weights and constant of a file, in MiB, from `nearest`; `head_mib` is added for an unobserved draft head."""

    weights_and_constant_mib: float
    head_mib: float
    spread_mib: float
    nearest: Observation
    n_observations: int
    set_aside: tuple[str, ...]

    @property
    def by(self) -> str:
        """In words: which run it comes from."""
        seen = self.nearest
        run = f"{seen.ctx} tokens, {seen.kv}, {f'draft of {seen.spec_n}' if seen.spec_n else 'no draft'}"
        return f"reported peak {seen.id} ({seen.gpu}, {run}: {seen.measured_mib} MiB) less what that run decided"


def name_words(name: str) -> tuple[str, ...]:
    """A name without case and separators: two names of the same words are one file's."""
    return tuple(re.findall(r"[a-z0-9.]+", name.lower()))


def _kv_type(text: str) -> KvType | None:
    return next((kind for kind in KV_BLOCKS if kind == text.strip().lower()), None)


def observed_run(observation: Observation) -> LlamaRun | None:
    """The run that an observation describes; None where it is not one whole run on one card with known settings."""
    kind = _kv_type(observation.kv)
    if observation.measured_mib is None or observation.ctx is None or kind is None:
        return None
    if not observation.engine.startswith(ENGINE) or not observation.outcome.startswith("fit"):
        return None
    if "partial" in observation.outcome or "split" in observation.model or re.match(r"\d+x ", observation.gpu):
        return None
    slots = re.search(r"-np (\d+)", observation.model)
    return LlamaRun(observation.ctx, kind, observation.spec_n or 0, int(slots[1]) if slots else 1)


def is_of(spec: ModelSpec, observation: Observation) -> bool:
    """Whether the observation is of this model: its name begins with the model's, or its architecture is named so."""
    name = spec.name.split("/")[-1].lower()
    stem = re.sub(r"[^a-z0-9]", "", name)
    arch = re.sub(r"[^a-z0-9]", "", observation.arch.lower())
    return observation.model.lower().startswith(name) or (bool(arch) and stem.startswith(arch))


def _left(spec: ModelSpec, observations: Iterable[Observation]) -> list[_Left]:
    found = []
    for one in observations:
        run = observed_run(one) if is_of(spec, one) else None
        if run is not None and one.measured_mib is not None:
            found.append(_Left(one, run, one.measured_mib - run_mib(spec, run)))
    return found


def _head_mib(spec: ModelSpec, bits: float) -> float:
    return spec.draft_head_weights * bits / 8 / MIB


def _file_bits(spec: ModelSpec, weights_and_constant_mib: float) -> float:
    """Mean bits a weight of a file whose weights (the embedding stays on the host) and constant are known."""
    weights = spec.n_decoder_weights + spec.vocab_size * spec.hidden_size
    return max(1.0, (weights_and_constant_mib - CUDA_CONTEXT_MIB[1]) * MIB * 8 / weights)


def head_context_mib(spec: ModelSpec, observations: Iterable[Observation]) -> tuple[float, int]:
    """What a draft head adds beside weights, cache and mask: the median over files seen both ways, and their number.

    Of several observations of one kind the least counts: whatever else was on the card only ever adds.
    """
    by_file: dict[tuple[str, ...], list[_Left]] = {}
    for one in _left(spec, observations):
        by_file.setdefault(name_words(one.observation.model), []).append(one)
    added = []
    for same in by_file.values():
        plain, drafted = ([one.mib for one in same if one.has_head is has] for has in (False, True))
        if plain and drafted:
            added.append(min(drafted) - min(plain) - _head_mib(spec, _file_bits(spec, min(plain))))
    return (statistics.median(added), len(added)) if added else (HEAD_CONTEXT_MIB, 0)


def draft_head_mib(spec: ModelSpec, plain_mib: float, observations: Iterable[Observation]) -> float:
    """Weights and context of the draft head of a file whose other weights and constant are `plain_mib`."""
    bits = _file_bits(spec, plain_mib)
    context, _ = head_context_mib(spec, observations)
    return _head_mib(spec, math.sqrt(bits * max(bits, Q6_K_BITS))) + context


def _without_outliers(found: Sequence[_Left], head_mib: float) -> list[_Left]:
    plain = [one.mib - (head_mib if one.has_head else 0.0) for one in found]
    if len(found) < 3:
        return list(found)
    centre = statistics.median(plain)
    return [one for one, mib in zip(found, plain, strict=True) if abs(mib - centre) <= OUTLIER_MIB]


def is_same_card(card: str, gpu: str) -> bool:
    """Whether a reporter's words (`RTX 3090 @250 W`) and a card's name mean one model: number, and Ti or Super."""

    def model(text: str) -> frozenset[str]:
        words = name_words(re.sub(r"@\s*\d+\s*w", "", text.lower()))
        return frozenset(word for word in words if re.fullmatch(r"[a-z]?\d{3,4}[a-z]*|ti|super", word))

    return model(card) == model(gpu)


def _distance(one: _Left, run: LlamaRun, card: str | None) -> tuple[bool, bool, bool, float]:
    """Nearest first: the same use of a draft head, the same card, the same cache type, the nearest context."""
    same_card = card is not None and is_same_card(card, one.observation.gpu)
    far = abs(one.run.context_tokens - run.context_tokens)
    return (
        one.has_head is not (run.draft_mtp > 0),
        not same_card,
        one.run.kinds != run.kinds,
        far + 1e-3 * abs(one.run.draft_mtp - run.draft_mtp),
    )


def calibrate(
    spec: ModelSpec, run: LlamaRun, weights_name: str, observations: Sequence[Observation], card: str | None
) -> Calibration | None:
    """Weights and constant for `run` of the file that observations call `weights_name`; None where none is known.

    Args:
        card: the card that is planned for; an observation on the same card is preferred, one on another serves.
    """
    every = _left(spec, observations)
    same = [one for one in every if name_words(one.observation.model) == name_words(weights_name)]
    if not same:
        return None
    least = min(same, key=lambda one: one.mib)
    head_mib = draft_head_mib(spec, least.mib, observations)
    if least.has_head:  # its bits were overestimated by the head's own share
        head_mib = draft_head_mib(spec, least.mib - head_mib, observations)
    kept = _without_outliers(same, head_mib)
    nearest = min(kept, key=lambda one: _distance(one, run, card))
    head = 0.0
    if nearest.has_head != (run.draft_mtp > 0):
        head = head_mib if run.draft_mtp else -head_mib
    aside = tuple(one.observation.id for one in same if one not in kept)
    return Calibration(
        weights_and_constant_mib=nearest.mib,
        head_mib=head,
        spread_mib=HEAD_SPREAD_MIB if head else SPREAD_MIB,
        nearest=nearest.observation,
        n_observations=len(same),
        set_aside=aside,
    )


_SIZE = re.compile(r"([\d.,]+) (MiB on GPU|MiB|GiB|GB|B)\b")
_UNIT_MIB = {"MiB on GPU": 1.0, "MiB": 1.0, "GiB": 1024.0, "GB": 1e9 / MIB, "B": 1 / MIB}


def stated_weights_mib(spec: ModelSpec, weights_name: str, observations: Iterable[Observation]) -> float | None:
    """MiB on the card of a file whose size a report states, though no peak of it is known (it ran out of memory, say).

    A file's size less its share of the embedding, which stays on the host.
    """
    for one in observations:
        if name_words(one.model) != name_words(weights_name) or not is_of(spec, one):
            continue
        found = {unit: float(text.replace(",", "")) for text, unit in _SIZE.findall(one.weights)}
        if "MiB on GPU" in found:
            return found["MiB on GPU"]
        for unit, value in found.items():
            weights = spec.n_parameters + spec.draft_head_weights
            return value * _UNIT_MIB[unit] * (1 - spec.n_embedding_weights / weights)
    return None
