"""Gemma 3 (the language model): five sliding layers to one full one, tied head, four norms a layer."""

from __future__ import annotations

import struct

from twofold.profiles.model_spec import LayerSpec, ModelSpec, RopeSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.groups import attention_groups, head_group, mlp_groups, rope_scaling
from twofold.profiles.readers.llama import RUNNABLE_ROPE

KINDS = ("sliding_attention", "full_attention")
_THETA = {"sliding_attention": 10_000.0, "full_attention": 1_000_000.0}
_THETA_KEYS = {"sliding_attention": "rope_local_base_freq", "full_attention": "rope_theta"}


# What decides memory, and what transformers takes where a file leaves it out.
_DEFAULTS = {
    "vocab_size": 262_208,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 131_072,
}


def _defaults_taken(fields: Fields) -> tuple[str, ...]:
    """Each default that stands for a missing key, in words."""
    taken = [f"{key} {value}" for key, value in _DEFAULTS.items() if not fields.has(key)]
    return (f"transformers' defaults: {', '.join(taken)}",) if taken else ()


def gemma3_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec; keys that published configurations leave out have transformers' defaults, and are listed as such.

    Raises:
        CorruptFile: no width or number of layers, which no default can stand for: it is another size for each model.
    """
    hidden = fields.integer("hidden_size")
    vocab = fields.integer("vocab_size", _DEFAULTS["vocab_size"], high=MAX_VOCABULARY)
    context = fields.integer("max_position_embeddings", _DEFAULTS["max_position_embeddings"], high=MAX_CONTEXT)
    n_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    kinds = fields.layer_kinds(n_layers, KINDS) or sliding_pattern(
        n_layers, fields.integer("sliding_window_pattern", 6, high=MAX_LAYERS)
    )
    layers = tuple(_layer(fields, index, kind, hidden) for index, kind in enumerate(kinds))
    return ModelSpec(
        name=fields.name,
        architecture=architecture,
        layers=layers,
        head=head_group(hidden, vocab),
        hidden_size=hidden,
        vocab_size=vocab,
        context_length=context,
        tie_embeddings=fields.flag("tie_word_embeddings", True),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.text("hidden_activation", "gelu_pytorch_tanh"),
        facts_source="",
        qk_norm=True,
        intermediate_size=fields.integer("intermediate_size", _DEFAULTS["intermediate_size"]),
        logit_softcap=fields.number("final_logit_softcapping") if fields.has("final_logit_softcapping") else None,
        attention_scale=fields.number("query_pre_attn_scalar", 256.0) ** -0.5,
        embedding_scale=_embedding_scale(fields, hidden),
        runnable_reason=_cannot_run(fields, layers),
        unverified=_defaults_taken(fields),
    )


def _embedding_scale(fields: Fields, hidden: int) -> float:
    """sqrt(hidden) in the weights' own type, as transformers multiplies: 25.25 instead of 25.298 for bfloat16."""
    scale = float(hidden**0.5)
    dtype = fields.text("dtype", fields.text("torch_dtype", "float32"))
    if dtype == "float16":
        return float(struct.unpack("<e", struct.pack("<e", scale))[0])
    (bits,) = struct.unpack("<I", struct.pack("<f", scale))
    if dtype == "bfloat16":
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _cannot_run(fields: Fields, layers: tuple[LayerSpec, ...]) -> str | None:
    """Why the engine cannot run this model, or None."""
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        if fields.has(key):
            return f"the engine has no soft cap on logits or scores ({key} is set)"
    activation = fields.text("hidden_activation", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        return f"the engine has no {activation} activation for this architecture (gelu_pytorch_tanh only)"
    if fields.flag("use_bidirectional_attention", False):
        return "the engine reads and writes from left to right only (use_bidirectional_attention is set)"
    kinds = {(layer.rope.scaling or {}).get("rope_type", "default") for layer in layers if layer.rope is not None}
    unknown = sorted(kinds - {"default", *RUNNABLE_ROPE})
    return f"the engine has no {unknown[0]!r} RoPE scaling (default, linear and llama3 only)" if unknown else None


def sliding_pattern(n_layers: int, period: int) -> list[str]:
    """Every `period`-th layer is full, the others slide."""
    return ["sliding_attention" if (index + 1) % period else "full_attention" for index in range(n_layers)]


def _layer(fields: Fields, index: int, kind: str, hidden: int) -> LayerSpec:
    n_heads = fields.integer("num_attention_heads", _DEFAULTS["num_attention_heads"], high=4096)
    n_kv = fields.integer("num_key_value_heads", _DEFAULTS["num_key_value_heads"], high=4096)
    head_dim = fields.integer("head_dim", _DEFAULTS["head_dim"], high=4096)
    sliding = kind == "sliding_attention"
    inner = fields.integer("intermediate_size", _DEFAULTS["intermediate_size"])
    bias = fields.flag("attention_bias", False)
    name = f"model.layers.{index}"
    return LayerSpec(
        index=index,
        kind="sliding" if sliding else "growing",
        groups=(
            *attention_groups(
                name,
                hidden=hidden,
                q_rows=n_heads * head_dim,
                kv_rows=n_kv * head_dim,
                o_inputs=n_heads * head_dim,
                qkv_bias=bias,
                o_bias=bias,
            ),
            *mlp_groups(f"{name}.mlp", hidden=hidden, inner=inner),
        ),
        n_heads=n_heads,
        n_kv_heads=n_kv,
        k_head_dim=head_dim,
        v_head_dim=head_dim,
        window=fields.integer("sliding_window", _DEFAULTS["sliding_window"], high=MAX_CONTEXT) if sliding else None,
        dense_weights=4 * hidden + 2 * head_dim,
        rope=_rope(fields, kind, head_dim),
    )


def _rope(fields: Fields, kind: str, head_dim: int) -> RopeSpec:
    """Sliding layers have their own base and no scaling; transformers 5 nests both under `rope_parameters`."""
    nested = (fields.mapping("rope_parameters") or {}).get(kind)
    if isinstance(nested, dict):
        own = Fields({"rope_parameters": nested}, fields.name)
        theta = Fields(nested, fields.name).number("rope_theta", _THETA[kind])
        return RopeSpec(theta, head_dim, rope_scaling(own))
    theta = fields.number(_THETA_KEYS[kind], _THETA[kind])
    return RopeSpec(theta, head_dim, rope_scaling(fields) if kind == "full_attention" else None)
