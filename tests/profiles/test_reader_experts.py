"""Latent attention and experts as specs: parameters against transformers' own models, and the cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from twofold.profiles.errors import CorruptFile
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config

# As published with the models (config.json), less what does not decide sizes.
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
}  # fmt: skip
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384,
    "first_k_dense_replace": 1, "vocab_size": 163840, "max_position_embeddings": 262144, "num_nextn_predict_layers": 0,
}  # fmt: skip
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
    "n_routed_experts": 64, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "kv_lora_rank": 512,
    "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 102400,
    "max_position_embeddings": 163840, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000, "max_position_embeddings": 32768,
}  # fmt: skip

MODELS = {
    "DeepseekV3": (DEEPSEEK_V3, 671.0, 37.0),
    "DeepseekV2": (DEEPSEEK_V2_LITE, 15.7, 2.4),
    "Qwen3Moe": (QWEN3_30B_A3B, 30.5, 3.3),
    "Mixtral": (MIXTRAL, 46.7, 12.9),
}
"""transformers' class, its configuration, and billions of parameters and of active ones as the publisher says."""


def spec_of(config: dict[str, Any]) -> ModelSpec:
    return spec_from_config(config, name="test", facts_source="published config")


@pytest.mark.parametrize("name", MODELS)
def test_parameters_equal_transformers(name: str) -> None:
    import torch
    import transformers

    config, billions, active = MODELS[name]
    spec = spec_of(config)
    values = {key: value for key, value in config.items() if key not in ("model_type", "num_nextn_predict_layers")}
    with torch.device("meta"):
        model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**values))
    assert spec.n_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert spec.n_parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert (spec.n_used_weights + spec.vocab_size * spec.hidden_size) / 1e9 == pytest.approx(active, rel=0.12)


def test_the_draft_layer_of_deepseek_v3_has_11_5_billion_weights() -> None:
    """The publisher counts 14 B with the embedding and head that it shares with the model (1.85 B)."""
    spec = spec_of(DEEPSEEK_V3)
    assert spec.draft_head_weights / 1e9 == pytest.approx(14 - 2 * 129280 * 7168 / 1e9, rel=0.06)
    assert spec_of(KIMI_K2).draft_head_weights == 0


@pytest.mark.parametrize("config", [DEEPSEEK_V3, KIMI_K2, DEEPSEEK_V2_LITE])
def test_one_latent_vector_a_token_and_layer(config: dict[str, Any]) -> None:
    layers = spec_of(config).layers
    assert {layer.kind for layer in layers} == {"latent"}
    assert {layer.kv_values_per_token for layer in layers} == {576}


def test_what_cannot_be_used_names_the_key() -> None:
    with pytest.raises(CorruptFile, match="num_experts_per_tok"):
        spec_of(QWEN3_30B_A3B | {"num_experts_per_tok": 129})
    with pytest.raises(CorruptFile, match="kv_lora_rank"):
        spec_of(DEEPSEEK_V3 | {"kv_lora_rank": 0})


def test_dense_layers_among_experts() -> None:
    spec = spec_of(QWEN3_30B_A3B | {"mlp_only_layers": [0, 1], "decoder_sparse_step": 2})
    experts = [any(group.members[0].copies > 1 for group in layer.groups) for layer in spec.layers]
    assert experts[:6] == [False, False, False, True, False, True]


GGUFS = {
    "deepseek2": ("DeepseekV3", DEEPSEEK_V3 | {"num_hidden_layers": 4, "num_nextn_predict_layers": 0}),
    "deepseek2-lite": ("DeepseekV2", DEEPSEEK_V2_LITE | {"num_hidden_layers": 3}),
    "qwen3moe": ("Qwen3Moe", QWEN3_30B_A3B | {"num_hidden_layers": 2}),
    "llama": ("Mixtral", MIXTRAL | {"num_hidden_layers": 2}),
}


@pytest.mark.parametrize("mla", [True, False])
@pytest.mark.parametrize("name", GGUFS)
def test_gguf_headers(name: str, mla: bool, tmp_path: Path) -> None:
    """The same model from a GGUF header: equal parameters, and the cache that llama.cpp gives such a file."""
    from twofold.profiles.readers.local import read_gguf_spec

    class_name, config = GGUFS[name]
    arch = name.split("-")[0]
    path = tmp_path / "model.gguf"
    _write(path, arch, _fields(config, mla), _tensors(arch, class_name, config))
    spec = read_gguf_spec(path)
    known = spec_of(config)
    assert spec.n_parameters == known.n_parameters
    assert spec.n_used_weights == known.n_used_weights
    if arch == "deepseek2" and not mla:
        heads = config["num_attention_heads"]
        assert {layer.kv_values_per_token for layer in spec.layers} == {heads * (192 + 128)}
    else:
        assert [one.kv_values_per_token for one in spec.layers] == [one.kv_values_per_token for one in known.layers]


def _write(path: Path, arch: str, fields: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> None:
    """A file of which only the header takes disk."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, arch)
    for key, value in fields.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{arch}.{key}", value)
    for name, shape in tensors.items():
        writer.add_tensor_info(name, shape, np.dtype(np.float16), 2 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    header = path.stat().st_size
    size = sum(-(-2 * int(np.prod(shape)) // 32) * 32 for shape in tensors.values())
    os.truncate(path, -(-header // 32) * 32 + size)


def _fields(config: dict[str, Any], mla: bool) -> dict[str, Any]:
    keys = {
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.kv_lora_rank": "kv_lora_rank",
        "rope.dimension_count": "qk_rope_head_dim",
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_used_count": "num_experts_per_tok",
        "expert_shared_count": "n_shared_experts",
        "expert_feed_forward_length": "moe_intermediate_size",
    }
    fields = {key: config[name] for key, name in keys.items() if config.get(name) is not None}
    fields["attention.layer_norm_rms_epsilon"] = 1e-6
    counts = (config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    fields["expert_count"] = next(n for n in counts if n)
    if "kv_lora_rank" in config:
        heads = {"key_length_mla": 192, "value_length_mla": 128, "key_length": 576, "value_length": 512}
        old = {"key_length": 192, "value_length": 128}
        fields |= {f"attention.{key}": value for key, value in (heads if mla else old).items()}
    elif "head_dim" in config:
        fields["attention.key_length"] = config["head_dim"]
    return fields


def _tensors(arch: str, class_name: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes under GGUF's names, from the model that transformers builds."""
    import gguf
    import torch
    import transformers

    values = {key: value for key, value in config.items() if key not in ("model_type", "num_nextn_predict_layers")}
    with torch.device("meta"):
        model = getattr(transformers, f"{class_name}ForCausalLM")(
            getattr(transformers, f"{class_name}Config")(**values)
        )
    ids = {name: arch_id for arch_id, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(ids[arch], config["num_hidden_layers"])
    tensors: dict[str, tuple[int, ...]] = {}
    for name, value in model.state_dict().items():
        if name.endswith("e_score_correction_bias"):
            continue
        tensors[names.get_name(name, try_suffixes=(".weight", ".bias")) or f"other.{name}"] = tuple(value.shape)
    return tensors
