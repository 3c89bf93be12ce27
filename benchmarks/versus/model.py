"""The model on both sides: twofold's checkpoint and plan, the source GGUF, and the prompts as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.profiles.errors import InvalidOption, TwofoldError, UnsupportedModel

if TYPE_CHECKING:
    from twofold.engine.bench.prompts import BenchTexts
    from twofold.engine.text import ChatTemplate, Tokenizer
    from twofold.planner.plan import Plan
    from twofold.profiles.activations import Activations
    from twofold.profiles.model_spec import ModelSpec

CONTEXT_STEP = 256
LONGEST_TEXT = 1024
"""Tokens of a text that is judged: longer ones are cut."""


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint with its source."""

    name: str
    checkpoint: Path
    source: Path
    source_sha256: str
    spec: ModelSpec
    residual_bits: int
    tokenizer: Tokenizer
    template: ChatTemplate


def open_model(text: str, source: str | None, *, assume_yes: bool) -> Model:
    """The model's checkpoint (made now if there is none) and the GGUF file that it was made from.

    Raises:
        UnsupportedModel: twofold cannot run it, or its source is no GGUF file. TwofoldError: another source.
    """
    from twofold.cli.launch import checkpoint_of
    from twofold.cli.launch_options import LaunchOptions
    from twofold.engine.checkpoint import Checkpoint
    from twofold.engine.text import ChatTemplate, Tokenizer
    from twofold.profiles.files import file_sha256
    from twofold.profiles.sources import fetch, identify, resolve

    folder = checkpoint_of(LaunchOptions(model=text, assume_yes=assume_yes))
    assert folder is not None  # not a dry run
    checkpoint = Checkpoint.open(folder)
    recorded = checkpoint.config.source
    ref = identify(resolve(source or text))
    if ref.kind == "checkpoint":
        ref = resolve(str(recorded.get("name", "")))
    path = fetch(ref)
    if not path.is_file() or path.suffix != ".gguf":
        raise UnsupportedModel(
            f"llama.cpp cannot read the source of {text}",
            found=path.name,
            needed="a GGUF file",
            hint="convert the model with llama.cpp's convert_hf_to_gguf.py (--outtype bf16) and give that file",
        )
    found = file_sha256(path)
    if recorded.get("sha256") not in (None, found):
        raise TwofoldError(
            f"{ref.text} is not what this checkpoint was made from",
            found=f"SHA-256 {found[:12]}…",
            needed=f"SHA-256 {str(recorded['sha256'])[:12]}…",
            hint="name the right one with --source PATH",
        )
    tokenizer = Tokenizer.from_folder(folder)
    name = str(recorded.get("name") or text)
    return Model(
        name,
        folder,
        path,
        found,
        checkpoint.spec,
        checkpoint.config.residual_bits,
        tokenizer,
        ChatTemplate.from_tokenizer(tokenizer),
    )


def context_for(spec: ModelSpec, longest_chat: int, tokens: int, prompt_tokens: int, longest_text: int) -> int:
    """Tokens of context that both engines get: what the run needs, rounded up.

    Raises:
        InvalidOption: more than the model has.
    """
    needed = max(longest_chat + tokens, prompt_tokens + 1, longest_text)
    if needed > spec.context_length:
        raise InvalidOption(
            "the model's context is too short for what is timed",
            found=f"{spec.context_length} tokens",
            needed=f"{needed} tokens",
            hint="fewer --tokens or --prompt-tokens",
        )
    return min(-(-needed // CONTEXT_STEP) * CONTEXT_STEP, spec.context_length)


def plans(
    model: Model,
    context: int,
    threads: int | None,
    draft_nodes: int | None,
    draft_depth: int | None,
    activations: Activations | None,
) -> tuple[Plan, Plan]:
    """The plan with the drafts that `chat` would choose (or the tree that is asked for), and the same without any."""
    from twofold.cli.launch import make_plan, with_draft
    from twofold.cli.launch_options import LaunchOptions
    from twofold.engine.checkpoint import Checkpoint

    options = LaunchOptions(model=model.name, ctx=context, threads=threads, kv="f16", activations=activations)
    chosen = make_plan(model.spec, model.residual_bits, options)
    if draft_nodes is None:
        chosen = with_draft(Checkpoint.open(model.checkpoint), chosen)
    else:
        depth = min(draft_nodes, 64) if draft_depth is None else draft_depth
        chosen = type(chosen).model_validate(chosen.with_drafts(draft_nodes, depth).model_dump())
    return chosen, chosen.with_drafts(0, 0)


def texts_of(model: Model, prompt_tokens: int) -> dict[str, BenchTexts]:
    """The shipped chat prompts, prose and code, and a long one of `prompt_tokens`."""
    from twofold.engine.bench.prompts import bench_texts

    return dict(bench_texts(model.tokenizer, model.template, prompt_tokens))


def rendered(model: Model, texts: dict[str, BenchTexts]) -> dict[tuple[int, ...], str]:
    """Every chat prompt's tokens with its text in the model's template."""
    from twofold.engine.bench.prompts import shipped_prompts

    found = {}
    for kind, text in texts.items():
        for tokens, prompt in zip(text.chats, shipped_prompts(kind), strict=True):
            found[tokens] = model.template.render([{"role": "user", "content": prompt}])
    return found


def held_out_texts(model: Model, n_tokens: int | None) -> Sequence[tuple[int, ...]]:
    """Shipped conversations that calibration never saw."""
    from twofold.engine.quantize.calibration import held_out
    from versus.quality import first_texts

    return first_texts([ids for ids, _ in held_out(model.tokenizer)], n_tokens, LONGEST_TEXT)
