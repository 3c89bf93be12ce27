"""`twofold fit`: does it fit, how fast, what else would serve. Needs no GPU and no download beyond headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption

if TYPE_CHECKING:
    from twofold.planner.llama_fit import LlamaFile
    from twofold.planner.llama_run import LlamaRun
    from twofold.planner.machine import MachineBudget
    from twofold.planner.report import FitReport
    from twofold.planner.request import Request
    from twofold.profiles.sources import ModelRef

UNKNOWN_EXIT = 5


def fit(
    model: Annotated[
        str | None, typer.Argument(help="Hub id, folder, .gguf file or alias. Without: rank known models.")
    ] = None,
    card: Annotated[str | None, typer.Option(help="Plan for this graphics card, by name.")] = None,
    profile: Annotated[str | None, typer.Option(help="Plan for the machine of this profile.")] = None,
    ram: Annotated[str | None, typer.Option(help="Free RAM of the host in GiB.")] = None,
    ram_gb_s: Annotated[str | None, typer.Option("--ram-gb-s", help="RAM read bandwidth of the host in GB/s.")] = None,
    cpu: Annotated[str | None, typer.Option(help="Kernel tier of the host: generic, avx2, avx512, avx512vbmi.")] = None,
    ctx: Annotated[str | None, typer.Option(help="Context in tokens (32K = 32768).")] = None,
    kv: Annotated[str | None, typer.Option(help="KV cache: f16, q8_0 or q4_0.")] = None,
    min_quality: Annotated[str | None, typer.Option(help="Quality floor: q8, q6, q4, or a KL divergence.")] = None,
    margin: Annotated[str | None, typer.Option(help="MiB to leave free on each device (default 512).")] = None,
    vram: Annotated[str | None, typer.Option(help="Free VRAM in MiB, instead of what is known.")] = None,
    residual_bits: Annotated[str | None, typer.Option(help="Residual width, 4 to 8 bits.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print each term: formula, value, provenance.")] = False,
    trials: Annotated[
        str | None, typer.Option(help="Plans for a card to try beside the analytic default (100; 0: none).")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Keep and share the trials there: an Optuna storage.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="twofold, or llama.cpp: judge a GGUF file by reported runs of it.")
    ] = "twofold",
    weights_name: Annotated[
        str | None, typer.Option(help="llama.cpp: the file as reported runs name it (`Qwen3.8-27B Q6_K`).")
    ] = None,
    weights_mib: Annotated[
        str | None, typer.Option(help="llama.cpp: MiB of the file's weights on the card, as its log says.")
    ] = None,
    draft_mtp: Annotated[
        str | None, typer.Option(help="llama.cpp: tokens drafted by the file's own head (default 0).")
    ] = None,
    slots: Annotated[str | None, typer.Option(help="llama.cpp: parallel slots (default 1).")] = None,
    output: FormatOption = "human",
) -> None:
    """Say whether a model fits a machine, how fast it would be, and what else would serve.

    Exit code: 0 fits, 3 tight, 4 does not fit, 5 unknown.
    """
    from twofold.cli.fit_options import build_machine, build_request, build_trials
    from twofold.cli.llama_options import llama_file, llama_run, needs_llama

    if needs_llama(engine, weights_name, weights_mib, draft_mtp, slots):
        file, run = llama_file(weights_name, weights_mib), llama_run(ctx, kv, draft_mtp, slots)
        machine = build_machine(card, profile, ram, ram_gb_s, cpu, vram)
        raise typer.Exit(_llama(model, file, run, machine, margin, explain, output))
    request, context_given = build_request(ctx, kv, min_quality, margin, residual_bits)
    machine = build_machine(card, profile, ram, ram_gb_s, cpu, vram)
    if model is None:
        _rank(machine, request, output)
        return
    n_trials = build_trials(trials)
    raise typer.Exit(_one(model, machine, request, context_given, explain, n_trials, storage, output))


def _llama(
    model: str | None,
    file: LlamaFile,
    run: LlamaRun,
    machine: MachineBudget,
    margin: str | None,
    explain: bool,
    output: str,
) -> int:
    """One file with llama.cpp; returns the exit code."""
    from twofold.cli.fit_options import number
    from twofold.cli.fit_view import show_llama
    from twofold.cli.output import print_json
    from twofold.planner.llama_fit import fit_llama
    from twofold.profiles.errors import InvalidOption
    from twofold.profiles.observation_store import all_observations
    from twofold.profiles.sources import read_spec, resolve

    if model is None:
        raise InvalidOption("--engine llama.cpp needs a model", hint="twofold fit Qwen/Qwen3.8-27B --engine llama.cpp")
    spec = read_spec(resolve(model))
    found = fit_llama(spec, file, run, machine, all_observations(), number(margin, "--margin", 0, 1 << 20))
    if output == "json":
        print_json(found.to_json())
    else:
        show_llama(found, explain)
    return found.exit_code


def _rank(machine: MachineBudget, request: Request, output: str) -> None:
    """The shipped models on the machine, best answer first."""
    from twofold.cli.fit_view import show_ranking
    from twofold.cli.output import print_json
    from twofold.planner.rank import rank_models, ranking_json
    from twofold.profiles.readers.shipped import shipped_specs

    rows = rank_models(shipped_specs(), machine, request)
    if output == "json":
        print_json(ranking_json(rows, machine))
    else:
        show_ranking(rows, machine)


def _one(
    model: str,
    machine: MachineBudget,
    request: Request,
    context_given: bool,
    explain: bool,
    n_trials: int,
    storage: str | None,
    output: str,
) -> int:
    """One model; returns the exit code."""
    from twofold.cli.fit_view import show_explanation, show_report
    from twofold.cli.output import print_json
    from twofold.profiles.errors import UnsupportedModel
    from twofold.profiles.sources import resolve

    ref = resolve(model)
    try:
        report = _report(ref, machine, request, context_given, n_trials, storage)
    except UnsupportedModel as error:
        return _cannot_estimate(model, error, output)
    if output == "json":
        print_json(report.to_json())
    else:
        show_report(report)
        if explain:
            show_explanation(report)
    return report.exit_code


def _report(
    ref: ModelRef,
    machine: MachineBudget,
    request: Request,
    context_given: bool,
    n_trials: int,
    storage: str | None,
) -> FitReport:
    from dataclasses import replace

    from twofold.cli.fit_options import checkpoint_bits, gguf_flag
    from twofold.planner.verdict import download_estimate, fit
    from twofold.profiles.figures import reasoned
    from twofold.profiles.readers.local import check_shards
    from twofold.profiles.sources import download_bytes, read_spec
    from twofold.profiles.sources.aliases import ALIASES
    from twofold.profiles.units import MIB

    spec = read_spec(ref)
    if not context_given and request.context_tokens is not None:
        request = request.with_context(min(request.context_tokens, spec.context_length))
    if ref.path is not None and ref.path.is_dir():
        check_shards(ref.path)
    if ref.kind == "checkpoint" and ref.path is not None:
        request = replace(request, fixed_bits=checkpoint_bits(ref.path))
    download = download_estimate(spec)
    if ref.alias is not None or ref.path is not None:
        here = download_bytes(ref)
        download = replace(here, value=round(here.number / MIB, 1), unit="MiB", low=None, high=None)
    elif ref.kind == "checkpoint":
        download = reasoned(0, "MiB", "already on this disk")
    return _with_engine(
        fit(
            spec,
            machine,
            request,
            download_mib=download,
            gguf_flag=gguf_flag(ref),
            gguf_repo=ALIASES[ref.alias].hub_repo if ref.alias is not None else None,
            n_trials=n_trials,
            storage_url=storage,
        )
    )


def _with_engine(report: FitReport) -> FitReport:
    """Nothing runs here without the native module, whatever the plan says."""
    from dataclasses import replace

    from twofold.kernels.cpu import missing_reason

    reason = missing_reason() if report.runnable and report.machine.origin == "this machine" else None
    if reason is None:
        return report
    return replace(report, runnable=False, runnable_reason=f"the native module is missing: {reason}")


def _cannot_estimate(model: str, error: Exception, output: str) -> int:
    """An architecture whose layers are not understood is no guess: the verdict is unknown, with the reason."""
    from twofold.cli.output import err, out, print_json
    from twofold.profiles.errors import TwofoldError

    assert isinstance(error, TwofoldError)
    if output == "json":
        document = {
            "schema_version": 1,
            "model": model,
            "verdict": "unknown",
            "runnable": False,
            "runnable_reason": error.what,
            "plan": None,
            "memory": None,
            "speed": None,
            "shortfall_mib": None,
            "nearest": [],
            "alternatives": [],
            "notes": [part for part in (error.found, error.needed) if part],
        }
        print_json(document)
        return UNKNOWN_EXIT
    out().line(f"UNKNOWN: cannot estimate {model}: {error.what}")
    err().error(error)
    return UNKNOWN_EXIT
