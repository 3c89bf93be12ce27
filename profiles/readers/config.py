"""From a Hugging Face configuration (or one translated from a GGUF header) to a `ModelSpec`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from twofold.profiles.errors import CorruptFile, UnsupportedModel
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.fields import GET_AGAIN, Fields

Builder = Callable[[Fields, str], ModelSpec]


# Architecture → (module of this package, function). Imported when asked for.
_BUILDERS = {
    "llama": ("llama", "llama_spec"),
    "mistral": ("llama", "llama_spec"),
    "qwen2": ("llama", "llama_spec"),
    "qwen3": ("llama", "llama_spec"),
    "gemma3": ("gemma3", "gemma3_spec"),
    "gemma4": ("gemma4", "gemma4_spec"),
    "gemma4_unified": ("gemma4", "gemma4_spec"),
    "qwen3_5": ("qwen35", "qwen35_spec"),
    "qwen3_5_moe": ("qwen35", "qwen35_spec"),
    "gpt_oss": ("gpt_oss", "gpt_oss_spec"),
    "mixtral": ("llama", "llama_spec"),
    "qwen3_moe": ("llama", "llama_spec"),
    "deepseek_v2": ("deepseek", "deepseek_spec"),
    "deepseek_v3": ("deepseek", "deepseek_spec"),
    "kimi_k2": ("deepseek", "deepseek_spec"),
}


def _builder(architecture: str, name: str) -> Builder:
    if architecture == "gemma2":
        raise UnsupportedModel(
            f"cannot estimate {name}: gemma2 has soft caps on scores and logits, which this version does not compute",
            needed=f"one of {', '.join(sorted(_BUILDERS))}",
        )
    if architecture not in _BUILDERS:
        raise UnsupportedModel(
            f"cannot estimate {name}: the architecture {architecture!r} is not understood",
            needed=f"one of {', '.join(sorted(_BUILDERS))}",
        )
    module, function = _BUILDERS[architecture]
    builder: Builder = getattr(importlib.import_module(f"twofold.profiles.readers.{module}"), function)
    return builder


def architecture_of(config: Mapping[str, Any]) -> str | None:
    """The family name: `model_type` (or `arch` in shipped facts) without `_text`; None when absent."""
    kind = config.get("model_type") or config.get("arch")
    return kind.removesuffix("_text") if isinstance(kind, str) else None


def config_of_language_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's part of a configuration: the nested `text_config` of a multimodal one, else all of it.

    Raises:
        CorruptFile: a `text_config` that is no object.
    """
    nested = config.get("text_config")
    if nested is None:
        return dict(config)
    if not isinstance(nested, Mapping):
        raise CorruptFile(
            "the configuration cannot be used: text_config", found=repr(nested)[:80], needed="an object", hint=GET_AGAIN
        )
    inner = dict(nested)
    inner.setdefault("model_type", architecture_of(config))
    # These may be written on either level.
    for key in ("tie_word_embeddings", "quantization_config"):
        if key in config:
            inner.setdefault(key, config[key])
    return inner


def spec_from_config(
    config: Mapping[str, Any], *, name: str, facts_source: str, weights_bytes: int | None = None
) -> ModelSpec:
    """The spec of a configuration; a nested `text_config` is the language model of a multimodal one.

    Raises:
        UnsupportedModel: an architecture that is not understood.
        CorruptFile: a configuration that cannot be used.
    """
    config = config_of_language_model(config)
    architecture = architecture_of(config)
    if architecture is None:
        raise CorruptFile(f"the configuration of {name} names no architecture", needed="a model_type", hint=GET_AGAIN)
    builder = _builder(architecture, name)
    spec = builder(Fields(config, name), architecture)
    unverified = config.get("unverified") or ()
    return replace(
        spec,
        runnable_reason=spec.runnable_reason or _foreign_weights(config),
        facts_source=facts_source,
        weights_bytes=weights_bytes,
        unverified=(*spec.unverified, *(str(note) for note in unverified)),
    )


def _foreign_weights(config: Mapping[str, Any]) -> str | None:
    """Why weights stored in somebody else's quantised format cannot be read, or None."""
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    if method is None or method == "twofold":
        return None
    return f"its weights are quantised with {method!r}, which this version does not read"
