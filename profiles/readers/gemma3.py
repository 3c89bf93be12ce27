"""Gemma 3 (the language model): five sliding layers to one full one, tied head, four norms a layer. For planning."""

from __future__ import annotations

from twofold.profiles.model_spec import LayerSpec, ModelSpec, RopeSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.groups import attention_groups, head_group, mlp_groups, rope_scaling

KINDS = ("sliding_attention", "full_attention")
_THETA = {"sliding_attention": 10_000.0, "full_attention": 1_000_000.0}
_THETA_KEYS = {"sliding_attention": "rope_local_base_freq", "full_attention": "rope_theta"}


def gemma3_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec; keys that published configurations leave out have transformers' defaults."""
    hidden = fields.integer("hidden_size", 2304)
    vocab = fields.integer("vocab_size", 262_208, high=MAX_VOCABULARY)
    n_layers = fields.integer("num_hidden_layers", 26, high=MAX_LAYERS)
    kinds = fields.layer_kinds(n_layers, KINDS) or sliding_pattern(
        n_layers, fields.integer("sliding_window_pattern", 6, high=MAX_LAYERS)
    )
    return ModelSpec(
        name=fields.name,
        architecture=architecture,
        layers=tuple(_layer(fields, index, kind, hidden) for index, kind in enumerate(kinds)),
        head=head_group(hidden, vocab),
        hidden_size=hidden,
        vocab_size=vocab,
        context_length=fields.integer("max_position_embeddings", 131_072, high=MAX_CONTEXT),
        tie_embeddings=fields.flag("tie_word_embeddings", True),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.text("hidden_activation", "gelu_pytorch_tanh"),
        facts_source="",
        qk_norm=True,
        intermediate_size=fields.integer("intermediate_size", 9216),
        logit_softcap=fields.number("final_logit_softcapping") if fields.has("final_logit_softcapping") else None,
        attention_scale=fields.number("query_pre_attn_scalar", 256.0) ** -0.5,
        embedding_scale=hidden**0.5,
        runnable_reason="the engine has no graph for gemma3 yet (sliding-window layers, GELU, extra norms)",
    )


def sliding_pattern(n_layers: int, period: int) -> list[str]:
    """Every `period`-th layer is full, the others slide."""
    return ["sliding_attention" if (index + 1) % period else "full_attention" for index in range(n_layers)]


def _layer(fields: Fields, index: int, kind: str, hidden: int) -> LayerSpec:
    n_heads = fields.integer("num_attention_heads", 8, high=4096)
    n_kv = fields.integer("num_key_value_heads", 4, high=4096)
    head_dim = fields.integer("head_dim", 256, high=4096)
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
            ),
            *mlp_groups(f"{name}.mlp", hidden=hidden, inner=fields.integer("intermediate_size", 9216)),
        ),
        n_heads=n_heads,
        n_kv_heads=n_kv,
        k_head_dim=head_dim,
        v_head_dim=head_dim,
        window=fields.integer("sliding_window", 4096, high=MAX_CONTEXT) if sliding else None,
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
