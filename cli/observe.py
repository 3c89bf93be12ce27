"""What a session leaves for the next plan: its plan, what the engine reserved, its peak memory, its speed.

A record is made when a session ends well or is interrupted; one that failed says nothing about a healthy run. The
setting `sessions` turns it off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.engine.bench.report import BenchReport
    from twofold.engine.session import Session
    from twofold.engine.session.tally import Tally
    from twofold.profiles.session_store import SessionRecord, Speed

LEAST_TOKENS = 16
"""Fewer computed or generated tokens give no speed worth keeping."""

PEAK_BOUND_MIB = 64.0
"""How far a peak may be above the plan before it is reported."""

PLAN_BOUND_MIB = 1.0
"""How far a component may be from the plan before it is reported; the plan is exact for models that the engine runs."""

Command = Literal["chat", "run", "bench"]
Ending = Literal["end", "interrupted"]


@dataclass(frozen=True, slots=True)
class Peak:
    """Highest resident set of the process, and the part of it that is neither weights nor the engine's arrays; MiB."""

    peak_mib: float
    process_mib: float | None


@contextmanager
def _harmless(what: str) -> Iterator[None]:
    """An observation is not worth a session: what goes wrong in keeping one is said, and that is all."""
    from twofold.cli.output import err
    from twofold.profiles.text import one_line

    try:
        yield
    except Exception as error:  # noqa: BLE001 - the answer was given, and stays given
        err().warning(f"{what} ({type(error).__name__}: {one_line(str(error), 160)})")


@contextmanager
def keeping_session(launched: Launched, session: Session, command: Command) -> Iterator[None]:
    """Keep what happens inside as an observation, unless it fails."""
    from twofold.probes.process import major_faults, reset_peak
    from twofold.profiles.settings import get_settings

    if not get_settings().sessions:
        yield
        return
    warn_of_differences(launched)
    is_fresh = reset_peak()
    faults = major_faults()
    ending: Ending = "end"
    try:
        yield
    except KeyboardInterrupt:
        ending = "interrupted"
        _keep(launched, session, command, ending, faults, is_fresh)
        raise
    _keep(launched, session, command, ending, faults, is_fresh)


@_harmless("this session is not kept for the next plan")
def _keep(
    launched: Launched, session: Session, command: Command, ending: Ending, faults: int | None, is_fresh: bool
) -> None:
    from twofold.probes.process import major_faults
    from twofold.profiles.session_store import add_session

    tally = session.tally
    if not tally.answers:
        return
    peak = measure_peak(launched) if is_fresh else None
    now = major_faults()
    measured: dict[str, Any] = speeds_of(tally) | {
        "peak_mib": peak.peak_mib if peak else None,
        "process_mib": peak.process_mib if peak else None,
        "filled_tokens": tally.filled_tokens,
        "answers": tally.answers,
        "checks": tally.checks,
        "major_faults": now - faults if now is not None and faults is not None else None,
        "reread_steps": launched.engine.reread_steps,
    }
    record = make_record(launched, command, ending, measured)
    add_session(record)
    warn_of_peak(record)


def speeds_of(tally: Tally) -> dict[str, Any]:
    """Speeds over all answers of a session, None where too little was computed."""
    import statistics

    from twofold.profiles.series import iqr
    from twofold.profiles.session_store import Speed

    decode: Speed | None = None
    if tally.tokens >= LEAST_TOKENS and tally.decode_seconds > 0:
        spread = round(iqr(tally.rates), 4) if len(tally.rates) > 1 else None
        rate = round(tally.tokens / tally.decode_seconds, 4)
        decode = Speed(tok_s=rate, n=max(1, len(tally.rates)), spread=spread, tokens=tally.tokens)
    prefill: Speed | None = None
    if tally.computed_tokens >= LEAST_TOKENS and tally.prefill_seconds > 0:
        rate = round(tally.computed_tokens / tally.prefill_seconds, 4)
        prefill = Speed(tok_s=rate, n=tally.answers, tokens=tally.computed_tokens)
    first = statistics.median(tally.first_tokens) if tally.first_tokens else None
    return {
        "decode": decode,
        "prefill": prefill,
        "tokens_per_check": round(tally.tokens / tally.checks, 4) if tally.checks else None,
        "first_token_s": round(first, 4) if first is not None else None,
    }


def measure_peak(launched: Launched) -> Peak | None:
    """The process's peak since `reset_peak`, and what of it the engine does not account for.

    The kernel keeps the height of the peak, not what it was made of: weights and arrays are those in memory now, when
    the text is at its longest.
    """
    from twofold.engine.allocations import resident
    from twofold.probes.process import process_memory

    memory = process_memory()
    if memory is None:
        return None
    held = resident(launched.engine)
    process = None if held is None else max(0.0, memory.peak_mib - held.total / MIB)
    return Peak(round(memory.peak_mib, 3), None if process is None else round(process, 3))


def make_record(launched: Launched, command: Command, ending: Ending, measured: dict[str, Any]) -> SessionRecord:
    """The record of a session on this machine."""
    import datetime

    from twofold.cli.version import commit, package_version
    from twofold.engine.allocations import allocated
    from twofold.planner.components import planned
    from twofold.probes.cpu import read_cpu
    from twofold.probes.memory import read_memory
    from twofold.profiles.session_store import SessionRecord, machine_key, model_name
    from twofold.profiles.text import one_line

    cpu, plan, spec = read_cpu(ask_native=False), launched.plan, launched.spec
    cores = cpu.physical_cores
    return SessionRecord(
        command=command,
        ending=ending,
        day=datetime.date.today(),
        machine=machine_key(cpu.model, cpu.logical_cores, read_memory().total_mib),
        cpu=one_line(str(cpu.model.value or "unknown"), 200),
        cores=int(cores.number) if cores.is_number else None,
        checkpoint=launched.rank_key or None,
        model=model_name(plan.model),
        vocab_size=spec.vocab_size,
        n_parameters=spec.n_parameters,
        weights_bytes=launched.engine.checkpoint.mapped_bytes,
        residual_bits=plan.residual_bits,
        context_tokens=plan.context_tokens,
        k_type=plan.k_type,
        v_type=plan.v_type,
        activations=plan.activations,
        draft_nodes=plan.draft_nodes,
        draft_depth=plan.draft_depth,
        lookup_nodes=plan.lookup_nodes,
        prefill_chunk=plan.prefill_chunk,
        threads=plan.threads,
        isa=running_isa(launched),
        build=commit(),
        version=package_version(),
        planned_mib=plan.expected_ram_mib,
        planned={name: term.bytes for name, term in planned(spec, plan).items()},
        allocated=allocated(launched.engine),
        **measured,
    )


def running_isa(launched: Launched) -> str:
    """The tier that ran, or `naive`."""
    from twofold.kernels.cpu import native

    return str(native().isa()) if launched.engine.backend.name == "cpu" else "naive"


def bench_record(launched: Launched, report: BenchReport) -> SessionRecord:
    """What a benchmark of the whole model measured; no peak, since several engines were open."""
    figures = report.figures()

    def speed(name: str, tokens: int) -> Speed | None:
        from twofold.profiles.session_store import Speed

        figure = figures[name]
        if tokens < LEAST_TOKENS:
            return None
        return Speed(tok_s=figure.number, n=figure.n or 1, spread=figure.spread, tokens=tokens)

    per_check = report.per_check["chosen"]
    measured = {
        "decode": speed("decode_tok_s", report.options.tokens),
        "prefill": speed("prefill_tok_s", report.options.prompt_tokens),
        "tokens_per_check": per_check.number if per_check.is_number else None,
        "filled_tokens": report.options.prompt_tokens,
        "answers": figures["decode_tok_s"].n or 1,
    }
    return make_record(launched, "bench", "end", measured)


@_harmless("this benchmark is not kept for the next plan")
def keep_bench(launched: Launched, report: BenchReport) -> None:
    """Keep a benchmark's speeds for the next plan."""
    from twofold.profiles.session_store import add_session
    from twofold.profiles.settings import get_settings

    if get_settings().sessions:
        add_session(bench_record(launched, report))


@_harmless("the plan could not be compared with what the engine reserved")
def warn_of_differences(launched: Launched) -> None:
    """Say loudly where the engine reserved something else than its dry run, or than the plan counts."""
    from twofold.cli.output import err
    from twofold.engine.allocations import GROWING, allocated, differences
    from twofold.planner.components import planned

    for found in differences(launched.engine):
        err().warning(
            f"the engine reserved {found.allocated / MIB:,.2f} MiB for {found.component}, its dry run says "
            f"{found.expected / MIB:,.2f} MiB: report this with the output of twofold doctor"
        )
    counted = planned(launched.spec, launched.plan)
    for name, n_bytes in allocated(launched.engine).items():
        term = counted.get(name)
        if term is not None and name not in GROWING and abs(n_bytes - term.bytes) > PLAN_BOUND_MIB * MIB:
            err().warning(
                f"the engine reserved {n_bytes / MIB:,.1f} MiB for {name}, the plan counts {term.bytes / MIB:,.1f} MiB "
                f"({term.by})"
            )


def warn_of_peak(record: SessionRecord) -> None:
    """Say when a session took more memory than its plan allowed for at most."""
    from twofold.cli.output import err

    if record.peak_mib is not None and record.peak_mib > record.planned_mib + PEAK_BOUND_MIB:
        err().warning(
            f"this session's peak was {record.peak_mib:,.0f} MiB, planned were {record.planned_mib:,.0f} MiB; "
            "the next plan takes it into account"
        )
