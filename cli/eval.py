"""`twofold eval`: how close a checkpoint is to its source, and how well its base drafts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.model_options import CheckpointOptions
from twofold.cli.option_groups import grouped

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.cli.launch_options import LaunchOptions
    from twofold.engine.evaluate.cache import CacheReport
    from twofold.engine.evaluate.report import EvalReport, EvalText
    from twofold.engine.weights import WeightSource
    from twofold.profiles.activations import Activations

MAX_DEPTHS = 16
SCHEMA_VERSION = 1


@grouped
def eval(
    opening: CheckpointOptions,
    model: Annotated[str, typer.Argument(help="Checkpoint folder, Hub id, folder, .gguf file or alias.")],
    quantize_seed: Annotated[int, typer.Option("--seed", help="Seed of the quantiser.")] = 0,
    source: Annotated[
        str | None, typer.Option("--source", metavar="MODEL", help="The source weights, where they are elsewhere now.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="Judge on this text instead of the shipped one.")
    ] = None,
    text_tokens: Annotated[int, typer.Option(min=256, help="How much of --text to use.")] = 8192,
    depths: Annotated[int, typer.Option(min=1, max=MAX_DEPTHS, help="Draft depths with the verifier's exact KV.")] = 4,
    output: FormatOption = "human",
) -> None:
    """Measure KL and top-1 mismatch against the source weights, and the draft's recall, on text never calibrated on.

    With --kv, --kv-k or --kv-v: what that cache costs, by the engine with it against the engine with f16. With
    --activations int8: the verifier that rounds so.
    """
    from twofold.cli.launch import launch

    options = _launch_options(opening, model, quantize_seed)
    launched = launch(options)
    assert launched is not None
    texts, text_id = _texts(launched, text, text_tokens)
    if options.kv_types() != ("f16", "f16"):
        cost = _measure_cache(launched, texts, text_id)
        found = {_CACHES: {f"{cost.k_type}/{cost.v_type}": cost.to_json()}}
        _keep(launched.checkpoint_path, found, launched.plan.activations)
        _show_cache(launched, cost, output)
        return
    from twofold.engine.weights import open_weights

    with open_weights(_source_path(launched, model, source)) as weights:
        report = _measure(launched, weights, texts, text_id, depths)
    _keep(launched.checkpoint_path, report.to_json(), report.activations)
    _show(report, output)


_CACHES = "kv_caches"
"""Where a checkpoint keeps what caches cost, by the types of K and V."""


def _launch_options(opening: CheckpointOptions, model: str, quantize_seed: int) -> LaunchOptions:
    from twofold.cli.launch_options import LaunchOptions, parse_activations

    unless = None if opening.kv else "f16"  # a side that is not asked for, whatever the settings say
    return LaunchOptions(
        model=model,
        residual_bits=opening.residual_bits,
        kv=opening.kv,
        kv_k=opening.kv_k or unless,
        kv_v=opening.kv_v or unless,
        activations=parse_activations(opening.activations),
        threads=opening.threads,
        assume_yes=opening.yes,
        seed=quantize_seed,
        calibration=opening.calibration,
        is_forced=opening.force,
    )


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
    from twofold.engine.evaluate.report import evaluate

    with err().progress() as bar:
        tasks = {stage: bar.add_task(what, total=None) for stage, what in _STAGES.items()}

        def told(stage: str, done: int, total: int) -> None:
            bar.update(tasks[stage], completed=done, total=total)

        return evaluate(
            launched.spec,
            weights,
            launched.engine.checkpoint,
            launched.engine,
            texts,
            text_id=text_id,
            depths=depths,
            progress=told,
        )


_STAGES = {"layers": "layers of every version", "texts": "texts through the engine"}


def _measure_cache(launched: Launched, texts: list[EvalText], text_id: str) -> CacheReport:
    from twofold.cli.output import err
    from twofold.engine.engine import Engine
    from twofold.engine.evaluate.cache import compare_caches

    plan = launched.plan.model_copy(update={"k_type": "f16", "v_type": "f16"})
    exact = Engine.of(launched.engine.checkpoint, plan, kernels=launched.engine.backend.name)
    with err().progress() as bar:
        task = bar.add_task("texts through both engines", total=len(texts))
        return compare_caches(
            exact,
            launched.engine,
            (launched.plan.k_type, launched.plan.v_type),
            texts,
            text_id,
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def _keep(path: Path, found: dict[str, Any], activations: Activations) -> None:
    """Leave the figures in the checkpoint: they are what the planner and `models ls` read.

    What caches cost is kept beside the rest, whichever was measured last; so is all that was found under other
    activations than the checkpoint's own.
    """
    from twofold.cli.output import err
    from twofold.engine.checkpoint import CheckpointConfig
    from twofold.engine.checkpoint.writer import update_measured
    from twofold.planner.quality import OTHER_ACTIVATIONS
    from twofold.profiles.readers.local import read_json_object

    made = CheckpointConfig.from_json(read_json_object(path / "config.json")["quantization_config"])
    before = dict(made.measured)
    others = before.pop(OTHER_ACTIVATIONS, {})
    if activations == made.activations:
        before = _joined(before, found)
    else:
        others = others | {activations: _joined(others.get(activations, {}), found)}
    try:
        update_measured(path, before | ({OTHER_ACTIVATIONS: others} if others else {}))
    except OSError as error:
        err().warning(f"the figures are not kept in the checkpoint: {error}")


def _joined(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    caches = before.get(_CACHES, {}) | found.get(_CACHES, {})
    whole = before | found if _CACHES in found else found
    return whole | ({_CACHES: caches} if caches else {})


def _show_cache(launched: Launched, cost: CacheReport, output: str) -> None:
    from twofold.cli.output import out, print_json

    if output == "json":
        plan = launched.plan
        about = {"schema_version": SCHEMA_VERSION, "model": plan.model, "activations": plan.activations}
        print_json(about | {"cache": cost.to_json()})
        return
    low, high = cost.kl_interval
    out().table(
        f"{launched.plan.model}: K as {cost.k_type}, V as {cost.v_type}, {cost.tokens} held-out tokens ({cost.text})",
        ["against", "KL (nats)", "95 % of texts", "top-1 mismatch"],
        [
            [
                "an f16 cache",
                f"{cost.kl.number:.6f}",
                f"{low:.6f} to {high:.6f}",
                f"{100 * cost.top1_mismatch.number:.2f} %",
            ]
        ],
    )
    out().line(
        "measured here: the engine's logits with this cache against its own with f16, weights and text the same; texts "
        f"of at most {cost.longest} tokens, a longer context may cost more"
    )


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
        f"{report.model}: {report.residual_bits}-bit residual, {report.activations} activations of the verifier, "
        f"{report.tokens} held-out tokens ({report.text})",
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
    out().prose(f"measured here against {report.source_note}; fp32 logits, the verifier as the engine computes it")
