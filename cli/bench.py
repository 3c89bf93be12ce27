"""`twofold bench`: how fast a model is here; figures as medians with their spread, refused where results are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.model_options import ModelOptions
from twofold.cli.option_groups import grouped

if TYPE_CHECKING:
    from rich.progress import TaskID

    from twofold.cli.launch import Launched
    from twofold.engine.bench.report import BenchOptions

SCHEMA_VERSION = 1


@grouped
def bench(
    opening: ModelOptions,
    model: Annotated[str, typer.Argument(help="Hub id, folder, .gguf file, checkpoint or alias.")],
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Length of each answer (tg): 32, or 128 with --full.")
    ] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option("--prompt-tokens", help="Length of the timed prompt (pp): 128, or 512 with --full.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Longer texts, and up to three times as long until the noise is small.")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="Rounds of each measurement; else until the noise is small.")
    ] = None,
    widths: Annotated[str, typer.Option("--widths", metavar="ROWS", help="Passes to time, by rows.")] = "1,2,4,8,16",
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Time products, attention and the parts of a pass; plans use them.")
    ] = False,
    tiers: Annotated[
        str | None, typer.Option("--tiers", metavar="NAMES", help="With --kernels: instruction sets, else all here.")
    ] = None,
    working_set_mib: Annotated[
        int, typer.Option("--working-set-mib", help="With --kernels: weights to read; at most a tenth of free memory.")
    ] = 1024,
    ops: Annotated[bool, typer.Option("--ops", help="Show where the time of a pass goes, by operation.")] = False,
    output: FormatOption = "human",
) -> None:
    """Time prompts (pp), answers (tg) and passes, on real chat text; checks the results first."""
    options = bench_options(tokens, prompt_tokens, parse_widths(widths), repeats, full=full)
    wanted = opening.of(model)

    from twofold.cli.launch import launch

    launched = launch(wanted)
    if launched is None:
        return
    if kernels:
        from twofold.cli.bench_kernels import bench_kernels

        bench_kernels(launched, options, output, tiers, working_set_mib)
    elif ops:
        bench_operations(launched, options, output)
    else:
        bench_model(launched, options, output)


def bench_options(
    tokens: int | None, prompt_tokens: int | None, widths: tuple[int, ...], repeats: int | None, *, full: bool
) -> BenchOptions:
    """What is timed: at length, or so that a small model takes a few minutes on two cores.

    Raises:
        InvalidOption: a number out of range.
    """
    from twofold.engine.bench.report import BenchOptions

    usual_tokens, usual_prompt, seconds = (128, 512, (20.0, 20.0, 60.0)) if full else (32, 128, (10.0, 10.0, 30.0))
    return BenchOptions(
        usual_tokens if tokens is None else tokens,
        usual_prompt if prompt_tokens is None else prompt_tokens,
        widths,
        repeats,
        *seconds,
    )


@contextmanager
def stages() -> Iterator[Callable[[str, float], None]]:
    """A progress display, one line for each stage; a stage is over when the next one begins. Where there is no terminal
    to draw on, each stage is told in a line when it begins.
    """
    from twofold.cli.output import err

    sink = err()
    with sink.progress() as bar:
        tasks: dict[str, TaskID] = {}

        def tell(stage: str, share: float) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bar.update(task, completed=1)
                tasks[stage] = bar.add_task(stage, total=1)
                sink.stage(stage)
            bar.update(tasks[stage], completed=share)

        yield tell


def parse_widths(text: str) -> tuple[int, ...]:
    """`1,2,4` as numbers.

    Raises:
        InvalidOption: something that is not a whole number.
    """
    from twofold.profiles.errors import InvalidOption

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidOption(
            "--widths is not a list of row counts", found=repr(text), needed="like 1,2,4,8,16", hint="--widths 1,4,16"
        ) from None


def bench_model(launched: Launched, options: BenchOptions, output: str) -> None:
    """Time the model as a whole and print the result.

    Raises:
        EngineFailed: results are wrong, so there is no speed. InvalidOption: the context is too short.
    """
    from twofold.cli.bench_facts import provenance
    from twofold.cli.bench_view import show_report
    from twofold.cli.observe import keep_bench
    from twofold.cli.output import print_json
    from twofold.engine.bench.report import run_bench
    from twofold.engine.engine import Engine
    from twofold.planner.plan import Plan

    kernels = launched.engine.backend.name

    def load(plan: Plan) -> Engine:
        return Engine.of(launched.engine.checkpoint, plan, kernels=kernels)

    with stages() as tell:
        report = run_bench(
            launched.plan,
            launched.tokenizer,
            launched.template,
            options,
            load,
            tell,
        )
    keep_bench(launched, report)
    about = document_head(launched)
    if output == "json":
        print_json(about | report.to_json())
        return
    show_report(report, _title(launched), provenance(about["machine"], about["commit"]))


def bench_operations(launched: Launched, options: BenchOptions, output: str) -> None:
    """Profile passes of every width, operation by operation.

    Raises:
        EngineUnavailable: without the native kernels. EngineFailed: results are wrong.
    """
    from twofold.cli.bench_facts import provenance
    from twofold.cli.bench_view import show_operations
    from twofold.cli.output import print_json
    from twofold.engine.bench.operations import time_operations
    from twofold.engine.bench.prompts import bench_texts
    from twofold.engine.bench.self_check import check_kernels
    from twofold.engine.engine import Engine

    widest = max(options.widths)
    text = bench_texts(launched.tokenizer, launched.template, options.prompt_tokens + widest)["prose"].long
    wide = launched.plan.with_drafts(widest - 1, 0)
    engine = Engine.of(launched.engine.checkpoint, wide, kernels=launched.engine.backend.name)
    with stages() as tell:
        tell("checking the kernels", 0)
        check = check_kernels(launched.engine.checkpoint, engine.backend.ops, text)
        times = time_operations(engine, text, options.widths, options.repeats, lambda share: tell("passes", share))
    about = document_head(launched)
    if output == "json":
        print_json(about | {"operations": [one.to_json() for one in times], "self_check": check.to_json()})
        return
    show_operations(times, _title(launched), provenance(about["machine"], about["commit"]))


def document_head(launched: Launched) -> dict[str, Any]:
    """What every result states first: schema, machine, commit, model, plan."""
    from twofold.cli.bench_facts import machine_facts
    from twofold.cli.version import commit
    from twofold.probes.cpu import read_cpu
    from twofold.probes.memory import read_memory

    return {
        "schema_version": SCHEMA_VERSION,
        "machine": machine_facts(read_cpu(), read_memory(), _isa(launched), launched.plan.threads),
        "commit": commit(),
        "model": launched.plan.model,
        "plan": launched.plan.model_dump(mode="json"),
    }


def _isa(launched: Launched) -> str:
    """The tier that ran, or `naive`."""
    from twofold.kernels.cpu import native

    return str(native().isa()) if launched.engine.backend.name == "cpu" else "naive"


def _title(launched: Launched) -> str:
    from twofold.profiles.text import cache_words

    plan = launched.plan
    cache = cache_words(plan.k_type, plan.v_type)
    return f"{plan.model}: {plan.residual_bits}-bit residual, KV {cache}, {plan.activations} activations"
