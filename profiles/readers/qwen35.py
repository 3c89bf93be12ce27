"""Qwen3.5 and 3.8, dense and mixture-of-experts: Gated DeltaNet layers with a constant state, and full attention layers
whose query projection also makes an output gate. For planning. Checked against transformers' `models/qwen3_5`.
"""

from __future__ import annotations

from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec, RopeSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.groups import attention_groups, group, head_group, mlp_groups, rope_scaling, rope_theta

KINDS = ("linear_attention", "full_attention")
STATE_BYTES_PER_VALUE = 4


def qwen35_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec; the MTP head's weights are counted apart (`draft_head_weights`)."""
    hidden = fields.integer("hidden_size")
    vocab = fields.integer("vocab_size", high=MAX_VOCABULARY)
    n_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    period = fields.integer("full_attention_interval", 4, high=MAX_LAYERS)
    kinds = fields.layer_kinds(n_layers, KINDS) or [
        "linear_attention" if (index + 1) % period else "full_attention" for index in range(n_layers)
    ]
    is_moe = architecture.endswith("_moe")
    layers = tuple(_layer(fields, f"model.layers.{i}", i, kind, hidden, is_moe) for i, kind in enumerate(kinds))
    return ModelSpec(
        name=fields.name,
        architecture=architecture,
        layers=layers,
        head=head_group(hidden, vocab),
        hidden_size=hidden,
        vocab_size=vocab,
        context_length=fields.integer("max_position_embeddings", 32_768, high=MAX_CONTEXT),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.text("hidden_act", "silu"),
        facts_source="",
        qk_norm=True,
        intermediate_size=fields.integer("moe_intermediate_size" if is_moe else "intermediate_size"),
        draft_head_weights=_draft_head_weights(fields, hidden, is_moe),
        runnable_reason=f"the engine has no graph for {architecture} yet (Gated DeltaNet layers, output gates)",
    )


def _layer(fields: Fields, name: str, index: int, kind: str, hidden: int, is_moe: bool) -> LayerSpec:
    mlp, mlp_dense = _mlp(fields, f"{name}.mlp", hidden, is_moe)
    norms = 2 * hidden
    if kind == "linear_attention":
        groups, dense, state = _delta_net(fields, f"{name}.linear_attn", hidden)
        return LayerSpec(
            index=index,
            kind="recurrent",
            groups=(*groups, *mlp),
            state_bytes=state,
            dense_weights=norms + dense + mlp_dense,
            gate_weights=2 * hidden * fields.integer("linear_num_value_heads", 32, high=4096),
        )
    n_heads = fields.integer("num_attention_heads", high=4096)
    n_kv = fields.integer("num_key_value_heads", high=4096)
    head_dim = fields.integer("head_dim", 256, high=4096)
    gated = 2 if fields.flag("attn_output_gate", True) else 1
    return LayerSpec(
        index=index,
        kind="growing",
        groups=(
            *attention_groups(
                name,
                hidden=hidden,
                q_rows=gated * n_heads * head_dim,
                kv_rows=n_kv * head_dim,
                o_inputs=n_heads * head_dim,
                qkv_bias=fields.flag("attention_bias", False),
                o_bias=fields.flag("attention_bias", False),
            ),
            *mlp,
        ),
        n_heads=n_heads,
        n_kv_heads=n_kv,
        k_head_dim=head_dim,
        v_head_dim=head_dim,
        dense_weights=norms + 2 * head_dim + mlp_dense,
        rope=_rope(fields, head_dim),
    )


def _delta_net(fields: Fields, name: str, hidden: int) -> tuple[tuple[LinearGroup, ...], int, int]:
    """Groups, dense weights and state bytes (fp32 matrices and the convolution's tail) of one Gated DeltaNet layer."""
    n_k = fields.integer("linear_num_key_heads", 16, high=4096)
    n_v = fields.integer("linear_num_value_heads", 32, high=4096)
    k_dim = fields.integer("linear_key_head_dim", 128, high=4096)
    v_dim = fields.integer("linear_value_head_dim", 128, high=4096)
    kernel = fields.integer("linear_conv_kernel_dim", 4, high=64)
    channels = 2 * n_k * k_dim + n_v * v_dim
    inputs = group(
        f"{name}.in_proj",
        LinearSpec(f"{name}.in_proj_qkv", hidden, channels),
        LinearSpec(f"{name}.in_proj_z", hidden, n_v * v_dim),
    )
    out = group(f"{name}.out", LinearSpec(f"{name}.out_proj", n_v * v_dim, hidden))
    # in_proj_b and in_proj_a are small gates; then convolution, A_log, dt_bias and the per-head norm.
    dense = 2 * hidden * n_v + channels * kernel + 2 * n_v + v_dim
    state = STATE_BYTES_PER_VALUE * (n_v * k_dim * v_dim + (kernel - 1) * channels)
    return (inputs, out), dense, state


def _mlp(fields: Fields, name: str, hidden: int, is_moe: bool) -> tuple[tuple[LinearGroup, ...], int]:
    """The MLP's groups (all experts, and the shared one) and its dense router and gate."""
    if not is_moe:
        return mlp_groups(name, hidden=hidden, inner=fields.integer("intermediate_size")), 0
    n = fields.integer("num_experts", high=MAX_EXPERTS)
    experts = mlp_groups(
        f"{name}.experts",
        hidden=hidden,
        inner=fields.integer("moe_intermediate_size"),
        copies=n,
        used_copies=fields.used_experts(n, "num_experts_per_tok"),
    )
    shared = fields.integer("shared_expert_intermediate_size", 0, low=0)
    if shared == 0:
        return experts, hidden * n
    return (*experts, *mlp_groups(f"{name}.shared_expert", hidden=hidden, inner=shared)), hidden * n + hidden


def _rope(fields: Fields, head_dim: int) -> RopeSpec:
    parameters = Fields(fields.mapping("rope_parameters") or {}, fields.name)
    part = parameters.number("partial_rotary_factor", fields.number("partial_rotary_factor", 0.25))
    return RopeSpec(rope_theta(fields), int(head_dim * part), rope_scaling(fields))


def _draft_head_weights(fields: Fields, hidden: int, is_moe: bool) -> int:
    """The MTP head: its combining projection and norms, and one full-attention layer for each prediction depth."""
    n = fields.integer("mtp_num_hidden_layers", 0, low=0, high=64)
    if n == 0:
        return 0
    layer = _layer(fields, "mtp.layers.0", 0, "full_attention", hidden, is_moe)
    weights = sum(member.n_weights for part in layer.groups for member in part.members) + layer.dense_weights
    return 2 * hidden * hidden + 3 * hidden + n * weights
