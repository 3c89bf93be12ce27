"""`twofold fit`: does it fit, how fast, what else would serve. Needs no GPU and no download beyond headers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.model_options import ActivationsOption

if TYPE_CHECKING:
    from twofold.cli.fit_report import Asked
    from twofold.planner.llama_fit import LlamaFile
    from twofold.planner.llama_run import LlamaRun
    from twofold.planner.machine import MachineBudget
    from twofold.planner.request import Request

UNKNOWN_EXIT = 5


def fit(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Argument(help="Hub id, folder, .gguf file or alias. Without: rank known models.")
    ] = None,
    card: Annotated[str | None, typer.Option(metavar="NAME", help="Plan for this graphics card, by name.")] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="Plan for the machine of this profile.")] = None,
    ram: Annotated[str | None, typer.Option(metavar="GIB", help="Free RAM of the host in GiB.")] = None,
    ram_gb_s: Annotated[
        str | None, typer.Option("--ram-gb-s", metavar="GB/S", help="RAM read bandwidth of the host in GB/s.")
    ] = None,
    cpu: Annotated[
        str | None, typer.Option(metavar="TIER", help="Kernel tier of the host: generic, avx2, avx512, avx512vbmi.")
    ] = None,
    ctx: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Context in tokens (32K = 32768; default 8192).")
    ] = None,
    kv: Annotated[
        str | None, typer.Option(metavar="TYPE", help="KV cache: f16, q8_0 or q4_0 (default: f16 where it fits).")
    ] = None,
    kv_v: Annotated[
        str | None, typer.Option("--kv-v", metavar="TYPE", help="The cache of V, where it is not K's.")
    ] = None,
    activations: ActivationsOption = None,
    min_quality: Annotated[
        str | None, typer.Option(metavar="FLOOR", help="Quality floor: q8, q6, q4, or a KL divergence.")
    ] = None,
    margin: Annotated[
        str | None, typer.Option(metavar="MIB", help="MiB to leave free on each device (default 512).")
    ] = None,
    vram: Annotated[str | None, typer.Option(metavar="MIB", help="Free VRAM in MiB, instead of what is known.")] = None,
    residual_bits: Annotated[str | None, typer.Option(metavar="BITS", help="Residual width, 4 to 8 bits.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print each term: formula, value, provenance.")] = False,
    pareto: Annotated[bool, typer.Option("--pareto", help="Show speed against quality and context.")] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the answer with pictures as one HTML file.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Exit with 0 all the same, and take --vram as stated.")
    ] = False,
    trials: Annotated[
        str | None,
        typer.Option(metavar="N", help="Plans for a card to try beside the analytic default (100; 0: none)."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Keep and share the trials there: an Optuna storage.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="twofold, or llama.cpp: judge a GGUF file by reported runs of it.")
    ] = "twofold",
    weights_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="llama.cpp: a file of MODEL as reported runs name it (`Qwen3.8-27B Q6_K`); MODEL may be left out "
            "where such a run, or a known model, has that name.",
        ),
    ] = None,
    weights_mib: Annotated[
        str | None,
        typer.Option(metavar="MIB", help="llama.cpp: MiB of the file's weights on the card, as its log says."),
    ] = None,
    mmproj_mib: Annotated[
        str | None, typer.Option(metavar="MIB", help="llama.cpp: MiB of a vision projector's file.")
    ] = None,
    draft_mtp: Annotated[
        str | None, typer.Option(metavar="N", help="llama.cpp: tokens drafted by the file's own head (default 0).")
    ] = None,
    slots: Annotated[str | None, typer.Option(metavar="N", help="llama.cpp: parallel slots (default 1).")] = None,
    output: FormatOption = "human",
) -> None:
    """Say whether a model fits a machine, how fast it would be, and what else would serve.

    Exit code: 0 fits, 3 tight, 4 does not fit or is known to miss --min-quality, 5 unknown.

    The verdict is about memory. A --min-quality that is a KL is judged only where somebody measured the model's; else
    the first line says that it was not.
    """
    from twofold.cli.fit_options import build_machine, build_request, build_trials
    from twofold.cli.fit_report import Asked, command_of, refuse_pictures
    from twofold.cli.html.write import check_target
    from twofold.cli.llama_options import llama_file, llama_run, needs_llama
    from twofold.planner.search.storage import check_url

    page = check_target(html) if html is not None else None
    uses_llama = needs_llama(engine, weights_name, weights_mib, mmproj_mib, draft_mtp, slots)
    if uses_llama or model is None:
        refuse_pictures(pareto, html, uses_llama)
    if storage is not None:
        check_url(storage)
    if uses_llama:
        file = llama_file(weights_name, weights_mib, mmproj_mib)
        run = llama_run(ctx, kv, kv_v, draft_mtp, slots)
        machine = build_machine(card, profile, ram, ram_gb_s, cpu, vram, margin, is_forced=force)
        code = _llama(model, file, run, machine, margin, explain, output)
        raise typer.Exit(0 if force else code)
    request, context_given = build_request(ctx, kv, min_quality, margin, residual_bits, kv_v, activations)
    machine = build_machine(card, profile, ram, ram_gb_s, cpu, vram, margin, is_forced=force)
    if model is None:
        _rank(machine, request, output)
        return
    asked = Asked(
        machine=machine,
        request=request,
        is_context_given=context_given,
        is_floor_given=min_quality is not None,
        command=command_of(context, model),
        n_trials=build_trials(trials),
        storage=storage,
        with_pareto=pareto or page is not None,
        is_forced=force,
    )
    raise typer.Exit(_one(model, asked, explain, pareto, page, output))


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
    from twofold.cli.llama_options import spec_of_name
    from twofold.cli.output import print_json
    from twofold.planner.llama_fit import fit_llama
    from twofold.profiles.observation_store import all_observations
    from twofold.profiles.sources import read_spec, resolve

    seen = all_observations()
    spec = spec_of_name(file.name, seen) if model is None else read_spec(resolve(model))
    found = fit_llama(spec, file, run, machine, seen, number(margin, "--margin", 0, 1 << 20))
    if output == "json":
        print_json(found.to_json())
    else:
        show_llama(found, explain)
    return found.exit_code


def _rank(machine: MachineBudget, request: Request, output: str) -> None:
    """The shipped models on the machine, best answer first."""
    from twofold.cli.fit_ways import show_ranking
    from twofold.cli.output import print_json
    from twofold.planner.rank import rank_models, ranking_json
    from twofold.profiles.readers.shipped import shipped_specs

    rows = rank_models(shipped_specs(), machine, request)
    if output == "json":
        print_json(ranking_json(rows, machine))
    else:
        show_ranking(rows, machine)


def _one(model: str, asked: Asked, explain: bool, pareto: bool, html: Path | None, output: str) -> int:
    """One model; returns the exit code."""
    from twofold.cli.fit_progress import showing_trials
    from twofold.cli.fit_report import build_report
    from twofold.cli.fit_view import show_report
    from twofold.cli.html.write import write_report
    from twofold.cli.output import print_json
    from twofold.profiles.errors import UnsupportedModel
    from twofold.profiles.sources import resolve

    ref = resolve(model)
    try:
        with showing_trials(asked.n_trials) as tell:
            report = build_report(ref, asked, tell)
    except UnsupportedModel as error:
        code = _cannot_estimate(model, error, output)
        return 0 if asked.is_forced else code
    if html is not None:
        write_report(html, report, asked.command)
    if output == "json":
        print_json(report.to_json())
        return report.exit_code
    show_report(report, explain=explain, pareto=pareto)
    return report.exit_code


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
    reason = error.what if error.what.startswith("cannot estimate") else f"cannot estimate {model}: {error.what}"
    out().line(f"UNKNOWN: {reason}")
    error.hint = error.hint or "twofold fit, without a model, ranks those that it understands"
    err().error(error)
    return UNKNOWN_EXIT
