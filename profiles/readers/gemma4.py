"""Gemma 4 and Gemma 4 unified (the language model). For planning.

Full layers have their own head width and, with `attention_k_eq_v`, their own number of KV heads and no V projection; K
and V are still both cached, since V skips K's norm and rotation. The last `num_kv_shared_layers` layers reuse the cache
of the last layer of their kind before them. Checked against transformers' `models/gemma4`.
"""

from __future__ import annotations

from twofold.profiles.model_spec import LayerKind, LayerSpec, LinearGroup, LinearSpec, ModelSpec, RopeSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.gemma3 import KINDS, sliding_pattern
from twofold.profiles.readers.groups import attention_groups, group, head_group, mlp_groups


def gemma4_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec of a dense or mixture-of-experts Gemma 4."""
    hidden = fields.integer("hidden_size")
    vocab = fields.integer("vocab_size", 262_144, high=MAX_VOCABULARY)
    n_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    kinds = fields.layer_kinds(n_layers, KINDS) or sliding_pattern(n_layers, 6)
    kinds[-1] = "full_attention"
    # The unified models have no per-layer embeddings, and neither have the shipped facts that say 0.
    per_layer = fields.integer("hidden_size_per_layer_input", 0 if "unified" in architecture else 256, low=0)
    per_layer_vocab = fields.integer("vocab_size_per_layer_input", 262_144, high=MAX_VOCABULARY)
    return ModelSpec(
        name=fields.name,
        architecture=architecture,
        layers=tuple(_layer(fields, index, kinds, hidden, per_layer) for index in range(n_layers)),
        head=head_group(hidden, vocab),
        hidden_size=hidden,
        vocab_size=vocab,
        context_length=fields.integer("max_position_embeddings", 131_072, high=MAX_CONTEXT),
        tie_embeddings=fields.flag("tie_word_embeddings", True),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.text("hidden_activation", "gelu_pytorch_tanh"),
        facts_source="",
        qk_norm=True,
        intermediate_size=fields.integer("intermediate_size"),
        logit_softcap=fields.number("final_logit_softcapping") if fields.has("final_logit_softcapping") else None,
        attention_scale=1.0,
        embedding_scale=hidden**0.5,
        extra_embedding_weights=per_layer_vocab * n_layers * per_layer,
        runnable_reason=f"the engine has no graph for {architecture} yet (sliding and global layers, GELU)",
    )


def _layer(fields: Fields, index: int, kinds: list[str], hidden: int, per_layer: int) -> LayerSpec:
    sliding = kinds[index] == "sliding_attention"
    first_shared = len(kinds) - fields.integer("num_kv_shared_layers", 0, low=0, high=MAX_LAYERS)
    source = _source_of_shared(fields, index, kinds, first_shared)
    n_heads = fields.integer("num_attention_heads", high=4096)
    n_kv, head_dim = _kv_shape(fields, sliding)
    name = f"model.layers.{index}"
    qkv, out = attention_groups(
        name,
        hidden=hidden,
        q_rows=n_heads * head_dim,
        kv_rows=n_kv * head_dim,
        o_inputs=n_heads * head_dim,
        has_v=sliding or not fields.flag("attention_k_eq_v", False),
    )
    kind: LayerKind = "sliding" if sliding else "growing"
    dense = 4 * hidden + head_dim + (head_dim if source is None else 0)
    inner = fields.integer("intermediate_size")
    if source is not None:
        qkv, kind = LinearGroup(qkv.name, qkv.members[:1]), "shared"
        inner *= 2 if fields.flag("use_double_wide_mlp", False) else 1
    expert_groups, expert_dense = _experts(fields, name, hidden)
    side_groups, side_dense = _per_layer_input(name, index, hidden, per_layer, len(kinds))
    return LayerSpec(
        index=index,
        kind=kind,
        groups=(qkv, out, *mlp_groups(f"{name}.mlp", hidden=hidden, inner=inner), *expert_groups, *side_groups),
        n_heads=n_heads,
        n_kv_heads=n_kv,
        k_head_dim=head_dim,
        v_head_dim=head_dim,
        window=fields.integer("sliding_window", 512, high=MAX_CONTEXT) if sliding else None,
        shares_layer=source,
        # The saved output scalar of the layer is one number.
        dense_weights=dense + expert_dense + side_dense + 1,
        rope=_rope(fields, kinds[index], head_dim),
    )


def _source_of_shared(fields: Fields, index: int, kinds: list[str], first_shared: int) -> int | None:
    """The layer whose cache layer `index` reuses; None for a layer with its own."""
    if index < first_shared:
        return None
    sources = [other for other in range(first_shared) if kinds[other] == kinds[index]]
    if not sources:
        raise fields.damaged("num_kv_shared_layers", f"a {kinds[index]} layer before the shared ones")
    return sources[-1]


def _kv_shape(fields: Fields, sliding: bool) -> tuple[int, int]:
    """KV heads and head width of a layer."""
    n_kv = fields.integer("num_key_value_heads", high=4096)
    if sliding:
        return n_kv, fields.integer("head_dim", 256, high=4096)
    if fields.flag("attention_k_eq_v", False):
        n_kv = fields.integer("num_global_key_value_heads", n_kv, high=4096)
    return n_kv, fields.integer("global_head_dim", 512, high=4096)


def _experts(fields: Fields, layer: str, hidden: int) -> tuple[tuple[LinearGroup, ...], int]:
    """All experts of a layer (they sit beside the dense MLP), and the router and norms that stay dense."""
    if not fields.flag("enable_moe_block", False):
        return (), 0
    n = fields.integer("num_experts", high=MAX_EXPERTS)
    inner = fields.integer("moe_intermediate_size")
    router = hidden * n + hidden + n
    used = fields.used_experts(n, "top_k_experts", "num_experts_per_tok")
    experts = mlp_groups(f"{layer}.experts", hidden=hidden, inner=inner, copies=n, used_copies=used)
    return experts, router + 3 * hidden


def _per_layer_input(
    layer: str, index: int, hidden: int, width: int, n_layers: int
) -> tuple[tuple[LinearGroup, ...], int]:
    """The gate and projection of per-layer embeddings; the model's one shared projection counts with layer 0."""
    if width == 0:
        return (), 0
    gate = group(f"{layer}.per_layer_input_gate", LinearSpec(f"{layer}.per_layer_input_gate", hidden, width))
    back = group(f"{layer}.per_layer_projection", LinearSpec(f"{layer}.per_layer_projection", width, hidden))
    shared = hidden * n_layers * width + width if index == 0 else 0
    return (gate, back), hidden + shared


def _rope(fields: Fields, kind: str, head_dim: int) -> RopeSpec:
    nested = (fields.mapping("rope_parameters") or {}).get(kind)
    own = Fields(nested if isinstance(nested, dict) else {}, fields.name)
    if kind == "sliding_attention":
        theta = own.number("rope_theta", fields.number("rope_theta_sliding", 10_000.0))
        return RopeSpec(theta, head_dim)
    theta = own.number("rope_theta", fields.number("rope_theta_full", 1_000_000.0))
    part = own.number("partial_rotary_factor", fields.number("partial_rotary_factor_full", 0.25))
    scaling = own.text("rope_type", fields.text("rope_type_full", "proportional"))
    return RopeSpec(theta, int(head_dim * part), {"rope_type": scaling})
