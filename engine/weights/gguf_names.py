"""GGUF tensor names of the Llama shape as Hugging Face's."""

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
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hugging_face_name(name: str) -> str | None:
    """Hugging Face's name of a GGUF tensor; None for one that the Llama shape does not have."""
    if name in _TOP:
        return _TOP[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _IN_LAYER:
        return None
    return f"model.layers.{match[1]}.{_IN_LAYER[match[2]]}.{match[3]}"
