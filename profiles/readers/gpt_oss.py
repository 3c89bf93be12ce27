"""gpt-oss: sliding and full layers in turn, attention sinks, experts with biases. For planning."""

from __future__ import annotations

from twofold.profiles.model_spec import LayerSpec, ModelSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.gemma3 import KINDS, sliding_pattern
from twofold.profiles.readers.groups import attention_groups, head_group, mlp_groups, rope


def gpt_oss_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec, with all experts counted."""
    hidden = fields.integer("hidden_size")
    vocab = fields.integer("vocab_size", high=MAX_VOCABULARY)
    n_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    kinds = fields.layer_kinds(n_layers, KINDS) or sliding_pattern(n_layers, 2)
    return ModelSpec(
        name=fields.name,
        architecture=architecture,
        layers=tuple(_layer(fields, index, kind, hidden) for index, kind in enumerate(kinds)),
        head=head_group(hidden, vocab),
        hidden_size=hidden,
        vocab_size=vocab,
        context_length=fields.integer("max_position_embeddings", 131_072, high=MAX_CONTEXT),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        rms_eps=fields.number("rms_norm_eps", 1e-5),
        activation="swiglu_oai",
        facts_source="",
        intermediate_size=fields.integer("intermediate_size"),
        runnable_reason="the engine has no graph for gpt_oss yet (attention sinks, experts, sliding-window layers)",
    )


def _layer(fields: Fields, index: int, kind: str, hidden: int) -> LayerSpec:
    n_heads = fields.integer("num_attention_heads", high=4096)
    n_kv = fields.integer("num_key_value_heads", high=4096)
    head_dim = fields.integer("head_dim", 64, high=4096)
    n_experts = fields.integer("num_local_experts", high=MAX_EXPERTS)
    bias = fields.flag("attention_bias", True)
    sliding = kind == "sliding_attention"
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
            *mlp_groups(
                f"{name}.mlp.experts",
                hidden=hidden,
                inner=fields.integer("intermediate_size"),
                copies=n_experts,
                used_copies=fields.used_experts(n_experts, "num_experts_per_tok", "experts_per_token"),
                bias=True,
            ),
        ),
        n_heads=n_heads,
        n_kv_heads=n_kv,
        k_head_dim=head_dim,
        v_head_dim=head_dim,
        window=fields.integer("sliding_window", 128, high=MAX_CONTEXT) if sliding else None,
        # Two norms, the router with its bias, one attention sink per head.
        dense_weights=2 * hidden + hidden * n_experts + n_experts + n_heads,
        rope=rope(fields, head_dim, default_theta=150_000.0),
    )
