"""From a GGUF header to the Hugging Face configuration of the same model, checked against its tensors."""

from __future__ import annotations

from typing import Any

from twofold.profiles.errors import CorruptFile, UnsupportedModel
from twofold.profiles.readers.fields import Fields
from twofold.profiles.readers.gguf_header import GgufHeader, SkippedArray

_ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}


def config_from_gguf(header: GgufHeader) -> dict[str, Any]:
    """A configuration that `spec_from_config` and transformers understand.

    Raises:
        UnsupportedModel: an architecture that is not understood.
        CorruptFile: keys or tensors that are missing or contradict each other.
    """
    arch = header.fields.get("general.architecture")
    if not isinstance(arch, str):
        raise CorruptFile(f"{header.name} names no architecture", needed="general.architecture")
    if arch not in _ARCHITECTURES:
        raise UnsupportedModel(
            f"cannot estimate {header.name}: the GGUF architecture {arch!r} is not understood",
            needed=f"one of {', '.join(sorted(_ARCHITECTURES))}",
        )
    return _llama_config(header, arch)


def _llama_config(header: GgufHeader, arch: str) -> dict[str, Any]:
    fields = Fields({key.removeprefix(f"{arch}."): value for key, value in header.fields.items()}, header.name)
    vocab, hidden = _shape(header, "token_embd.weight", 2)
    n_heads = fields.integer("attention.head_count", high=4096)
    n_kv = fields.integer("attention.head_count_kv", n_heads, high=4096)
    head_dim = fields.integer("attention.key_length", hidden // n_heads, high=4096)
    _agree(header, "embedding_length", fields.integer("embedding_length"), hidden)
    _agree(header, "query rows", n_heads * head_dim, _shape(header, "blk.0.attn_q.weight", 2)[0])
    _agree(header, "key rows", n_kv * head_dim, _shape(header, "blk.0.attn_k.weight", 2)[0])
    inner = _shape(header, "blk.0.ffn_gate.weight", 2)[0]
    _agree(header, "feed_forward_length", fields.integer("feed_forward_length"), inner)
    config: dict[str, Any] = {
        "model_type": _ARCHITECTURES[arch],
        "architectures": [
            {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[arch]
        ],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": fields.integer("block_count", high=4096),
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": fields.integer("context_length", high=1 << 28),
        "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": arch != "qwen2" and "blk.0.attn_q.bias" in header.tensors,
    }
    if fields.has("expert_count") and fields.integer("expert_count", low=0) > 0:
        config["num_local_experts"] = fields.integer("expert_count")
    scaling = _scaling(header, fields)
    if scaling is not None:
        config["rope_scaling"] = scaling
    return config | _token_ids(header.fields)


def _scaling(header: GgufHeader, fields: Fields) -> dict[str, Any] | None:
    kind = fields.text("rope.scaling.type", "none")
    if "rope_freqs.weight" in header.tensors:
        # Llama 3's scaling travels as a tensor of factors, and a header has no tensors.
        return {"rope_type": "factors of rope_freqs.weight"}
    if kind == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": kind, "factor": fields.number("rope.scaling.factor", 1.0)}
    if fields.has("rope.scaling.original_context_length"):
        scaling["original_max_position_embeddings"] = fields.integer(
            "rope.scaling.original_context_length", high=1 << 28
        )
    return scaling


def _token_ids(values: dict[str, Any]) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    found = {key: values.get(f"tokenizer.ggml.{name}_token_id") for key, name in names.items()}
    return {key: value for key, value in found.items() if isinstance(value, int)}


def _shape(header: GgufHeader, name: str, n_dims: int) -> tuple[int, ...]:
    info = header.tensors.get(name)
    if info is None:
        raise CorruptFile(f"{header.name} lacks the tensor {name}", hint="get the file again, or convert it again")
    if len(info.shape) != n_dims:
        raise CorruptFile(
            f"{header.name}: the tensor {name} has another shape", found=str(info.shape), needed=f"{n_dims} dimensions"
        )
    return info.shape


def _agree(header: GgufHeader, what: str, stated: int, found: int) -> None:
    if stated != found:
        raise CorruptFile(
            f"{header.name} contradicts itself: {what}", found=f"{found} in the tensors", needed=f"{stated} as stated"
        )


def vocabulary_size(header: GgufHeader) -> int | None:
    """The tokenizer's vocabulary, where there is one."""
    tokens = header.fields.get("tokenizer.ggml.tokens")
    if isinstance(tokens, SkippedArray):
        return tokens.length
    return len(tokens) if isinstance(tokens, list) else None
