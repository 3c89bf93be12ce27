"""Gemma 3 (the language model), as wiring.

Every sublayer is normed on both sides: x + norm(attention(norm(x))), then x + norm(mlp(norm(x))), with grouped-query
heads whose queries and keys are normed, rotary positions of two bases (sliding and full layers) and a gated tanh GELU.
What the model scales (embeddings, scores) the spec carries. Norm weights are plain factors here: published ones are
stored as an offset from one, which the weights reader adds.
"""

from __future__ import annotations

from twofold.engine.graph.ops import Ops, T
from twofold.profiles.model_spec import LayerSpec, ModelSpec

ARCHITECTURES = ("gemma3",)


def decoder_layer(ops: Ops[T], model: ModelSpec, layer: LayerSpec, x: T) -> T:
    """One layer: x [rows, hidden_size] → [rows, hidden_size]."""
    name = f"model.layers.{layer.index}"
    qkv, out, gate_up, down = layer.groups

    q, k, v = ops.linears(ops.rms_norm(x, f"{name}.input_layernorm.weight"), qkv)
    q = ops.head_norm(ops.heads(q, layer.n_heads), f"{name}.self_attn.q_norm.weight")
    k = ops.head_norm(ops.heads(k, layer.n_kv_heads), f"{name}.self_attn.k_norm.weight")
    v = ops.heads(v, layer.n_kv_heads)
    attended = ops.attention(ops.rope(q, layer), ops.rope(k, layer), v, layer)
    (attended,) = ops.linears(attended, out)
    x = ops.add(x, ops.rms_norm(attended, f"{name}.post_attention_layernorm.weight"))

    gate, up = ops.linears(ops.rms_norm(x, f"{name}.pre_feedforward_layernorm.weight"), gate_up)
    (mlp,) = ops.linears(ops.gelu_mul(gate, up), down)
    return ops.add(x, ops.rms_norm(mlp, f"{name}.post_feedforward_layernorm.weight"))
