"""`bench`: a checkpoint under a plan, timed whole, as one value object and its JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twofold.engine.bench.decode import Setting, Speed, time_decoding, time_prefill, tokens_per_check
from twofold.engine.bench.passes import PassTime, time_passes
from twofold.engine.bench.prompts import KINDS, bench_texts
from twofold.engine.bench.rounds import Rule
from twofold.engine.bench.self_check import SelfCheck, check_kernels
from twofold.engine.engine import Engine
from twofold.engine.text import ChatTemplate, Tokenizer
from twofold.planner.plan import Plan
from twofold.profiles.errors import InvalidOption
from twofold.profiles.figures import Figure

PLAIN, CHOSEN = "plain", "chosen"
SHAPES = {"chain_4": (4, 4), "tree_16": (16, 8)}
"""Draft nodes and passes of the settings that are always run beside the plan's own."""
MAX_WIDTH = 1024
Told = Callable[[str, float], None]
"""What is being done, and how much of its limit is used up (0 to 1)."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is timed. `repeats` None: until the noise is small or stable, or a measurement's seconds are over."""

    tokens: int = 128
    prompt_tokens: int = 512
    widths: tuple[int, ...] = (1, 2, 4, 8, 16)
    repeats: int | None = None
    pass_seconds: float = 20.0
    prompt_seconds: float = 20.0
    answer_seconds: float = 60.0

    def __post_init__(self) -> None:
        _check_range("--tokens", self.tokens, 1, 1 << 20)
        _check_range("--prompt-tokens", self.prompt_tokens, 1, 1 << 24)
        if self.repeats is not None:
            _check_range("--repeats", self.repeats, 1, 100_000)
        for width in self.widths:
            _check_range("--widths", width, 1, MAX_WIDTH)
        if not self.widths or len(set(self.widths)) != len(self.widths):
            raise InvalidOption("--widths names a width twice, or none", found=str(list(self.widths)), hint="1,2,4,8")


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The result; `decode` is at the plan's own draft setting, `plain` without drafts."""

    options: BenchOptions
    check: SelfCheck
    decode: Speed
    plain: Speed
    prefill: Speed
    per_check: dict[str, Figure]
    per_check_by_text: dict[str, dict[str, Figure]]
    passes: list[PassTime]
    drafts: str

    def speeds(self) -> dict[str, tuple[Speed, str]]:
        """Each speed with how it was measured."""
        answers = f"greedy answers of {self.options.tokens} tokens to shipped chat prompts"
        prompts = f"prompts of {self.options.prompt_tokens} tokens from an empty cache"
        return {
            "decode_tok_s": (self.decode, f"{answers}, {self.drafts}"),
            "plain_decode_tok_s": (self.plain, f"{answers}, no drafts"),
            "prefill_tok_s": (self.prefill, prompts),
        }

    def figures(self) -> dict[str, Figure]:
        """Speeds over prose and code in equal parts."""
        return {name: speed.both.figure("tok/s", by) for name, (speed, by) in self.speeds().items()}

    def figures_by_text(self) -> dict[str, dict[str, Figure]]:
        """Speeds on prose and on code."""
        return {
            kind: {name: speed.kinds[kind].figure("tok/s", by) for name, (speed, by) in self.speeds().items()}
            for kind in KINDS
        }

    def to_json(self) -> dict[str, Any]:
        figures = {name: figure.to_json() for name, figure in self.figures().items()}
        by_text = {
            kind: {name: figure.to_json() for name, figure in found.items()}
            | {"tokens_per_check": _json(self.per_check_by_text[kind])}
            for kind, found in self.figures_by_text().items()
        }
        return {
            **figures,
            "tokens_per_check": _json(self.per_check),
            "passes": [one.to_json() for one in self.passes],
            f"pp{self.options.prompt_tokens}": figures["prefill_tok_s"],
            f"tg{self.options.tokens}": figures["plain_decode_tok_s"],
            "by_text": by_text,
            "self_check": self.check.to_json(),
        }


def run_bench(
    plan: Plan,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    options: BenchOptions,
    load: Callable[[Plan], Engine],
    tell: Told = lambda *_: None,
) -> BenchReport:
    """Check the kernels, then time passes, prompts and answers.

    `load` opens the checkpoint under a plan; the engines share the mapped weights.

    Raises:
        EngineFailed: the self-check fails or a draft changes the text. InvalidOption: the context is too short.
    """
    widest = max(options.widths)
    texts = bench_texts(tokenizer, template, options.prompt_tokens + widest + 1)
    longest = max(len(chat) for text in texts.values() for chat in text.chats)
    needed = max(longest + options.tokens, options.prompt_tokens + 1)
    if plan.context_tokens < needed:
        raise InvalidOption(
            "the plan's context is too short for what is timed",
            found=f"{plan.context_tokens} tokens",
            needed=f"{needed} tokens",
            hint="fewer --tokens or --prompt-tokens",
        )
    plain = Setting(PLAIN, load(plan.with_drafts(0, 0)))
    tell("checking the kernels", 0)
    check = check_kernels(plain.engine.checkpoint, plain.engine.backend.ops, texts["prose"].long)
    rule = Rule(repeats=options.repeats, max_seconds=options.pass_seconds)
    wide = load(plan.with_drafts(widest - 1, 0))
    behind = texts["prose"].long[: options.prompt_tokens + widest]
    passes = time_passes(wide, behind, options.widths, rule, partial(tell, "passes"))
    wide.close()
    longer = replace(rule, min_rounds=3, max_seconds=options.prompt_seconds)
    prefill = time_prefill(plain.engine, texts, options.prompt_tokens, longer, partial(tell, "prompts"))
    chosen = Setting(CHOSEN, load(plan)) if plan.has_drafts else plain
    named = {CHOSEN: chosen}
    for name, shape in SHAPES.items():
        is_chosen = plan == plan.with_drafts(*shape)
        named[name] = chosen if is_chosen else Setting(name, load(plan.with_drafts(*shape)))
    settings = list({setting.name: setting for setting in (plain, *named.values())}.values())
    longer = replace(rule, min_rounds=4, noise=0.03, max_seconds=options.answer_seconds)
    speeds = time_decoding(settings, texts, options.tokens, longer, partial(tell, "answers"))
    return BenchReport(
        options=options,
        check=check,
        decode=speeds[chosen.name],
        plain=speeds[plain.name],
        prefill=prefill,
        per_check={name: tokens_per_check(setting) for name, setting in named.items()},
        per_check_by_text={
            kind: {name: tokens_per_check(setting, kind) for name, setting in named.items()} for kind in KINDS
        },
        passes=passes,
        drafts=chosen.drafts,
    )


def _json(figures: dict[str, Figure]) -> dict[str, Any]:
    return {name: figure.to_json() for name, figure in figures.items()}


def _check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidOption(f"{option} is out of range", found=str(value), needed=f"{low} to {high}")
