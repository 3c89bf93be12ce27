"""Facts about known models that ship with twofold, so that `fit` answers without a network.

Ids match case-insensitively, and an instruction-tuned model and its base stand for each other: they share the
architecture, and the spec says whose facts were used.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config

_VARIANTS = ("-instruct", "-it", "-base", "-pt", "-chat")
_CHAT_VARIANTS = ("-instruct", "-it", "-chat")
_CHAT_FAMILIES = ("qwen/qwen3", "openai/gpt-oss")
"""Families whose plain name is the chat model: it comes with a chat template, and the base has a name of its own."""


@functools.cache
def _facts() -> dict[str, dict[str, Any]]:
    text = files("twofold.profiles").joinpath("data", "model_configs.json").read_text(encoding="utf-8")
    facts: dict[str, dict[str, Any]] = json.loads(text)
    return facts


def shipped_ids() -> tuple[str, ...]:
    """The Hub ids whose facts ship."""
    return tuple(_facts())


def is_chat_model(repo: str) -> bool:
    """Whether a model was made for conversation, by its name: base models, which only continue text, were not."""
    text = repo.lower()
    if text.endswith(("-base", "-pt")):
        return False
    return text.endswith(_CHAT_VARIANTS) or text.startswith(_CHAT_FAMILIES)


def shipped_specs() -> tuple[ModelSpec, ...]:
    """The specs of all models whose facts ship."""
    return tuple(spec for spec in map(shipped_spec, _facts()) if spec is not None)


def _stem(repo: str) -> str:
    """`google/gemma-4-31B-it` → `google/gemma-4-31b`."""
    text = repo.lower()
    for suffix in _VARIANTS:
        if text.endswith(suffix):
            return text.removesuffix(suffix)
    return text


def shipped_id(repo: str) -> str | None:
    """The shipped id that answers for `repo`: itself in any case, else its instruct or base twin; None when unknown."""
    exact = [known for known in _facts() if known.lower() == repo.lower()]
    twins = [known for known in _facts() if _stem(known) == _stem(repo)]
    return next(iter(exact + twins), None)


def shipped_spec(repo: str, *, name: str | None = None, weights_bytes: int | None = None) -> ModelSpec | None:
    """The spec of a known model from shipped facts; None when it is not known."""
    known = shipped_id(repo)
    if known is None:
        return None
    facts = _facts()[known]
    twin = "" if known.lower() == repo.lower() else " (its twin, of the same architecture)"
    return spec_from_config(
        facts,
        name=name or repo,
        facts_source=f"shipped facts of {known}{twin}: {str(facts['source']).strip('; ')}",
        weights_bytes=weights_bytes,
    )
