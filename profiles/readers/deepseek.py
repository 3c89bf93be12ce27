"""DeepSeek V2 and V3 and what is built like them (Kimi K2): latent attention, and experts beside shared ones. For
planning. Checked against transformers' `models/deepseek_v2` and `models/deepseek_v3`.

Latent attention caches one vector a token and layer, whatever the number of heads: the compressed keys and values, and
the part of the keys that rotates. Files that were converted without it cache every head's keys and values
(`caches_latent` false, as such a GGUF header is read).
"""

from __future__ import annotations

from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec, RopeSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.groups import group, head_group, mlp_groups, rope_scaling, rope_theta


def deepseek_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec; the weights of the model's draft layers are counted apart (`draft_head_weights`)."""
    hidden = fields.integer("hidden_size")
    vocab = fields.integer("vocab_size", high=MAX_VOCABULARY)
    n_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    return ModelSpec(
        name=fields.name,
        architecture=architecture,
        layers=tuple(_layer(fields, f"model.layers.{index}", index, hidden) for index in range(n_layers)),
        head=head_group(hidden, vocab),
        hidden_size=hidden,
        vocab_size=vocab,
        context_length=fields.integer("max_position_embeddings", 2048, high=MAX_CONTEXT),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.text("hidden_act", "silu"),
        facts_source="",
        intermediate_size=fields.integer("intermediate_size"),
        draft_head_weights=_draft_weights(fields, hidden),
        runnable_reason=f"the engine has no graph for {architecture} (latent attention, experts)",
    )


def _layer(fields: Fields, name: str, index: int, hidden: int) -> LayerSpec:
    n_heads = fields.integer("num_attention_heads", high=4096)
    latent = fields.integer("kv_lora_rank")
    rotary = fields.integer("qk_rope_head_dim", high=4096)
    k_dim = fields.integer("qk_nope_head_dim", high=4096) + rotary
    v_dim = fields.integer("v_head_dim", high=4096)
    attention, norms = _attention(fields, f"{name}.self_attn", hidden, (n_heads, latent, rotary, k_dim, v_dim))
    mlp, router = _mlp(fields, f"{name}.mlp", index, hidden)
    caches_latent = fields.flag("caches_latent", True)
    return LayerSpec(
        index=index,
        kind="latent" if caches_latent else "growing",
        groups=(*attention, *mlp),
        n_heads=n_heads,
        n_kv_heads=1 if caches_latent else n_heads,
        k_head_dim=k_dim,
        v_head_dim=v_dim,
        latent_dim=latent + rotary if caches_latent else 0,
        dense_weights=2 * hidden + norms + router,
        rope=RopeSpec(rope_theta(fields), rotary, rope_scaling(fields)),
    )


def _attention(
    fields: Fields, name: str, hidden: int, sizes: tuple[int, int, int, int, int]
) -> tuple[tuple[LinearGroup, ...], int]:
    """Groups and norm weights: queries (compressed in the larger models), the latent, its expansion, the output."""
    n_heads, latent, rotary, k_dim, v_dim = sizes
    bias = fields.flag("attention_bias", False)
    compress = LinearSpec(f"{name}.kv_a_proj_with_mqa", hidden, latent + rotary, bias)
    expand = group(f"{name}.kv_b", LinearSpec(f"{name}.kv_b_proj", latent, n_heads * (k_dim - rotary + v_dim)))
    out = group(f"{name}.o", LinearSpec(f"{name}.o_proj", n_heads * v_dim, hidden, bias))
    if not fields.has("q_lora_rank"):
        query = LinearSpec(f"{name}.q_proj", hidden, n_heads * k_dim)
        return (group(f"{name}.q_kv_a", query, compress), expand, out), latent
    rank = fields.integer("q_lora_rank")
    first = group(f"{name}.q_a_kv_a", LinearSpec(f"{name}.q_a_proj", hidden, rank, bias), compress)
    query = LinearSpec(f"{name}.q_b_proj", rank, n_heads * k_dim)
    return (first, group(f"{name}.q_b", query), expand, out), latent + rank


def _mlp(fields: Fields, name: str, index: int, hidden: int) -> tuple[tuple[LinearGroup, ...], int]:
    """The dense MLP of the first layers; all experts, the shared ones and the router's weights of the others."""
    if index < fields.integer("first_k_dense_replace", 0, low=0, high=MAX_LAYERS):
        return mlp_groups(name, hidden=hidden, inner=fields.integer("intermediate_size")), 0
    n = fields.integer("n_routed_experts", high=MAX_EXPERTS)
    inner = fields.integer("moe_intermediate_size")
    used = fields.used_experts(n, "num_experts_per_tok")
    experts = mlp_groups(f"{name}.experts", hidden=hidden, inner=inner, copies=n, used_copies=used)
    shared = fields.integer("n_shared_experts", 0, low=0, high=MAX_EXPERTS)
    if shared == 0:
        return experts, hidden * n
    return (*experts, *mlp_groups(f"{name}.shared_experts", hidden=hidden, inner=shared * inner)), hidden * n


def _draft_weights(fields: Fields, hidden: int) -> int:
    """The draft layers: for each its combining projection, three norms, and a layer like the last."""
    n = fields.integer("num_nextn_predict_layers", 0, low=0, high=64)
    if n == 0:
        return 0
    layer = _layer(fields, "draft", MAX_LAYERS, hidden)
    weights = sum(member.n_weights for one in layer.groups for member in one.members) + layer.dense_weights
    return n * (weights + 2 * hidden * hidden + 3 * hidden)
