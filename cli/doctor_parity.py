"""`twofold doctor --parity`: the text of a model under every setting of the speed knobs, shown to be one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.cli.output import err, out, print_json

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.engine.engine import Engine
    from twofold.engine.parity.compare import Compared
    from twofold.planner.plan import Plan

SCHEMA_VERSION = 1


def check_parity(model: str, output_format: str, *, full: bool) -> None:
    """Compare and print.

    Raises:
        EngineFailed: at the first difference. TwofoldError: whatever keeps the model from being opened.
    """
    from twofold.cli.launch import launch
    from twofold.cli.launch_options import LaunchOptions

    launched = launch(LaunchOptions(model=model))
    assert launched is not None
    prompts, tokens, found = run_parity(launched, full=full)
    if output_format == "json":
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "ok": True,
                "model": launched.plan.model,
                "prompts": prompts,
                "tokens_per_answer": tokens,
                "variants": [_row(one) for one in found],
            }
        )
        return
    rows = [
        [*map(str, knobs.values()), str(n_tokens), f"{per_check:.2f}", "equal" if index else "the reference"]
        for index, one in enumerate(found)
        for knobs, n_tokens, per_check in [(_knobs(one), one.tokens, one.tokens_per_check)]
    ]
    columns = ["drafts", "threads", "kernels", "prompt chunk", "tokens", "tokens per check", "text and logits"]
    out().table(f"{launched.plan.model}: speed knobs", columns, rows)
    out().line(
        f"{len(found)} settings, {prompts} prompts of {tokens} tokens each, greedy and sampled with a seed: "
        "the same tokens, from the same logits to the bit"
    )


def run_parity(launched: Launched, *, full: bool) -> tuple[int, int, list[Compared]]:
    """Prompts, tokens an answer, and what each variant showed; a line on stderr is kept up while it runs.

    Raises:
        EngineFailed: at the first difference; the settings before it were equal.
    """
    from twofold.engine.engine import Engine
    from twofold.engine.parity import prompts as shipped
    from twofold.engine.parity.compare import compare
    from twofold.engine.parity.variants import all_variants, some_variants

    n_prompts, n_tokens = (shipped.FULL_PROMPTS, shipped.FULL_TOKENS) if full else (shipped.PROMPTS, shipped.TOKENS)
    texts = shipped.parity_prompts(launched.tokenizer, launched.template, n_prompts)
    context = min(launched.spec.context_length, max(len(text) for text in texts) + n_tokens)
    plan = launched.plan.model_copy(update={"context_tokens": context})
    variants = (all_variants if full else some_variants)(tiers(launched.engine))
    kernels = launched.engine.backend.name

    def load(plan: Plan) -> Engine:
        return Engine.of(launched.engine.checkpoint, plan, kernels=kernels)

    with err().progress() as bar:
        task = bar.add_task("answers", total=1)
        comparing = compare(
            plan, variants, texts, n_tokens, load, lambda done, total: bar.update(task, completed=done / total)
        )
        return n_prompts, n_tokens, list(comparing)


def tiers(engine: Engine) -> list[str]:
    """Instruction sets to compare, lowest first; the one that TWOFOLD_CPU_ISA names where it names one."""
    import os

    from twofold.kernels.cpu import native

    if engine.backend.name == "naive":
        return ["naive"]
    forced = os.environ.get("TWOFOLD_CPU_ISA")
    return [forced] if forced else list(native().available_tiers())


def _knobs(one: Compared) -> dict[str, object]:
    variant = one.variant
    return {
        "drafts": variant.drafts,
        "threads": variant.threads,
        "kernels": variant.cpu_isa,
        "prefill_chunk": variant.prefill_chunk,
    }


def _row(one: Compared) -> dict[str, object]:
    return _knobs(one) | {"tokens": one.tokens, "tokens_per_check": round(one.tokens_per_check, 4), "equal": True}
