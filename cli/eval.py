"""`twofold eval`: how close a checkpoint is to its source, and how well its base drafts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.model_options import CalibrationOption, ResidualBitsOption, ThreadsOption, YesOption

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.engine.evaluate.report import EvalReport, EvalText
    from twofold.engine.weights import WeightSource

MAX_DEPTHS = 16


def eval(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, Hub id, folder, .gguf file or alias.")],
    residual_bits: ResidualBitsOption = None,
    quantize_seed: Annotated[int, typer.Option("--seed", help="Seed of the quantiser.")] = 0,
    calibration: CalibrationOption = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="MODEL", help="The source weights, where they are elsewhere now.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="Judge on this text instead of the shipped one.")
    ] = None,
    text_tokens: Annotated[int, typer.Option(min=256, help="How much of --text to use.")] = 8192,
    depths: Annotated[int, typer.Option(min=1, max=MAX_DEPTHS, help="Draft depths with the verifier's exact KV.")] = 4,
    threads: ThreadsOption = None,
    yes: YesOption = False,
    output: FormatOption = "human",
) -> None:
    """Measure KL and top-1 mismatch against the source weights, and the draft's recall, on text never calibrated on."""
    from twofold.cli.launch import launch
    from twofold.cli.launch_options import LaunchOptions

    launched = launch(
        LaunchOptions(
            model=model,
            residual_bits=residual_bits,
            seed=quantize_seed,
            calibration=calibration,
            threads=threads,
            kv="f16",
            assume_yes=yes,
        )
    )
    assert launched is not None
    texts, text_id = _texts(launched, text, text_tokens)
    from twofold.engine.weights import open_weights

    with open_weights(_source_path(launched, model, source)) as weights:
        report = _measure(launched, weights, texts, text_id, depths)
    _keep(launched.checkpoint_path, report)
    _show(report, output)


def _texts(launched: Launched, text: Path | None, n_tokens: int) -> tuple[list[EvalText], str]:
    from twofold.engine.evaluate.report import EvalText
    from twofold.engine.quantize.calibration import from_file, held_out

    limit = launched.plan.context_tokens
    if text is None:
        shipped = [EvalText(tuple(ids[:limit]), start) for ids, start in held_out(launched.tokenizer)]
        return shipped, "shipped:smollm2-chat rows 0-15"
    taken = from_file(text, launched.tokenizer, n_tokens)
    return [EvalText(tuple(ids[:limit])) for ids in taken.texts if len(ids) > 1], taken.id


def _source_path(launched: Launched, model: str, source: str | None) -> Path:
    """Where the source weights are: as stated, as named, or as the checkpoint remembers.

    Raises:
        TwofoldError: when the source differs from the one that was quantised.
    """
    import json

    from twofold.profiles.errors import TwofoldError
    from twofold.profiles.sources import fetch, resolve

    config = json.loads((launched.checkpoint_path / "config.json").read_text("utf-8"))["quantization_config"]
    recorded = config["source"]
    ref = resolve(source or model)
    if ref.kind == "checkpoint":
        ref = resolve(str(recorded.get("name", "")))
    path = fetch(ref)
    from twofold.engine.weights import open_weights

    with open_weights(path) as weights:
        found = weights.sha256()
    if recorded.get("sha256") not in (None, found):
        raise TwofoldError(
            f"{ref.text} is not what this checkpoint was made from",
            found=f"sha256 {found[:16]}…",
            needed=f"sha256 {str(recorded['sha256'])[:16]}…",
            hint="twofold eval CHECKPOINT --source PATH",
        )
    return path


def _measure(launched: Launched, weights: WeightSource, texts: list[EvalText], text_id: str, depths: int) -> EvalReport:
    from twofold.cli.output import err
    from twofold.engine.checkpoint import Checkpoint
    from twofold.engine.evaluate.report import evaluate

    with err().progress() as bar:
        tasks = {stage: bar.add_task(what, total=None) for stage, what in _STAGES.items()}

        def told(stage: str, done: int, total: int) -> None:
            bar.update(tasks[stage], completed=done, total=total)

        return evaluate(
            launched.spec,
            weights,
            Checkpoint.open(launched.checkpoint_path),
            launched.engine,
            texts,
            text_id=text_id,
            depths=depths,
            progress=told,
        )


_STAGES = {"layers": "layers of every version", "texts": "texts through the engine"}


def _keep(path: Path, report: EvalReport) -> None:
    """Leave the figures in the checkpoint: they are what the planner and `models ls` read."""
    from twofold.cli.output import err
    from twofold.engine.checkpoint.writer import update_measured

    try:
        update_measured(path, report.to_json())
    except OSError as error:
        err().warning(f"the figures are not kept in the checkpoint: {error}")


def _show(report: EvalReport, output: str) -> None:
    from twofold.cli.output import out, print_json

    if output == "json":
        print_json(report.to_json())
        return
    rows = []
    for name, row in report.rows.items():
        low, high = row.kl_interval
        mean, under, over = row.kl_minus_int8
        paired = "" if name == "int8_g32" else f"{mean:+.2e} ({under:+.2e} to {over:+.2e})"
        rows.append(
            [
                name,
                f"{row.kl.number:.6f}",
                f"{low:.6f} to {high:.6f}",
                f"{100 * row.top1_mismatch.number:.2f} %",
                paired,
            ]
        )
    out().table(
        f"{report.model}: {report.residual_bits}-bit residual, {report.tokens} held-out tokens ({report.text})",
        ["version", "KL (nats)", "95 % of texts", "top-1 mismatch", "KL minus int8_g32"],
        rows,
    )
    drafts = [["own KV", *(f"{recall:.3f}" for recall in report.own_kv)]]
    drafts += [
        [f"exact KV, depth {depth}", *(f"{recall:.3f}" for recall in recalls)]
        for depth, recalls in enumerate(report.exact_kv, 1)
    ]
    out().table(
        f"the draft's recall of the verifier's token, on {report.draft_tokens} tokens that the verifier would write",
        ["draft", "at 1", "2", "4", "8", "16"],
        drafts,
    )
    out().line(f"measured here against {report.source_note}; fp32 logits, the verifier as the engine computes it")
