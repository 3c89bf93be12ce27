"""GGUF headers of hybrids and of models with sliding layers, as Hugging Face configurations.

Keys as llama.cpp writes them; what a key might say differently from the tensors is read from the tensors' shapes.
"""

from __future__ import annotations

from typing import Any

from twofold.profiles.errors import CorruptFile
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, Fields
from twofold.profiles.readers.gemma3 import sliding_pattern
from twofold.profiles.readers.gguf_config import common_config, gguf_rope_scaling, shape
from twofold.profiles.readers.gguf_header import GgufHeader


def gemma3_config(header: GgufHeader, fields: Fields) -> dict[str, Any]:
    """Gemma 3: one layer in six is full, and only full layers scale their rotary positions."""
    config = common_config(header, fields)
    head_dim = fields.integer("attention.key_length", 256, high=4096)
    n_heads, n_layers = config["num_attention_heads"], config["num_hidden_layers"]
    # The file does not say what scores are divided by: the head's width, but for the one model that llama.cpp too
    # knows by its number of layers (27B).
    squared = config["hidden_size"] // n_heads if n_layers == 62 else head_dim
    scaling = gguf_rope_scaling(header, fields)
    softcaps = {
        "final_logit_softcapping": fields.values.get("final_logit_softcapping"),
        "attn_logit_softcapping": fields.values.get("attn_logit_softcapping"),
    }
    return config | {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "num_key_value_heads": shape(header, "blk.0.attn_k.weight", 2)[0] // head_dim,
        "head_dim": head_dim,
        "query_pre_attn_scalar": squared,
        "intermediate_size": shape(header, "blk.0.ffn_gate.weight", 2)[0],
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": fields.integer("attention.sliding_window", high=MAX_CONTEXT),
        "layer_types": sliding_pattern(n_layers, 6),
        "rope_theta": fields.number("rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": fields.number("rope.freq_base_swa", 10_000.0),
        **({} if scaling is None else {"rope_scaling": scaling}),
        **{key: value for key, value in softcaps.items() if value is not None},
    }


def gemma4_config(header: GgufHeader, fields: Fields) -> dict[str, Any]:
    """Gemma 4: the kinds of layers are listed; widths of KV come from the first layer of each kind."""
    config = common_config(header, fields)
    n_layers = config["num_hidden_layers"]
    kinds = _sliding_kinds(header, fields, n_layers)
    first = {kind: kinds.index(kind) for kind in set(kinds)}
    full, sliding = first["full_attention"], first.get("sliding_attention", first["full_attention"])
    global_dim = fields.integer("attention.key_length", 512, high=4096)
    head_dim = fields.integer("attention.key_length_swa", 256, high=4096)
    inner = shape(header, "blk.0.ffn_gate.weight", 2)[0]
    config |= {
        "model_type": "gemma4_text",
        "layer_types": kinds,
        "head_dim": head_dim,
        "global_head_dim": global_dim,
        "num_key_value_heads": shape(header, f"blk.{sliding}.attn_k.weight", 2)[0] // head_dim,
        "attention_k_eq_v": f"blk.{full}.attn_v.weight" not in header.tensors,
        "num_global_key_value_heads": shape(header, f"blk.{full}.attn_k.weight", 2)[0] // global_dim,
        "num_kv_shared_layers": fields.integer("attention.shared_kv_layers", 0, low=0, high=MAX_LAYERS),
        "hidden_size_per_layer_input": fields.integer("embedding_length_per_layer_input", 0, low=0),
        "sliding_window": fields.integer("attention.sliding_window", high=MAX_CONTEXT),
        "intermediate_size": inner,
        "use_double_wide_mlp": shape(header, f"blk.{n_layers - 1}.ffn_gate.weight", 2)[0] == 2 * inner,
    }
    if not fields.has("expert_count") or fields.integer("expert_count", low=0) == 0:
        return config
    return config | {
        "enable_moe_block": True,
        "num_experts": fields.integer("expert_count", high=MAX_EXPERTS),
        "top_k_experts": fields.integer("expert_used_count", high=MAX_EXPERTS),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
    }


def _sliding_kinds(header: GgufHeader, fields: Fields, n_layers: int) -> list[str]:
    pattern = fields.values.get("attention.sliding_window_pattern")
    if pattern is None:
        return sliding_pattern(n_layers, 6)
    if not isinstance(pattern, list) or len(pattern) < n_layers or not all(isinstance(item, bool) for item in pattern):
        raise CorruptFile(
            f"the configuration of {header.name} cannot be used: attention.sliding_window_pattern",
            needed=f"{n_layers} times true or false",
        )
    kinds = ["sliding_attention" if slides else "full_attention" for slides in pattern[:n_layers]]
    kinds[-1] = "full_attention"
    return kinds


def qwen35_config(header: GgufHeader, fields: Fields) -> dict[str, Any]:
    """Qwen3.5: `block_count` includes the MTP blocks; the state's shape is in the `ssm` keys."""
    config = common_config(header, fields)
    n_draft = fields.integer("nextn_predict_layers", 0, low=0, high=64)
    key_dim = fields.integer("ssm.state_size", high=4096)
    n_value_heads = fields.integer("ssm.time_step_rank", high=4096)
    is_moe = header.fields["general.architecture"] == "qwen35moe"
    config |= {
        "model_type": "qwen3_5_moe_text" if is_moe else "qwen3_5_text",
        "num_hidden_layers": max(config["num_hidden_layers"] - n_draft, 1),
        "mtp_num_hidden_layers": n_draft,
        "num_key_value_heads": fields.integer("attention.head_count_kv", high=4096),
        "head_dim": fields.integer("attention.key_length", 256, high=4096),
        "full_attention_interval": fields.integer("full_attention_interval", 4, high=MAX_LAYERS),
        "linear_conv_kernel_dim": fields.integer("ssm.conv_kernel", high=64),
        "linear_num_key_heads": fields.integer("ssm.group_count", high=4096),
        "linear_num_value_heads": n_value_heads,
        "linear_key_head_dim": key_dim,
        "linear_value_head_dim": fields.integer("ssm.inner_size") // n_value_heads,
    }
    if not is_moe:
        return config | {"intermediate_size": shape(header, "blk.0.ffn_gate.weight", 2)[0]}
    return config | {
        "num_experts": fields.integer("expert_count", high=MAX_EXPERTS),
        "num_experts_per_tok": fields.integer("expert_used_count", high=MAX_EXPERTS),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
        "shared_expert_intermediate_size": fields.integer("expert_shared_feed_forward_length", 0, low=0),
    }


def gpt_oss_config(header: GgufHeader, fields: Fields) -> dict[str, Any]:
    """gpt-oss: sliding and full layers in turn."""
    return common_config(header, fields) | {
        "model_type": "gpt_oss",
        "num_key_value_heads": fields.integer("attention.head_count_kv", high=4096),
        "head_dim": fields.integer("attention.key_length", 64, high=4096),
        "num_local_experts": fields.integer("expert_count", high=MAX_EXPERTS),
        "num_experts_per_tok": fields.integer("expert_used_count", high=MAX_EXPERTS),
        "intermediate_size": fields.integer("expert_feed_forward_length"),
        "sliding_window": fields.integer("attention.sliding_window", high=MAX_CONTEXT),
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
    }


def deepseek_config(header: GgufHeader, fields: Fields) -> dict[str, Any]:
    """DeepSeek V2 and V3: newer files keep the latent in the cache and say the heads' own widths in `*_mla` keys; older
    ones cache every head.
    """
    config = common_config(header, fields)
    n_draft = fields.integer("nextn_predict_layers", 0, low=0, high=64)
    is_latent = fields.has("attention.key_length_mla")
    mla = "_mla" if is_latent else ""
    rotary = fields.integer("rope.dimension_count", high=4096)
    config |= {
        "model_type": "deepseek_v3",
        "num_hidden_layers": max(config["num_hidden_layers"] - n_draft, 1),
        "num_nextn_predict_layers": n_draft,
        "kv_lora_rank": fields.integer("attention.kv_lora_rank"),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": fields.integer(f"attention.key_length{mla}", high=4096) - rotary,
        "v_head_dim": fields.integer(f"attention.value_length{mla}", high=4096),
        "caches_latent": is_latent,
        "intermediate_size": fields.integer("feed_forward_length"),
        "first_k_dense_replace": fields.integer("leading_dense_block_count", 0, low=0, high=MAX_LAYERS),
        "n_routed_experts": fields.integer("expert_count", high=MAX_EXPERTS),
        "num_experts_per_tok": fields.integer("expert_used_count", high=MAX_EXPERTS),
        "n_shared_experts": fields.integer("expert_shared_count", 0, low=0, high=MAX_EXPERTS),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
    }
    if "blk.0.attn_q_a.weight" in header.tensors:
        config["q_lora_rank"] = shape(header, "blk.0.attn_q_a.weight", 2)[0]
    return config
