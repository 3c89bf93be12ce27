"""Own sessions calibrate the next plan; those of another build, and others' runs, only advise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from twofold.planner.evaluate import evaluate
from twofold.planner.knobs import Knobs
from twofold.planner.machine import HostBudget, MachineBudget, with_host
from twofold.planner.memory import cpu_memory
from twofold.planner.own_runs import (
    ASSUMED_RESIDUAL_MIB,
    LEAST_RESIDUAL_MIB,
    OwnRuns,
    observed,
    process_mib,
    process_term,
    unused_sessions,
)
from twofold.profiles.figures import measured, reported
from twofold.profiles.hardware import ObservedRun
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.session_store import SessionRecord
from twofold.profiles.units import MIB

KNOBS = Knobs(
    device="cpu", context_tokens=8192, residual_bits=6, k_type="f16", v_type="f16", resident=(), draft_nodes=0,
    draft_depth=0, prefill_chunk=64, threads=2, cpu_isa="avx2",
)  # fmt: skip


def session(**changes: Any) -> SessionRecord:
    fields: dict[str, Any] = {
        "command": "chat", "ending": "end", "day": "2026-11-30", "machine": "a" * 32, "cpu": "AMD EPYC", "cores": 2,
        "model": "HuggingFaceTB/SmolLM2-135M", "vocab_size": 49152, "n_parameters": 134515008,
        "weights_bytes": 203240180, "residual_bits": 6, "context_tokens": 8192, "k_type": "f16", "v_type": "f16",
        "draft_nodes": 0, "draft_depth": 0, "prefill_chunk": 64, "threads": 2, "isa": "avx2", "build": "b1",
        "version": "1", "planned_mib": 508.7, "planned": {"thread_scratch": 2 * MIB}, "peak_mib": 264.0,
        "process_mib": 92.0, "filled_tokens": 82, "answers": 1, "checks": 40,
        "decode": {"tok_s": 38.0, "n": 3, "tokens": 120}, "first_token_s": 0.4,
    }  # fmt: skip
    return SessionRecord.model_validate_json(json.dumps(fields | changes))


def own(*sessions: SessionRecord, **changes: Any) -> OwnRuns:
    return replace(OwnRuns(sessions, "b1", "1"), **changes)


@pytest.fixture
def smol(shipped: Callable[[str], ModelSpec]) -> ModelSpec:
    return shipped("HuggingFaceTB/SmolLM2-135M")


def test_without_sessions_the_process_is_an_estimate(smol: ModelSpec, shipped: Callable[[str], ModelSpec]) -> None:
    term = cpu_memory(smol, KNOBS).find("process")
    assert term is not None and term.figure.source == "reasoned" and term.low < term.bytes < term.high
    low, likely, high = process_mib(smol)
    assert low < 91.7 < high and low < likely < high  # measured with this model
    low, _, high = process_mib(shipped("google/gemma-3-270m"))
    assert low < 272.6 < high
    assert process_term(smol, KNOBS, None) is None and process_term(smol, KNOBS, own()) is None


def test_one_session_calibrates_with_an_assumed_residual(smol: ModelSpec) -> None:
    term = cpu_memory(smol, KNOBS, own(session())).find("process")
    assert term is not None
    assert term.figure.source == "measured" and term.figure.n == 1
    assert term.bytes == 90 * MIB  # the threads' scratch is a term of its own
    assert (term.low, term.high) == ((90 - ASSUMED_RESIDUAL_MIB) * MIB, (90 + ASSUMED_RESIDUAL_MIB) * MIB)
    assert "nearest own session" in term.by and "until there is a second session" in term.by


def test_more_sessions_bound_it_by_what_they_differ(smol: ModelSpec) -> None:
    far, near = session(process_mib=112.0, context_tokens=512), session(process_mib=93.0)
    term = process_term(smol, KNOBS, own(far, near))
    assert term is not None and term.n == 2
    assert (term.bytes, term.low, term.high) == (91 * MIB, (91 - 19) * MIB, (91 + 19) * MIB)
    term = process_term(smol, KNOBS.with_(context_tokens=600), own(far, near))
    assert term is not None and term.bytes == 110 * MIB
    term = process_term(smol, KNOBS, own(near, near))
    assert term is not None and term.high - term.bytes == LEAST_RESIDUAL_MIB * MIB


def test_the_next_plan_is_nearer_to_what_was_seen(smol: ModelSpec) -> None:
    """The error of the process's term, before and after: a machine whose process takes 140 MiB."""
    before, after = process_mib(smol)[1], process_term(smol, KNOBS, own(session(process_mib=142.0)))
    assert after is not None
    assert abs(after.bytes / MIB - 140) < 1 < abs(before - 140)


def test_another_models_session_is_moved_by_its_vocabulary(smol: ModelSpec) -> None:
    gemma = session(model="gemma3-270m", vocab_size=262144, process_mib=274.6)
    term = process_term(smol, KNOBS, own(gemma))
    assert term is not None and term.n == 0 and term.figure.source == "reasoned"
    assert term.low < 91.7 * MIB < term.high
    assert "gemma3-270m" in term.by
    both = process_term(smol, KNOBS, own(gemma, session()))
    assert both is not None and both.bytes == 90 * MIB


@pytest.mark.parametrize("change", [{"build": "b2"}, {"version": "2"}, {"isa": "avx512"}])
def test_another_build_is_advice_only(smol: ModelSpec, change: dict[str, str]) -> None:
    other = own(session(**change))
    assert process_term(smol, KNOBS, other) is None and observed(smol, KNOBS, other) is None
    said = unused_sessions(smol, KNOBS, other)
    assert said is not None and "advice only" in said and "38.0 tok/s" in said
    assert unused_sessions(smol, KNOBS, own(session())) is None


def test_a_forced_instruction_set_is_the_one_that_counts(smol: ModelSpec) -> None:
    forced = own(session(isa="generic"), isa="generic")
    assert observed(smol, KNOBS, forced) is not None


def test_the_speed_seen_is_that_of_like_sessions(smol: ModelSpec) -> None:
    like = [session(decode={"tok_s": speed, "tokens": 50}) for speed in (30.0, 40.0, 50.0)]
    unlike = [
        session(residual_bits=5), session(k_type="q8_0"), session(activations="int8"), session(threads=1),
        session(model="other"), session(decode=None),
    ]  # fmt: skip
    seen = observed(smol, KNOBS, own(*like, *unlike))
    assert seen is not None
    assert (seen.decode_tok_s.number, seen.decode_tok_s.n, seen.decode_tok_s.source) == (40.0, 3, "measured")
    assert seen.peak_mib is not None and seen.peak_mib.number == 264.0
    assert observed(smol, KNOBS.with_(device="cuda"), own(*like)) is None
    assert observed(smol, KNOBS, own(*unlike)) is None


def test_sessions_that_looked_drafts_up_say_so(smol: ModelSpec) -> None:
    for drafts, words in (
        ({}, "no draft"),
        ({"lookup_nodes": 8}, "up to 8 tokens looked up in the text"),
        ({"draft_nodes": 4, "lookup_nodes": 8}, "a tree of 4, up to 8 tokens looked up in the text"),
    ):
        seen = observed(smol, KNOBS, own(session(**drafts)))
        assert seen is not None and f", {words}, " in seen.decode_tok_s.by
    near = [session(lookup_nodes=nodes) for nodes in (16, 0, 4)]
    seen = observed(smol, KNOBS.with_(lookup_nodes=5), own(*near))
    assert seen is not None and "up to 4 tokens" in seen.decode_tok_s.by


def _shared(speed: float) -> tuple[str, ObservedRun]:
    run = ObservedRun(
        model="HuggingFaceTB/SmolLM2-135M@main", residual_bits=6, context_tokens=8192, kv_type="f16", draft_nodes=0,
        memory_peak_mib=reported(300.0, "MiB", "x"), decode_tok_s=measured(speed, "tok/s", "session", n=2),
        tokens_per_check=measured(1.0, "tokens", "session"),
    )  # fmt: skip
    return "friend", run


def test_identical_hardware_comes_after_own_sessions(smol: ModelSpec) -> None:
    seen = observed(smol, KNOBS, own(shared=(_shared(99.0),)))
    assert seen is not None and (seen.decode_tok_s.number, seen.decode_tok_s.source) == (99.0, "reported")
    assert "friend" in seen.decode_tok_s.by and "advice" in seen.note
    seen = observed(smol, KNOBS, own(session(), shared=(_shared(99.0),)))
    assert seen is not None and (seen.decode_tok_s.number, seen.decode_tok_s.source) == (38.0, "measured")
    assert process_term(smol, KNOBS, own(shared=(_shared(99.0),))) is None


def test_the_verdict_uses_it(smol: ModelSpec) -> None:
    free = reported(500.0, "MiB", "test")
    host = HostBudget(free, reported(20.0, "GB/s", "test"), "avx2", reported(2, "cores", "test"))
    assert evaluate(smol, KNOBS, None, host, 0.0).verdict == "tight"
    with_own = replace(host, own=own(session(process_mib=92.0), session(process_mib=93.0)))
    found = evaluate(smol, KNOBS, None, with_own, 0.0)
    assert found.verdict == "fits" and found.observed is not None


def test_a_stated_host_is_not_the_one_that_sessions_ran_on(smol: ModelSpec) -> None:
    free = reported(500.0, "MiB", "test")
    host = HostBudget(free, reported(20.0, "GB/s", "test"), "avx2", reported(2, "cores", "test"), own=own(session()))
    machine = MachineBudget("test", "stated", (), host)
    for stated in ({"ram_gb_s": 14.0, "isa": None}, {"ram_gb_s": None, "isa": "avx2"}):
        other = with_host(machine, ram_mib=None, **stated).host
        assert other is not None and other.own is None
    same = with_host(machine, ram_mib=16384.0, ram_gb_s=None, isa=None).host
    assert same is not None and same.own is not None


def test_a_process_of_nothing_calibrates_nothing(smol: ModelSpec) -> None:
    assert process_term(smol, KNOBS, own(session(planned={"thread_scratch": 500 * MIB}))) is None


def test_a_checkpoint_is_told_by_what_it_is_and_not_by_its_folder(smol: ModelSpec) -> None:
    in_folder, key = replace(smol, name="g0"), "c" * 32
    kept = session(checkpoint=key)
    assert observed(in_folder, KNOBS, own(kept)) is None
    for known in (own(kept, checkpoints=frozenset({key})), own(kept, source_name="org/smollm2-135m")):
        assert (observed(in_folder, KNOBS, known) is not None) is (known.checkpoints != frozenset())
    by_name = own(kept, source_name="HuggingFaceTB/SmolLM2-135M")
    assert observed(in_folder, KNOBS, by_name) is not None
    term = process_term(in_folder, KNOBS, own(kept, checkpoints=frozenset({key})))
    assert term is not None and term.n == 1
    other_build = own(session(checkpoint=key, build="b0"), checkpoints=frozenset({key}))
    assert "1 own session of another build" in str(unused_sessions(in_folder, KNOBS, other_build))


def test_sessions_and_shared_runs_of_other_activations_are_others(smol: ModelSpec) -> None:
    int8, (name, run) = KNOBS.with_(activations="int8"), _shared(99.0)
    assert observed(smol, int8, own(session(), shared=((name, run),))) is None
    seen = observed(smol, int8, own(session(), session(activations="int8", decode={"tok_s": 50.0, "tokens": 50})))
    assert seen is not None and (seen.decode_tok_s.number, seen.decode_tok_s.n) == (50.0, 1)
    shared = name, run.model_copy(update={"activations": "int8"})
    assert observed(smol, int8, own(shared=(shared,))) is not None
    assert observed(smol, KNOBS, own(shared=(shared,))) is None


def test_a_shared_run_with_another_cache_for_values_is_another_run(smol: ModelSpec) -> None:
    name, run = _shared(99.0)
    assert observed(smol, KNOBS, own(shared=((name, run.model_copy(update={"v_type": "q4_0"})),))) is None
