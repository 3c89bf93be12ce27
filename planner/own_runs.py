"""What own sessions observed on this machine, put to use by the next plan.

Trust goes in this order: own sessions of this build and these kernels, then runs that others shared from identical
hardware, then the estimate. A session of another build or instruction set is advice: it is named and moves nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twofold.planner.knobs import Knobs
from twofold.planner.terms import Term
from twofold.profiles.activations import USUAL
from twofold.profiles.figures import Figure, measured, reported
from twofold.profiles.hardware import ObservedRun
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.series import iqr
from twofold.profiles.session_store import LEAST_PROCESS_MIB, SessionRecord, Speed, model_name
from twofold.profiles.units import MIB

# Resident memory of the CPU engine's process beside weights and the engine's arrays: interpreter, numpy, terminal; and
# what a tokenizer takes by the size of its vocabulary. Two models, 49,152 and 262,144 entries, took 91.7 and 272.6 MiB
# on one machine; 55 MiB were measured without a tokenizer.
PROCESS_MIB = 50.0
TOKENIZER_KIB = 0.87
PROCESS_RANGE = (0.8, 1.5)
# One session alone has no residual: what is allowed for then, and where a session was of another model.
LEAST_RESIDUAL_MIB = 4.0
ASSUMED_RESIDUAL_MIB = 16.0
ASSUMED_RESIDUAL = 0.15


def plain_name(text: str) -> str:
    """A model's name to compare: without folders, revision and case."""
    return model_name(text).split("@")[0].casefold()


@dataclass(frozen=True, slots=True)
class OwnRuns:
    """Sessions on this machine's hardware, newest last, and what others shared from identical hardware.

    Attributes:
        build, version: of this installation; sessions of others are advice.
        isa: the kernels that would run, where a variable forces them; None: the plan's.
        shared: (profile's name, run) of imported profiles.
        checkpoints: keys of the checkpoints that are planned for; their sessions are of the model, whatever its name.
        source_name: what the model of such a checkpoint was called before it was quantised.
    """

    sessions: tuple[SessionRecord, ...]
    build: str
    version: str
    isa: str | None = None
    shared: tuple[tuple[str, ObservedRun], ...] = ()
    checkpoints: frozenset[str] = frozenset()
    source_name: str | None = None

    def of_this_build(self, knobs: Knobs) -> list[SessionRecord]:
        """The sessions that may calibrate a plan."""
        return [one for one in self.sessions if self._is_ours(one, knobs)]

    def _is_ours(self, one: SessionRecord, knobs: Knobs) -> bool:
        return (one.build, one.version, one.isa) == (self.build, self.version, self.isa or knobs.cpu_isa)

    def names_of(self, spec: ModelSpec) -> set[str]:
        """What sessions of the model may call it."""
        return {plain_name(name) for name in (spec.name, self.source_name) if name}

    def is_of(self, one: SessionRecord, spec: ModelSpec) -> bool:
        """Whether a session was of the model: of the same checkpoint, or of one made from a model of that name."""
        if one.checkpoint is not None and one.checkpoint in self.checkpoints:
            return True
        return one.vocab_size == spec.vocab_size and plain_name(one.model) in self.names_of(spec)


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of a model like the planned one; figures are measured here, or reported by others."""

    decode_tok_s: Figure
    prefill_tok_s: Figure | None
    first_token_s: Figure | None
    peak_mib: Figure | None
    note: str

    def to_json(self) -> dict[str, object]:
        figures = {
            "decode_tok_s": self.decode_tok_s,
            "prefill_tok_s": self.prefill_tok_s,
            "first_token_s": self.first_token_s,
            "peak_mib": self.peak_mib,
        }
        return {name: figure.to_json() if figure else None for name, figure in figures.items()} | {"note": self.note}


def process_mib(spec: ModelSpec) -> tuple[float, float, float]:
    """What the process takes where no session says: least, likely, most."""
    likely = PROCESS_MIB + TOKENIZER_KIB * spec.vocab_size / 1024
    return PROCESS_RANGE[0] * likely, likely, PROCESS_RANGE[1] * likely


def process_term(spec: ModelSpec, knobs: Knobs, own: OwnRuns | None) -> Term | None:
    """The process's part as own sessions measured it; None where there was none of this build."""
    sessions = own.of_this_build(knobs) if own else []
    usable = [one for one in sessions if one.process_mib is not None and _process(one) >= LEAST_PROCESS_MIB]
    if not usable:
        return None
    assert own is not None
    same = [one for one in usable if own.is_of(one, spec)]
    if not same:
        return _by_another_model(spec, min(reversed(usable), key=lambda one: abs(one.vocab_size - spec.vocab_size)))
    nearest = min(reversed(same), key=lambda one: _far(one, knobs))
    value = _process(nearest)
    residual = max(abs(_process(one) - value) for one in same)
    how = f"the farthest of {len(same)}"
    if len(same) == 1:
        residual, how = ASSUMED_RESIDUAL_MIB, "assumed until there is a second session"
    elif residual < LEAST_RESIDUAL_MIB:
        residual, how = LEAST_RESIDUAL_MIB, f"allowed for at least; {len(same)} sessions differ less"
    by = f"nearest own session, context {nearest.context_tokens}; ± {residual:.1f} MiB, {how}"
    return _term(value, residual, by, len(same))


def _by_another_model(spec: ModelSpec, nearest: SessionRecord) -> Term:
    value = _process(nearest) + TOKENIZER_KIB * (spec.vocab_size - nearest.vocab_size) / 1024
    value = max(value, PROCESS_MIB)
    residual = max(ASSUMED_RESIDUAL_MIB, ASSUMED_RESIDUAL * value)
    by = (
        f"nearest own session: {nearest.model}, moved by {TOKENIZER_KIB} KiB for each token of the vocabulary; "
        f"± {residual:.1f} MiB, assumed for another model"
    )
    return _term(value, residual, by, 0)


def _term(value: float, residual: float, by: str, n: int) -> Term:
    low, high = max(0.0, value - residual), value + residual
    return Term("process", "ram", int(value * MIB), int(low * MIB), int(high * MIB), by, n)


def _process(one: SessionRecord) -> float:
    """Without the threads' scratch, which the plan counts apart."""
    return max(0.0, (one.process_mib or 0.0) - one.planned.get("thread_scratch", 0) / MIB)


def _far(one: SessionRecord, knobs: Knobs) -> float:
    """How far a session's plan was from this one."""
    ratio = max(one.context_tokens, knobs.context_tokens) / min(one.context_tokens, knobs.context_tokens)
    tree = (abs(one.draft_nodes - knobs.draft_nodes) + abs(one.lookup_nodes - knobs.lookup_nodes)) / 16
    quality = (one.kv != (knobs.k_type, knobs.v_type)) + (one.activations != knobs.activations)
    return ratio - 1 + tree + 4 * (one.threads != knobs.threads) + quality


def observed(spec: ModelSpec, knobs: Knobs, own: OwnRuns | None) -> Observed | None:
    """What sessions of this model and these quality knobs reached here; else what identical hardware reached; else
    nothing.
    """
    if own is None or knobs.device != "cpu":
        return None
    sessions = [one for one in own.of_this_build(knobs) if one.decode and _is_alike(one, spec, knobs, own)]
    if sessions:
        return _from_sessions(sorted(sessions, key=lambda one: _far(one, knobs)))
    names = own.names_of(spec)
    for profile, run in own.shared:
        is_same = plain_name(run.model) in names and run.residual_bits == knobs.residual_bits
        is_same = is_same and (run.activations or USUAL) == knobs.activations
        is_cache = (run.kv_type, run.v_type or run.kv_type) == (knobs.k_type, knobs.v_type)
        if is_same and is_cache and run.decode_tok_s.is_number:
            return _from_profile(profile, run)
    return None


def _is_alike(one: SessionRecord, spec: ModelSpec, knobs: Knobs, own: OwnRuns) -> bool:
    is_same = own.is_of(one, spec) and one.residual_bits == knobs.residual_bits
    is_same = is_same and one.activations == knobs.activations
    return is_same and one.kv == (knobs.k_type, knobs.v_type) and one.threads == knobs.threads


def _from_sessions(sessions: Sequence[SessionRecord]) -> Observed:
    """Medians over the sessions; the first is the nearest."""
    nearest, n = sessions[0], len(sessions)
    words = [f"a tree of {nearest.draft_nodes}"] if nearest.draft_nodes else []
    if nearest.lookup_nodes:
        words.append(f"up to {nearest.lookup_nodes} tokens looked up in the text")
    drafts = ", ".join(words) or "no draft"
    by = (
        f"own sessions; nearest: {nearest.command}, context {nearest.context_tokens}, {drafts}, "
        f"{nearest.filled_tokens} tokens filled"
    )

    def figure(values: list[float], unit: str) -> Figure | None:
        if not values:
            return None
        spread = round(iqr(values), 4) if len(values) > 1 else None
        return measured(round(statistics.median(values), 4), unit, by, n=len(values), spread=spread)

    def rates(of: Callable[[SessionRecord], Speed | None]) -> list[float]:
        return [speed.tok_s for one in sessions if (speed := of(one)) is not None]

    decode = figure(rates(lambda one: one.decode), "tok/s")
    assert decode is not None
    alike = [one for one in sessions if one.context_tokens == nearest.context_tokens]
    peaks = [one.peak_mib for one in alike if one.peak_mib is not None]
    firsts = [one.first_token_s for one in sessions if one.first_token_s is not None]
    prefill = figure(rates(lambda one: one.prefill), "tok/s")
    note = f"{n} own session{'s' if n > 1 else ''} of this build"
    return Observed(decode, prefill, figure(firsts, "s"), figure(peaks, "MiB"), note)


def _from_profile(profile: str, run: ObservedRun) -> Observed:
    by = f"profile {profile}, identical hardware: {run.decode_tok_s.by}"[:250]
    peak = reported(run.memory_peak_mib.number, "MiB", by) if run.memory_peak_mib.is_number else None
    speed = reported(run.decode_tok_s.number, "tok/s", by)
    return Observed(speed, None, None, peak, "shared from identical hardware: advice until there are own sessions")


def unused_sessions(spec: ModelSpec, knobs: Knobs, own: OwnRuns | None) -> str | None:
    """Sessions that were not used, in words; None where there are none."""
    if own is None or knobs.device != "cpu":
        return None
    used = own.of_this_build(knobs)
    others = [one for one in own.sessions if one not in used and own.is_of(one, spec)]
    if not others:
        return None
    last, n = others[-1], len(others)
    speed = f", the last at {last.decode.tok_s:.1f} tok/s" if last.decode else ""
    what = f"{n} own session{'s' if n > 1 else ''} of another build or instruction set"
    return f"{what} ({last.build}, {last.isa}{speed}): advice only, nothing is calibrated by them"
