"""From MODEL and options to the report of `fit`: what is read of the model, and what is known beside its shape."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

    from twofold.engine.checkpoint.config import CheckpointConfig
    from twofold.planner.acceptance import RankStatistics
    from twofold.planner.command import FitCommand
    from twofold.planner.machine import MachineBudget
    from twofold.planner.report import FitReport
    from twofold.planner.request import Request
    from twofold.profiles.activations import Activations
    from twofold.profiles.figures import Figure
    from twofold.profiles.model_spec import ModelSpec
    from twofold.profiles.sources import ModelRef

# Options that say how an answer is shown, not what is asked.
_SHOWING = ("--explain", "--format", "--html", "--pareto", "--force", "--storage", "--trials")


@dataclass(frozen=True, slots=True)
class Asked:
    """What `fit MODEL` was asked."""

    machine: MachineBudget
    request: Request
    is_context_given: bool
    is_floor_given: bool
    command: FitCommand
    n_trials: int
    storage: str | None
    with_pareto: bool
    is_forced: bool


def command_of(context: typer.Context, model: str) -> FitCommand:
    """The command as it was given: the options from the command line, none from settings or defaults."""
    from twofold.planner.command import FitCommand

    found: list[tuple[str, str | None]] = []
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.param_type_name != "option" or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[str(parameter.name)]
        name = max(parameter.opts, key=len)
        found.append((name, None if value is True else str(value)))
    return FitCommand(model, tuple(found))


def refuse_pictures(pareto: bool, html: str | None, uses_llama: bool) -> None:
    """`--pareto` and `--html` are about one model's plans of twofold.

    Raises:
        InvalidOption: naming the option.
    """
    name = "--html" if html is not None else "--pareto" if pareto else None
    if name is None:
        return
    if uses_llama:
        raise InvalidOption(
            f"{name} shows plans of twofold", found="--engine llama.cpp", hint="leave out --engine: its files are shown"
        )
    option = name if html is None else f"--html {shlex.quote(html)}"
    raise InvalidOption(f"{name} needs a model", found="no MODEL", hint=f"twofold fit Qwen/Qwen3-8B {option}")


def build_report(ref: ModelRef, asked: Asked, on_trial: Callable[[int], None] = lambda _: None) -> FitReport:
    """The answer; with the front and the curves of its pictures where they are asked for.

    Raises:
        TwofoldError: the model cannot be read, or the options contradict each other.
    """
    from twofold.cli.fit_options import gguf_flag
    from twofold.planner.quality_floor import with_known_kl
    from twofold.planner.verdict import fit
    from twofold.profiles.readers.local import check_shards
    from twofold.profiles.sources import read_spec
    from twofold.profiles.sources.aliases import ALIASES

    spec = read_spec(ref)
    request = asked.request
    if not asked.is_context_given and request.context_tokens is not None:
        request = request.with_context(min(request.context_tokens, spec.context_length))
    if ref.path is not None and ref.path.is_dir():
        check_shards(ref.path)
    if ref.kind == "checkpoint" and ref.path is not None:
        config, statistics = _checkpoint_facts(ref.path)
        bits, own = config.residual_bits, config.activations
        request = replace(request, fixed_bits=bits, fixed_activations=own, statistics=statistics)
    asked = replace(asked, machine=_with_sessions(asked.machine, ref))
    measured = _measured_kls(ref)
    request = with_known_kl(request, spec.name, measured)
    made = _made(ref, request)
    report = fit(
        spec,
        asked.machine,
        request,
        download_mib=_download(ref, spec),
        gguf_flag=gguf_flag(ref),
        gguf_repo=ALIASES[ref.alias].hub_repo if ref.alias is not None else ref.repo if ref.file is not None else None,
        gguf_tensors=_tensors(ref),
        measured_kl=measured,
        base_levels=made.base_levels if made is not None else None,
        command=asked.command.without(_SHOWING),
        n_trials=asked.n_trials,
        storage_url=asked.storage,
        on_trial=on_trial,
    )
    report = replace(_with_engine(_with_slow_base(report, ref, made, asked)), is_forced=asked.is_forced)
    return _with_pictures(report, spec, asked, request) if asked.with_pareto else report


def _with_slow_base(report: FitReport, ref: ModelRef, made: CheckpointConfig | None, asked: Asked) -> FitReport:
    """With the note that int8 activations bring little with this checkpoint, where they were or could be asked for."""
    from twofold.cli.rounding import quantise_again, slow_base_words
    from twofold.planner.rounding import OTHER, is_wide

    request = asked.request
    if made is None or request.activations not in (None, OTHER) or OTHER not in request.quality.activations:
        return report
    if not is_wide(report.evaluation.knobs, asked.machine.host, made.base_levels, OTHER):
        return report
    command = quantise_again(ref.text, made, is_in_place=ref.kind != "checkpoint")
    return replace(report, notes=(*report.notes, slow_base_words(command)))


def _with_pictures(report: FitReport, spec: ModelSpec, asked: Asked, request: Request) -> FitReport:
    """The front is down to the user's floor; where none was stated, what is below the default one is marked."""
    from twofold.planner.acceptance import DEFAULT_STATISTICS
    from twofold.planner.curves import speed_curves
    from twofold.planner.pareto import pareto_front
    from twofold.planner.request import QualityFloor
    from twofold.profiles.settings import get_settings

    stated = asked.is_floor_given or get_settings().min_quality is not None
    floor = request.quality if stated else QualityFloor.parse("q4")
    knobs, machine = report.evaluation.knobs, asked.machine
    statistics = request.statistics or DEFAULT_STATISTICS
    return replace(
        report,
        pareto=pareto_front(spec, machine, report.card, request, knobs, floor),
        curves=speed_curves(spec, knobs, report.card, machine.host, statistics),
    )


def _download(ref: ModelRef, spec: ModelSpec) -> Figure:
    from twofold.planner.verdict import download_estimate
    from twofold.profiles.figures import reasoned
    from twofold.profiles.sources import download_bytes
    from twofold.profiles.units import MIB

    if ref.alias is not None or ref.path is not None:
        here = download_bytes(ref)
        return replace(here, value=round(here.number / MIB, 1), unit="MiB", low=None, high=None)
    if ref.kind == "checkpoint":
        return reasoned(0, "MiB", "already on this disk")
    return download_estimate(spec)


def _tensors(ref: ModelRef) -> dict[str, int] | None:
    """Bytes of each tensor of a GGUF file on this disk; None where there is none, or it has types of unknown size."""
    from twofold.profiles.readers.gguf_header import read_gguf_header
    from twofold.profiles.sources.aliases import ALIASES
    from twofold.profiles.sources.wheel import cached_path, is_cached

    path = ref.path if ref.kind == "gguf" else None
    if ref.alias is not None and is_cached(ALIASES[ref.alias]):
        path = cached_path(ALIASES[ref.alias])
    if path is None:
        return None
    sizes = {name: info.n_bytes for name, info in read_gguf_header(path).tensors.items()}
    known = {name: n_bytes for name, n_bytes in sizes.items() if n_bytes is not None}
    return known if len(known) == len(sizes) else None


def _checkpoint_facts(path: Path) -> tuple[CheckpointConfig, RankStatistics | None]:
    """How a twofold checkpoint was made, with what was measured of it; and what is known of its draft: measured when it
    was evaluated, corrected by what was counted here.

    Raises:
        CorruptFile, UnsupportedModel: a configuration that the engine would refuse.
    """
    from twofold.engine.checkpoint.config import CheckpointConfig
    from twofold.planner.acceptance import DEFAULT_STATISTICS, learned_ranks, measured_ranks
    from twofold.profiles.rank_store import rank_key, read_ranks
    from twofold.profiles.readers.local import read_json_object
    from twofold.profiles.settings import get_settings

    found: dict[str, Any] = read_json_object(path / "config.json")
    config = CheckpointConfig.from_json(found.get("quantization_config"))
    prior = measured_ranks(config.measured)
    counts = read_ranks(rank_key(config.to_json())) if get_settings().ranks else ()
    ranks = learned_ranks(prior or DEFAULT_STATISTICS, counts) if prior is not None or counts else None
    return config, ranks


def _made(ref: ModelRef, request: Request) -> CheckpointConfig | None:
    """How the checkpoint was made that the plan would run: the one named, or that of the model named, where it was
    quantised here.
    """
    from twofold.profiles.settings import checkpoints_dir

    if ref.kind == "checkpoint":
        return None if ref.path is None else config_of(ref.path)
    return config_of(checkpoints_dir() / f"{ref.name}-r{request.bits()}-s0")


def _measured_kls(ref: ModelRef) -> dict[tuple[int, Activations], Figure]:
    """What `twofold eval` measured of the checkpoint named, or of those of the model named that were made here, by
    residual width and activations.
    """
    from typing import get_args

    from twofold.planner.quality import checkpoint_kl, measured_under
    from twofold.profiles.activations import Activations
    from twofold.profiles.settings import checkpoints_dir

    folders = [checkpoints_dir() / f"{ref.name}-r{bits}-s0" for bits in range(4, 9)]
    if ref.kind == "checkpoint":
        folders = [ref.path] if ref.path is not None else []
    found: dict[tuple[int, Activations], Figure] = {}
    for made in filter(None, map(config_of, folders)):
        for one in get_args(Activations):
            kl = checkpoint_kl(measured_under(made.measured, made.activations, one))
            if kl is not None:
                found[made.residual_bits, one] = kl
    return found


def config_of(folder: Path) -> CheckpointConfig | None:
    """A checkpoint's configuration; None where it is missing, unfinished or damaged: whoever opens it says so."""
    from twofold.engine.checkpoint.config import CheckpointConfig
    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.readers.local import read_json_object

    try:
        return CheckpointConfig.from_json(read_json_object(folder / "config.json").get("quantization_config"))
    except (OSError, TwofoldError):
        return None


def _with_sessions(machine: MachineBudget, ref: ModelRef) -> MachineBudget:
    """`machine` whose own sessions are told by the checkpoint that they ran: the one named, or those made of the
    model named; where it lies and what its folder is called is nothing to a session.
    """
    import glob

    from twofold.profiles.settings import checkpoints_dir

    host = machine.host
    if host is None or host.own is None:
        return machine
    is_named = ref.kind == "checkpoint" and ref.path is not None
    folders = [ref.path] if ref.path is not None and is_named else []
    if not is_named and checkpoints_dir().is_dir():
        folders = sorted(checkpoints_dir().glob(f"{glob.escape(ref.name)}-r[4-8]-s*"))
    found = [_identity(folder) for folder in folders]
    keys = frozenset(key for key, _ in found if key is not None)
    name = found[0][1] if is_named and found else None
    return replace(machine, host=replace(host, own=replace(host.own, checkpoints=keys, source_name=name)))


def _identity(folder: Path) -> tuple[str | None, str | None]:
    """A checkpoint's key, and the name of the model that it was made from; None where its configuration has none."""
    from twofold.profiles.rank_store import rank_key

    config = config_of(folder)
    if config is None:
        return None, None
    name = config.source.get("name")
    return rank_key(config.to_json()), name if isinstance(name, str) and name.strip() else None


def _with_engine(report: FitReport) -> FitReport:
    """Nothing runs here without the native module, whatever the plan says."""
    from twofold.kernels.cpu import missing_reason

    reason = missing_reason() if report.runnable and report.machine.origin == "this machine" else None
    if reason is None:
        return report
    return replace(report, runnable=False, runnable_reason=f"the native module is missing: {reason}")
