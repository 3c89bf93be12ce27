"""From a GGUF header to the Hugging Face configuration of the same model, checked against its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twofold.profiles.errors import CorruptFile, UnsupportedModel
from twofold.profiles.readers.fields import GET_AGAIN, MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, Fields
from twofold.profiles.readers.gguf_header import GgufHeader

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
}
Translator = Callable[[GgufHeader, Fields], dict[str, Any]]


def config_from_gguf(header: GgufHeader) -> dict[str, Any]:
    """A configuration that `spec_from_config` and transformers understand.

    Raises:
        UnsupportedModel: an architecture that is not understood, or one part of a split file.
        CorruptFile: keys or tensors that are missing or contradict each other.
    """
    from twofold.profiles.readers import gguf_hybrids as hybrids

    arch = header.fields.get("general.architecture")
    if not isinstance(arch, str):
        raise CorruptFile(f"{header.name} names no architecture", needed="general.architecture", hint=GET_AGAIN)
    translators: dict[str, Translator] = {
        "llama": _llama_config,
        "qwen2": _llama_config,
        "qwen3": _llama_config,
        "qwen3moe": _llama_config,
        "deepseek2": hybrids.deepseek_config,
        "gemma3": hybrids.gemma3_config,
        "gemma4": hybrids.gemma4_config,
        "qwen35": hybrids.qwen35_config,
        "qwen35moe": hybrids.qwen35_config,
        "gpt-oss": hybrids.gpt_oss_config,
    }
    if arch not in translators:
        raise UnsupportedModel(
            f"cannot estimate {header.name}: the GGUF architecture {arch!r} is not understood",
            needed=f"one of {', '.join(sorted(translators))}",
        )
    parts = header.fields.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedModel(
            f"{header.name} is one of {parts} parts of a model",
            needed="one file",
            hint="merge the parts: llama-gguf-split --merge FIRST_PART MERGED.gguf",
        )
    fields = Fields({key.removeprefix(f"{arch}."): value for key, value in header.fields.items()}, header.name)
    return translators[arch](header, fields) | _token_ids(header.fields)


def common_config(header: GgufHeader, fields: Fields) -> dict[str, Any]:
    """What every architecture has, checked against the tensors."""
    vocab, hidden = shape(header, "token_embd.weight", 2)
    agree(header, "embedding_length", fields.integer("embedding_length"), hidden)
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": fields.integer("block_count", high=MAX_LAYERS),
        "num_attention_heads": fields.integer("attention.head_count", high=4096),
        "max_position_embeddings": fields.integer("context_length", high=MAX_CONTEXT),
        "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in header.tensors,
    }


def _llama_config(header: GgufHeader, fields: Fields) -> dict[str, Any]:
    arch = header.fields["general.architecture"]
    config = common_config(header, fields)
    n_heads = config["num_attention_heads"]
    n_kv = fields.integer("attention.head_count_kv", n_heads, high=4096)
    head_dim = fields.integer("attention.key_length", max(config["hidden_size"] // n_heads, 1), high=4096)
    agree(header, "query rows", n_heads * head_dim, shape(header, "blk.0.attn_q.weight", 2)[0])
    agree(header, "key rows", n_kv * head_dim, shape(header, "blk.0.attn_k.weight", 2)[0])
    config |= {
        "model_type": arch,
        "architectures": [_CLASSES[arch]],
        "num_key_value_heads": n_kv,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "attention_bias": arch != "qwen2" and "blk.0.attn_q.bias" in header.tensors,
    }
    if fields.has("expert_count") and fields.integer("expert_count", low=0) > 0:
        return config | _experts(fields, arch)
    inner = shape(header, "blk.0.ffn_gate.weight", 2)[0]
    agree(header, "feed_forward_length", fields.integer("feed_forward_length"), inner)
    scaling = gguf_rope_scaling(header, fields)
    return config | {"intermediate_size": inner} | ({} if scaling is None else {"rope_scaling": scaling})


def _experts(fields: Fields, arch: str) -> dict[str, Any]:
    """Experts in a Llama-shaped file: Mixtral's calls itself llama."""
    inner = fields.integer("feed_forward_length")
    return {
        "model_type": {"llama": "mixtral", "qwen3moe": "qwen3_moe"}.get(arch, arch),
        "num_experts": fields.integer("expert_count", high=MAX_EXPERTS),
        "num_experts_per_tok": fields.integer("expert_used_count", high=MAX_EXPERTS),
        "intermediate_size": inner,
        "moe_intermediate_size": fields.integer("expert_feed_forward_length", inner),
    }


def gguf_rope_scaling(header: GgufHeader, fields: Fields) -> dict[str, Any] | None:
    """The header's scaling entry as Hugging Face writes it; None for plain RoPE."""
    kind = fields.text("rope.scaling.type", "none")
    if "rope_freqs.weight" in header.tensors:
        # Llama 3's scaling travels as a tensor of factors, and a header has no tensors.
        return {"rope_type": "factors of rope_freqs.weight"}
    if kind == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": kind, "factor": fields.number("rope.scaling.factor", 1.0)}
    if fields.has("rope.scaling.original_context_length"):
        scaling["original_max_position_embeddings"] = fields.integer(
            "rope.scaling.original_context_length", high=MAX_CONTEXT
        )
    return scaling


def _token_ids(values: dict[str, Any]) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    found = {key: values.get(f"tokenizer.ggml.{name}_token_id") for key, name in names.items()}
    return {key: value for key, value in found.items() if isinstance(value, int)}


def shape(header: GgufHeader, name: str, n_dims: int) -> tuple[int, ...]:
    """The shape, rows first, of a tensor that must be there."""
    info = header.tensors.get(name)
    if info is None:
        raise CorruptFile(f"{header.name} lacks the tensor {name}", hint="get the file again, or convert it again")
    if len(info.shape) != n_dims:
        raise CorruptFile(
            f"{header.name}: the tensor {name} has another shape", found=str(info.shape), needed=f"{n_dims} dimensions"
        )
    return info.shape


def agree(header: GgufHeader, what: str, stated: int, found: int) -> None:
    """Refuse a header whose metadata and tensors disagree."""
    if stated != found:
        raise CorruptFile(
            f"{header.name} contradicts itself: {what}", found=f"{found} in the tensors", needed=f"{stated} as stated"
        )
