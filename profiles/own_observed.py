"""Own sessions as observed runs of a profile: one for each setting that was tried, the newest last."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from twofold.profiles.figures import Figure, measured, unknown
from twofold.profiles.hardware import ObservedRun
from twofold.profiles.series import iqr
from twofold.profiles.session_store import SessionRecord, Speed, model_name
from twofold.profiles.units import MIB

BASE_BITS = 2
_SHORT = "too short to tell"
_NO_PEAK = "no session told its peak"
_PEAK = "highest resident set, mapped weights included"


def observed_runs(sessions: Iterable[SessionRecord]) -> tuple[ObservedRun, ...]:
    """Sessions of equal settings together: medians of their speeds, the highest of their peaks."""
    groups: dict[tuple[object, ...], list[SessionRecord]] = {}
    for one in sessions:
        key = _setting(one)
        groups.setdefault(key, []).append(one)
        groups[key] = groups.pop(key)  # the newest last
    return tuple(_run(group) for group in groups.values())


def _setting(one: SessionRecord) -> tuple[object, ...]:
    return (
        *(one.model, one.residual_bits, one.context_tokens, one.kv, one.draft_nodes, one.draft_depth),
        one.lookup_nodes,
        one.activations,
        *(one.prefill_chunk, one.threads, one.isa, one.build, one.version, one.command),
    )


def _run(group: Sequence[SessionRecord]) -> ObservedRun:
    last, n = group[-1], len(group)
    by = f"own sessions ({last.command})"
    peaks = [one.peak_mib for one in group if one.peak_mib is not None]
    process = [one.process_mib for one in group if one.process_mib is not None]
    checks = [one.tokens_per_check for one in group if one.tokens_per_check is not None]
    firsts = [one.first_token_s for one in group if one.first_token_s is not None]
    return ObservedRun(
        model=model_name(last.model),
        residual_bits=last.residual_bits,
        context_tokens=last.context_tokens,
        kv_type=last.k_type,
        draft_nodes=last.draft_nodes,
        memory_peak_mib=measured(max(peaks), "MiB", f"{by}: {_PEAK}", n=len(peaks))
        if peaks
        else unknown("MiB", _NO_PEAK),
        decode_tok_s=_speed(group, lambda one: one.decode, by) or unknown("tok/s", _SHORT),
        tokens_per_check=measured(_median(checks), "tokens", by, n=len(checks))
        if checks
        else unknown("tokens", _SHORT),
        v_type=last.v_type,
        activations=last.activations,
        quant=f"{BASE_BITS}-bit base + {last.residual_bits}-bit residual",
        source=last.command,
        device="cpu",
        threads=last.threads,
        isa=last.isa,
        build=last.build,
        version=last.version,
        draft_depth=last.draft_depth,
        lookup_nodes=last.lookup_nodes or None,
        prefill_chunk=last.prefill_chunk,
        n_parameters=last.n_parameters,
        weights_mib=measured(round(last.weights_bytes / MIB, 2), "MiB", "size of the weight files"),
        memory_planned_mib=Figure(last.planned_mib, "MiB", "reasoned", "the plan's sum of terms"),
        process_mib=measured(max(process), "MiB", f"{by}: neither weights nor arrays", n=n) if process else None,
        filled_tokens=max(one.filled_tokens for one in group),
        decode_tokens=_tokens(last.decode),
        prefill_tokens=_tokens(last.prefill),
        prefill_tok_s=_speed(group, lambda one: one.prefill, by),
        first_token_s=measured(_median(firsts), "s", by, n=len(firsts)) if firsts else None,
        observed_on=max(one.day for one in group),
    )


def _tokens(speed: Speed | None) -> int | None:
    return speed.tokens if speed is not None else None


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 4)


def _speed(group: Sequence[SessionRecord], of: Callable[[SessionRecord], Speed | None], by: str) -> Figure | None:
    """The median over sessions, with their spread; a single one's own samples and spread."""
    speeds = [speed for one in group if (speed := of(one)) is not None]
    if not speeds:
        return None
    if len(speeds) == 1:
        return measured(speeds[0].tok_s, "tok/s", by, n=speeds[0].n, spread=speeds[0].spread)
    rates = [speed.tok_s for speed in speeds]
    return measured(_median(rates), "tok/s", f"{by}, median of sessions", n=len(rates), spread=round(iqr(rates), 4))
