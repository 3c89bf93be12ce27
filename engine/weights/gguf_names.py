"""GGUF tensor names as Hugging Face's: the Llama shape, and Gemma 3, whose layers have norms on both sides."""

from __future__ import annotations

import re

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3 = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hugging_face_name(name: str, architecture: str) -> str | None:
    """Hugging Face's name of a tensor of a GGUF architecture; None for one that its graph does not have."""
    if name in _TOP:
        return _TOP[name]
    match = _LAYER.fullmatch(name)
    in_layer = _IN_LAYER | _GEMMA3 if architecture == "gemma3" else _IN_LAYER
    if match is None or match[2] not in in_layer:
        return None
    return f"model.layers.{match[1]}.{in_layer[match[2]]}.{match[3]}"
