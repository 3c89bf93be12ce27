"""The Llama shape (llama, mistral, qwen2, qwen3), as wiring.

Pre-norm decoder: x + attention(norm(x)), then x + mlp(norm(x)), with grouped-query heads, rotary positions and a gated
SiLU. Qwen2 adds biases to q, k, v (carried by the LinearSpec); Qwen3 normalises each query and key head.
"""

from __future__ import annotations

from twofold.engine.graph.ops import Ops, T
from twofold.profiles.model_spec import LayerSpec, ModelSpec

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


def decoder_layer(ops: Ops[T], model: ModelSpec, layer: LayerSpec, x: T) -> T:
    """One layer: x [rows, hidden_size] → [rows, hidden_size]."""
    name = f"model.layers.{layer.index}"
    qkv, out, gate_up, down = layer.groups

    q, k, v = ops.linears(ops.rms_norm(x, f"{name}.input_layernorm.weight"), qkv)
    q, k, v = ops.heads(q, layer.n_heads), ops.heads(k, layer.n_kv_heads), ops.heads(v, layer.n_kv_heads)
    if model.qk_norm:
        q = ops.head_norm(q, f"{name}.self_attn.q_norm.weight")
        k = ops.head_norm(k, f"{name}.self_attn.k_norm.weight")
    attended = ops.attention(ops.rope(q, layer), ops.rope(k, layer), v, layer)
    (attended,) = ops.linears(attended, out)
    x = ops.add(x, attended)

    gate, up = ops.linears(ops.rms_norm(x, f"{name}.post_attention_layernorm.weight"), gate_up)
    (mlp,) = ops.linears(ops.silu_mul(gate, up), down)
    return ops.add(x, mlp)
