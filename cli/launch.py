"""From a model's name to a loaded engine: resolve, refuse, make the checkpoint if needed, plan, open.

Shared by `chat`, `run`, `eval` and `bench`. What can be refused is refused before the first weight byte, and what
takes long is announced by the cost sheet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.cli.launch_options import LaunchOptions
from twofold.cli.rounding import is_slow_here, warn_of_slow_base
from twofold.cli.saved_plan import counted, refuse_other_model, warn_of_figure
from twofold.cli.tuned import tuned_plan
from twofold.profiles.errors import EngineUnavailable, InvalidOption

if TYPE_CHECKING:
    from twofold.cli.model_options import AnswerOptions, SamplingOptions
    from twofold.engine.checkpoint import Checkpoint
    from twofold.engine.engine import Engine
    from twofold.engine.session import Session
    from twofold.engine.text import ChatTemplate, Tokenizer
    from twofold.planner.acceptance import RankStatistics
    from twofold.planner.plan import Plan
    from twofold.profiles.activations import Activations
    from twofold.profiles.model_spec import ModelSpec
    from twofold.profiles.sources import ModelRef

MAX_NAME = 200
LEAST_CONTEXT = 64
"""Shorter ones are not worth timing passes for."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A model ready to answer."""

    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate
    plan: Plan
    spec: ModelSpec
    checkpoint_path: Path
    rank_key: str = ""


MAX_PLAN_BYTES = 1 << 20


def read_plan(path: Path) -> Plan:
    """A saved plan, replayed as it is.

    Raises:
        InvalidProfile: the file cannot be read, or is not a plan.
    """
    from twofold.planner.plan import Plan
    from twofold.profiles.errors import InvalidProfile

    try:
        if path.exists() and (not path.is_file() or path.stat().st_size > MAX_PLAN_BYTES):
            raise InvalidProfile(
                f"{path} is not a plan",
                needed=f"a JSON file of at most {MAX_PLAN_BYTES:,} bytes",
                hint="/plan FILE in a session saves one",
            )
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidProfile(
            f"the plan {path} cannot be read: {error}", hint="/plan FILE in a session saves one"
        ) from None


def make_plan(
    spec: ModelSpec, checkpoint_bits: int, options: LaunchOptions, checkpoint_activations: Activations | None = None
) -> Plan:
    """The plan for this machine's CPU engine under the user's settings, of a checkpoint of these bits and activations.

    Raises:
        InvalidOption: a context beyond the model's.
    """
    from twofold.cli.fit_options import local_machine
    from twofold.planner.propose import propose
    from twofold.planner.request import QualityFloor, Request, resolve_context
    from twofold.profiles.settings import get_settings

    settings = get_settings()
    # Settings bound a default; only what was asked for on the command line is an error when it is too much.
    context = options.ctx
    if context is None and settings.ctx is not None:
        context = min(settings.ctx, spec.context_length)
    k_type, v_type = options.kv_types(settings.kv)
    request = Request(
        context_tokens=resolve_context(context, spec.context_length, spec.name),
        kv_type=k_type,
        v_type=v_type,
        activations=options.activations or settings.activations or checkpoint_activations,
        quality=QualityFloor.parse("q4"),
        fixed_bits=checkpoint_bits,
        device="cpu",
        threads=options.threads or settings.threads,
    )
    return propose(spec, local_machine(), request)


def check_runnable(spec: ModelSpec) -> None:
    """Refuse what this version cannot run, before any weight byte.

    Raises:
        UnsupportedModel: no graph for the architecture. EngineUnavailable: no native kernels.
    """
    from twofold.engine.graph.registry import graph_of
    from twofold.kernels.cpu import HOW_TO_BUILD, missing_reason

    graph_of(spec)
    reason = missing_reason()
    if reason is not None:
        raise EngineUnavailable(f"the native module is missing: {reason}", hint=HOW_TO_BUILD)


def checkpoint_of(options: LaunchOptions, plan: Plan | None = None) -> Path | None:
    """The model's checkpoint (of `plan`'s width, if there is one), made now if it is missing; None after a dry run."""
    from twofold.cli.apart import run_apart
    from twofold.cli.quantize_job import Job, default_folder, refuse_changed_source
    from twofold.engine.plan_check import check_knobs
    from twofold.engine.quantize.options import DEFAULT_CALIBRATION_TOKENS, DEFAULT_RESIDUAL_BITS, QuantizeOptions
    from twofold.engine.quantize.workspace import is_finished
    from twofold.profiles.sources import identify, read_spec, resolve

    ref = identify(resolve(options.model))
    spec = read_spec(ref)
    check_runnable(spec)
    if plan is not None and ref.kind != "checkpoint":  # whose name is known when it is open
        refuse_other_model(plan, (spec.name, ref.name), options.model)
        check_knobs(plan, spec)
    if ref.kind == "checkpoint":
        return fetch_checkpoint(ref)
    bits = plan.residual_bits if plan is not None else options.residual_bits or DEFAULT_RESIDUAL_BITS
    quantize_options = QuantizeOptions(residual_bits=bits, seed=options.seed)
    folder = default_folder(ref, quantize_options)
    if not options.dry_run and is_finished(folder):
        refuse_changed_source(ref, folder, bits)
        return folder
    job = Job(ref, spec, folder, quantize_options, options.calibration, DEFAULT_CALIBRATION_TOKENS)
    if options.dry_run:
        job.show_costs()
        return None
    check_memory(spec, plan or make_plan(spec, bits, options), options)
    run_apart(lambda: job.run(assume_yes=options.assume_yes))
    return folder


def check_memory(spec: ModelSpec, plan: Plan, options: LaunchOptions) -> None:
    """Refuse a plan whose memory is not there, unless forced.

    Raises:
        NotEnoughSpace: needed against free, and what would fit.
    """
    from twofold.cli.fit_check import refuse_unless_fits
    from twofold.cli.quantize_job import available_ram_bytes

    free = available_ram_bytes()
    refuse_unless_fits(spec, plan, free, is_forced=options.is_forced, model=options.model)


def fetch_checkpoint(ref: ModelRef) -> Path:
    """A checkpoint's folder, from the Hub where it is not on this disk."""
    from twofold.profiles.sources import fetch

    return ref.path if ref.path is not None else fetch(ref)


def spec_of(checkpoint: Checkpoint) -> ModelSpec:
    """The spec under the name of the model that was quantised, not of the folder it lies in."""
    from dataclasses import replace

    name = checkpoint.config.source.get("name")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= MAX_NAME:
        return checkpoint.spec
    return replace(checkpoint.spec, name=name)


def check_width(options: LaunchOptions, bits: int) -> None:
    """Refuse another residual width than a checkpoint has: that means quantising its source again.

    Raises:
        InvalidOption: naming both widths.
    """
    if options.residual_bits not in (None, bits):
        raise InvalidOption(
            f"{options.model} was quantised with another residual width",
            found=f"--residual-bits {options.residual_bits}",
            needed=f"{bits} bits, as the checkpoint has",
            hint=f"twofold quantize SOURCE --residual-bits {options.residual_bits}, or leave the option out",
        )


def launch(options: LaunchOptions) -> Launched | None:
    """Prepare and open the model; None after a dry run.

    Raises:
        TwofoldError: whatever stands in the way, with what to do about it.
    """
    from twofold.engine.checkpoint import Checkpoint
    from twofold.engine.engine import Engine
    from twofold.engine.plan_check import check_plan
    from twofold.engine.text import ChatTemplate, Tokenizer
    from twofold.profiles.settings import get_settings
    from twofold.profiles.sources import resolve

    plan = read_plan(options.plan_path) if options.plan_path is not None else None
    _warn_of_threads(plan.threads if plan is not None else options.threads or get_settings().threads or 1)
    path = checkpoint_of(options, plan)
    if path is None:
        return None
    checkpoint = Checkpoint.open(path)
    check_width(options, checkpoint.config.residual_bits)
    spec = spec_of(checkpoint)
    made = checkpoint.config
    default = plan or make_plan(spec, made.residual_bits, options, made.activations)
    if plan is not None:
        refuse_other_model(plan, (spec.name, checkpoint.spec.name, resolve(options.model).name), options.model)
        check_plan(plan, spec, checkpoint.config)
        warn_of_figure(plan, counted(plan, spec))
    else:
        plan = tuned_plan(rank_key(checkpoint), default, options, lambda one: check_plan(one, spec, checkpoint.config))
    check_memory(spec, plan or default, options)
    plan = counted(plan or with_draft(checkpoint, default), spec)
    tokenizer = Tokenizer.from_folder(path)
    engine = Engine.of(checkpoint, plan, statistics=known_statistics(checkpoint))
    warn_of_slow_base(options.model, path, checkpoint.config, plan.activations)
    template = ChatTemplate.from_tokenizer(tokenizer)
    return Launched(engine, tokenizer, template, plan, spec, path, rank_key(checkpoint))


def _warn_of_threads(threads: int) -> None:
    """Say where more threads are wished for than can run; the wish is granted."""
    from twofold.cli.doctor_threads import too_many, usual_threads
    from twofold.cli.output import err

    if (reason := too_many(threads)) is not None:
        err().warning(f"{reason}; without a wish it would be {usual_threads() or 1}")


def rank_key(checkpoint: Checkpoint) -> str:
    """What a checkpoint's rank statistics are kept under: everything about how it was made, nothing of where it is."""
    from twofold.profiles.rank_store import rank_key as key_of

    return key_of(checkpoint.stored.to_json())


def known_statistics(checkpoint: Checkpoint) -> RankStatistics:
    """Rank statistics of a checkpoint's draft: measured when it was evaluated, corrected by what was counted here."""
    from twofold.planner.acceptance import DEFAULT_STATISTICS, learned_ranks, measured_ranks
    from twofold.profiles.rank_store import read_ranks
    from twofold.profiles.settings import get_settings

    prior = measured_ranks(checkpoint.config.measured) or DEFAULT_STATISTICS
    return learned_ranks(prior, read_ranks(rank_key(checkpoint))) if get_settings().ranks else prior


def with_draft(checkpoint: Checkpoint, plan: Plan) -> Plan:
    """`plan` with the drafts that are fastest here, by this machine's timed kernels where `bench --kernels` left
    them, else by pass times measured now or at an earlier start.
    """
    from twofold.planner.draft_choice import PassSeconds, choose_draft
    from twofold.planner.knobs import Knobs
    from twofold.planner.timed.source import KernelSource
    from twofold.planner.timed.speed import timed_pass_seconds
    from twofold.profiles.kernel_store import own_timings

    if plan.context_tokens < LEAST_CONTEXT:
        return plan
    # kernels are timed with near base levels: a checkpoint whose base drafts, in one plane, another way is timed itself
    timings = () if is_slow_here("int8", checkpoint.config) else own_timings()
    times = timed_pass_seconds(checkpoint.spec, Knobs.of(plan), KernelSource(timings, is_own=True))
    if times is None:
        measured = pass_times(checkpoint, plan)
        times = PassSeconds(measured["verify"], measured["draft"])
    choice = choose_draft(known_statistics(checkpoint), times)
    return plan.model_copy(update=choice.changes())


def pass_times(checkpoint: Checkpoint, plan: Plan) -> dict[str, dict[int, float]]:
    """Seconds of the model's passes on this machine with the plan's kernels and threads."""
    import hashlib

    from twofold.cli.version import commit
    from twofold.engine.bench.quick import VERIFY_ROWS, quick_pass_times
    from twofold.engine.engine import Engine
    from twofold.profiles.pass_store import read_pass_times, save_pass_times

    context = min(plan.context_tokens, 256)
    probe = {"context_tokens": context, "prefill_chunk": min(plan.prefill_chunk, context)}
    forced = os.environ.get("TWOFOLD_CPU_ISA", "")
    words = (rank_key(checkpoint), plan.activations, plan.threads, plan.cpu_isa, forced, commit())
    key = hashlib.sha256(repr(words).encode()).hexdigest()[:32]
    known = read_pass_times(key)
    if known is not None:
        return known
    engine = Engine.of(checkpoint, plan.with_drafts(max(VERIFY_ROWS) - 1, 0).model_copy(update=probe))
    try:
        times = quick_pass_times(engine)
    finally:
        engine.close()
    save_pass_times(key, times)
    return times


@contextmanager
def keeping_ranks(launched: Launched) -> Iterator[None]:
    """Keep what is counted inside, however it ends; the setting `ranks` turns it off."""
    from twofold.profiles.rank_store import add_ranks
    from twofold.profiles.settings import get_settings

    try:
        yield
    finally:
        if launched.rank_key and get_settings().ranks:
            add_ranks(launched.rank_key, launched.engine.ranks.counts)
            launched.engine.ranks.clear()


def open_session(
    launched: Launched, sampling: SamplingOptions, answering: AnswerOptions, *, raw: bool = False
) -> Session:
    """A conversation with the model, the model's own sampling defaults under the person's options."""
    from twofold.cli.output import err
    from twofold.engine.session import Session

    if launched.template.notice is not None and not raw:
        err().warning(launched.template.notice)
    params = sampling.params(launched.tokenizer)
    idle = sampling.idle_words(params)
    if idle is not None:
        err().warning(idle)
    return Session(
        launched.engine,
        launched.tokenizer,
        launched.template,
        params,
        system=answering.system,
        max_tokens=answering.max_tokens,
        stop_strings=answering.stop or (),
        raw=raw,
    )
