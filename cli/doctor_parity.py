"""`twofold doctor --parity`: the text of a model under every setting of the speed knobs, shown to be one text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twofold.cli.output import err, out, print_json

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.engine.engine import Engine
    from twofold.engine.parity.compare import Compared
    from twofold.engine.parity.record import Record
    from twofold.engine.parity.variants import Variant
    from twofold.planner.plan import Plan

SCHEMA_VERSION = 1


def check_parity(
    model: str, output_format: str, *, full: bool, n_prompts: int | None = None, n_tokens: int | None = None
) -> None:
    """Compare and print; the numbers of prompts and of tokens are the usual ones unless given.

    Raises:
        EngineFailed: at the first difference. TwofoldError: whatever keeps the model from being opened.
    """
    from twofold.cli.launch import launch
    from twofold.cli.launch_options import LaunchOptions
    from twofold.engine.parity import prompts as shipped

    launched = launch(LaunchOptions(model=model))
    assert launched is not None
    usual = (shipped.FULL_PROMPTS, shipped.FULL_TOKENS) if full else (shipped.PROMPTS, shipped.TOKENS)
    prompts, tokens = n_prompts or usual[0], n_tokens or usual[1]
    found = run_parity(launched, prompts, tokens, full=full)
    if output_format == "json":
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "ok": True,
                "model": launched.plan.model,
                "activations": launched.plan.activations,
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
    out().table(f"{launched.plan.model}, {launched.plan.activations} activations: speed knobs", columns, rows)
    out().line(
        f"{len(found)} settings, {prompts} prompts of {tokens} tokens each, greedy and sampled with a seed: "
        "the same tokens, from the same logits to the bit"
    )


def run_parity(launched: Launched, n_prompts: int, n_tokens: int, *, full: bool) -> list[Compared]:
    """What each variant showed; kept as it goes, so that an interrupted run goes on where it stopped.

    Raises:
        EngineFailed: at the first difference; the settings before it were equal.
        KeyboardInterrupt, SystemExit: stopped, after saying what is done.
    """
    from twofold.engine.engine import Engine
    from twofold.engine.parity.compare import compare
    from twofold.engine.parity.prompts import parity_prompts
    from twofold.engine.parity.variants import all_variants, some_variants

    texts = parity_prompts(launched.tokenizer, launched.template, n_prompts)
    context = min(launched.spec.context_length, max(len(text) for text in texts) + n_tokens)
    plan = launched.plan.model_copy(update={"context_tokens": context})
    variants = (all_variants if full else some_variants)(tiers(launched.engine))
    record = _record(launched, plan, texts, n_tokens, full=full)
    known = {one.variant for one in record.done}
    left = [variant for variant in variants if variant not in known]
    if known:
        err().prose(f"goes on where it stopped: {len(known)} of {len(variants)} settings were equal ({record.path})")

    def load(plan: Plan) -> Engine:
        return Engine.of(launched.engine.checkpoint, plan, kernels=launched.engine.backend.name)

    pace = _Pace(left)
    try:
        with err().progress() as bar:
            task = bar.add_task("answers", total=1)

            def share(done: int, total: int) -> None:
                bar.update(task, completed=(len(known) + len(left) * done / total) / len(variants))

            for one in compare(plan, left, texts, n_tokens, load, share, record.expected):
                record.add(one)
                if not err().stream.isatty():  # where there is no bar
                    err().prose(f"{len(record.done)} of {len(variants)} settings equal: {one.variant}{pace.after(one)}")
    except (KeyboardInterrupt, SystemExit):  # SIGTERM and SIGHUP end in the second one
        err().prose(f"{len(record.done)} of {len(variants)} settings are done; the same command goes on from there")
        raise
    record.close()
    order = {variant: place for place, variant in enumerate(variants)}
    return sorted(record.done, key=lambda one: order[one.variant])


def _record(launched: Launched, plan: Plan, texts: Sequence[Sequence[int]], n_tokens: int, *, full: bool) -> Record:
    """What an earlier run of the same comparison left."""
    import hashlib

    from twofold.cli.version import commit
    from twofold.engine.parity.record import Record
    from twofold.profiles.settings import state_dir

    what = f"{launched.rank_key or launched.checkpoint_path}-{len(texts)}-{n_tokens}-{full}"
    path = state_dir() / "parity" / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.json"
    identity = {
        "build": commit(),
        "kernels": tiers(launched.engine),
        "cache": [plan.k_type, plan.v_type],
        "activations": plan.activations,
        "context": plan.context_tokens,
        "prompts": hashlib.sha256(repr(texts).encode()).hexdigest(),
        "tokens": n_tokens,
    }
    return Record.open(path, identity)


class _Pace:
    """How long what is left may take, by the settings done so far on the same kernels."""

    def __init__(self, left: Sequence[Variant]) -> None:
        self._left, self._seconds = list(left), dict[str, list[float]]()
        self._since = time.monotonic()

    def after(self, one: Compared) -> str:
        """Words for what is left, from the time since the last setting."""
        now = time.monotonic()
        self._seconds.setdefault(one.variant.cpu_isa, []).append(now - self._since)
        self._since = now
        self._left.remove(one.variant)
        if not self._left:
            return ""
        means = {isa: sum(seconds) / len(seconds) for isa, seconds in self._seconds.items()}
        usual = max(means.values())
        left = sum(means.get(variant.cpu_isa, usual) for variant in self._left)
        return f"; about {_span(left)} left"


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"


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
