"""`twofold tune`: find the fastest plan of a model on this machine by running it, and keep it for `chat` and `run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.model_options import CheckpointOptions, CtxOption, ModelOptions
from twofold.cli.option_groups import grouped
from twofold.cli.tune_view import DEFAULT_BUDGET

MAX_TRIALS = 10_000


@grouped
def tune(
    opening: CheckpointOptions,
    model: Annotated[str, typer.Argument(help="Hub id, folder, .gguf file, checkpoint or alias.")],
    ctx: CtxOption = None,
    min_quality: Annotated[
        str | None,
        typer.Option(
            "--min-quality", metavar="FLOOR", help="Let the cache type vary down to q8, q6, q4 or a KL; else it stays."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=0, max=MAX_TRIALS, help="Plans to try; 0 only verifies.")
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", min=1, max=1e6, help="Time for all of it.")
    ] = DEFAULT_BUDGET,
    storage: Annotated[
        str | None,
        typer.Option("--storage", metavar="URL", help="Keep and share the trials there: an Optuna storage."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Really fill the plan's context afterwards, and record the peak memory.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of the search.")] = 0,
    output: FormatOption = "human",
) -> None:
    """Measure plans of a model here, keep the fastest; chat and run use it from then on.

    The plan is never slower than what chat starts untuned: a winner has to beat that in a paired comparison.
    """
    given = {name: getattr(opening, name) for name in CheckpointOptions.__dataclass_fields__}
    options = ModelOptions(**given, ctx=ctx).of(model)

    from twofold.cli.tune_job import TuneRequest, open_job

    job = open_job(options, TuneRequest(min_quality, trials, budget, storage, seed))
    with _progress() as tell:
        report = job.run(tell) if trials != 0 else job.unmeasured()
        if verify:
            report = job.verify(report, tell)
    from twofold.cli.tune_view import show

    try:
        path = job.keep(report)
    except OSError:
        show(report, None, output, model)  # minutes of measuring are not lost with a disk that is full
        raise
    show(report, path, output, model)
    if report.verification is not None and not report.verification.is_filled:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """One line: what is under way, and how much of the whole is done; a line a stage where there is no terminal."""
    from twofold.cli.output import err

    sink, told = err(), set[str]()
    with sink.progress() as bar:
        task = bar.add_task("opening the model", total=1.0)

        def tell(stage: str, share: float) -> None:
            bar.update(task, description=stage, completed=share)
            if stage not in told:
                told.add(stage)
                sink.stage(stage)

        yield tell
