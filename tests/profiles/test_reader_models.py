"""Shipped facts as specs: parameters against transformers' own models, states and caches against published sizes."""

from __future__ import annotations

from typing import Any

import pytest

from twofold.profiles.errors import CorruptFile
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers import config as config_module
from twofold.profiles.readers.config import spec_from_config
from twofold.profiles.readers.shipped import shipped_id, shipped_ids, shipped_spec

MIB = 1 << 20


def shipped(repo: str) -> ModelSpec:
    spec = shipped_spec(repo)
    assert spec is not None
    return spec


@pytest.mark.parametrize(
    ("repo", "parameters"),
    [
        ("HuggingFaceTB/SmolLM2-135M", 134_515_008),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen3-32B", 32_762_123_264),
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
    ],
)
def test_parameter_count_equals_the_published_one(repo: str, parameters: int) -> None:
    assert shipped(repo).n_parameters == parameters


def counted_by_transformers(config_class: str, model_class: str, values: dict[str, Any]) -> int:
    """Parameters of the model that transformers builds, without allocating any; saved scalars included."""
    import torch
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, model_class)(getattr(transformers, config_class)(**values))
    scalars = sum(buffer.numel() for name, buffer in model.named_buffers() if name.endswith("layer_scalar"))
    return sum(parameter.numel() for parameter in model.parameters()) + scalars


CLASSES = {
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
    "gemma4": ("Gemma4TextConfig", "Gemma4ForCausalLM"),
    "qwen3_5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM"),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
}


@pytest.mark.parametrize("repo", shipped_ids())
def test_parameter_count_equals_transformers(repo: str) -> None:
    from twofold.profiles.readers import shipped as module

    facts = dict(module._facts()[repo])
    architecture = facts.pop("arch")
    pattern, repeats = facts["layer_types"]
    facts["layer_types"] = [kind for kind, count in pattern for _ in range(count)] * repeats
    facts.pop("rope_scaling", None)
    config_class, model_class = CLASSES[architecture.replace("_unified", "")]
    assert shipped(repo).n_parameters == counted_by_transformers(config_class, model_class, facts)


def test_gemma_4_31b_has_30_7_billion_parameters() -> None:
    assert shipped("google/gemma-4-31B-it").n_parameters == pytest.approx(30.7e9, rel=2e-3)


@pytest.mark.parametrize(
    ("values", "parameters"),
    [
        ({"vocab_size": 262_144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
          "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512}, 999_885_952),
        ({"vocab_size": 262_144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18,
          "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512}, 268_098_176),
    ],
)  # fmt: skip
def test_gemma_3_counts_and_pattern(values: dict[str, Any], parameters: int) -> None:
    spec = spec_from_config({"model_type": "gemma3_text"} | values, name="gemma-3", facts_source="test")
    assert spec.n_parameters == parameters
    assert counted_by_transformers("Gemma3TextConfig", "Gemma3ForCausalLM", values) == parameters
    kinds = [layer.kind for layer in spec.layers]
    assert kinds[:7] == ["sliding"] * 5 + ["growing", "sliding"]
    assert {layer.window for layer in spec.layers if layer.kind == "sliding"} == {512}


def test_gemma_3_nested_text_config_takes_defaults_that_files_leave_out() -> None:
    config = {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
        "vision_config": {},
    }
    spec = spec_from_config(config, name="gemma-3-4b", facts_source="test")
    assert spec.n_parameters == 3_880_263_168  # the published 4.3 B less the 0.42 B vision tower
    full = next(layer for layer in spec.layers if layer.kind == "growing")
    assert (full.n_kv_heads, full.k_head_dim) == (4, 256)
    assert full.rope is not None and full.rope.scaling == {"factor": 8.0, "rope_type": "linear"}
    assert spec.layers[0].rope is not None and spec.layers[0].rope.theta == 10_000.0


@pytest.mark.parametrize(
    ("repo", "state", "kv_values", "n_attention"),
    [
        ("Qwen/Qwen3.5-27B", 156_893_184, 32_768, 16),
        ("Qwen/Qwen3.8-27B", 156_893_184, 32_768, 16),
        ("Qwen/Qwen3.5-9B", int(50.25 * MIB), 16_384, 8),
        ("Qwen/Qwen3.5-35B-A3B", int(62.8125 * MIB), 10_240, 10),
    ],
)
def test_hybrid_state_and_cache(repo: str, state: int, kv_values: int, n_attention: int) -> None:
    spec = shipped(repo)
    assert sum(layer.state_bytes for layer in spec.layers) == state
    assert sum(layer.kv_values_per_token for layer in spec.layers) == kv_values
    assert sum(layer.kind == "growing" for layer in spec.layers) == n_attention


def test_mtp_head_is_counted_apart() -> None:
    assert shipped("Qwen/Qwen3.5-27B").draft_head_weights == 424_699_392


@pytest.mark.parametrize(
    ("repo", "kv_values", "fixed_values"),
    [
        ("google/gemma-4-31B-it", 40_960, 50 * 2 * 16 * 256 * 1024),
        ("google/gemma-4-12B-it", 8_192, 40 * 2 * 8 * 256 * 1024),
        ("google/gemma-4-26B-A4B-it", 10_240, 25 * 2 * 8 * 256 * 1024),
        ("google/gemma-4-E4B-it", 8_192, 20 * 2 * 2 * 256 * 512),
        ("openai/gpt-oss-20b", 12_288, 12 * 2 * 8 * 64 * 128),
    ],
)
def test_sliding_models_cache(repo: str, kv_values: int, fixed_values: int) -> None:
    spec = shipped(repo)
    growing = sum(layer.kv_values_per_token for layer in spec.layers if layer.kind == "growing")
    fixed = sum(layer.kv_values_per_token * (layer.window or 0) for layer in spec.layers if layer.kind == "sliding")
    assert (growing, fixed) == (kv_values, fixed_values)


def test_gemma_4_global_layers_share_the_projection_but_cache_both() -> None:
    layer = shipped("google/gemma-4-31B-it").layers[5]
    assert [member.name.split(".")[-1] for member in layer.groups[0].members] == ["q_proj", "k_proj"]
    assert (layer.kind, layer.n_kv_heads, layer.k_head_dim, layer.v_head_dim) == ("growing", 4, 512, 512)


def test_gemma_4_e4b_shared_layers_reuse_the_last_layer_of_their_kind() -> None:
    layers = shipped("google/gemma-4-E4B-it").layers
    shared = [layer for layer in layers if layer.kind == "shared"]
    assert len(shared) == 18
    assert {layer.shares_layer for layer in shared} == {22, 23}
    assert all(layer.kv_values_per_token == 0 for layer in shared)
    assert [len(layer.groups[0].members) for layer in (layers[23], layers[24])] == [3, 1]


def test_experts_count_in_full() -> None:
    spec = shipped("Qwen/Qwen3.5-35B-A3B")
    assert spec.n_parameters == pytest.approx(34.7e9, rel=0.01)
    gate = next(group for group in spec.layers[0].groups if group.name.endswith("experts.gate_up")).members[0]
    assert gate.copies == 256


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("google/gemma-4-31B", "google/gemma-4-31B-it"),
        ("GOOGLE/Gemma-4-31b-IT", "google/gemma-4-31B-it"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8", None),
        ("google/gemma-4-31B-it-qat", None),
    ],
)
def test_ids_match_in_any_case_and_by_twin(asked: str, known: str | None) -> None:
    assert shipped_id(asked) == known


def test_a_twin_says_whose_facts_were_used() -> None:
    twin = shipped("google/gemma-4-31B")
    assert "google/gemma-4-31B-it" in twin.facts_source and "twin" in twin.facts_source
    assert twin.name == "google/gemma-4-31B"


def test_what_the_engine_has_a_graph_for_is_runnable() -> None:
    runnable = {repo for repo in shipped_ids() if shipped(repo).runnable_reason is None}
    assert runnable == {
        "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B", "Qwen/Qwen3-32B", "HuggingFaceTB/SmolLM2-135M",
        "google/gemma-3-270m",
    }  # fmt: skip
    assert "DeltaNet" in str(shipped("Qwen/Qwen3.5-4B").runnable_reason)


def test_unverified_facts_are_passed_on() -> None:
    assert shipped("Qwen/Qwen3.5-4B").unverified == ("tie_word_embeddings (believed true, not seen in a file)",)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gemma3"}, {"model_type": "gemma3_text"}, {"model_type": "gemma3", "text_config": {}},
        {"model_type": "gemma3", "text_config": {"hidden_size": 2560}},
        {"model_type": "gemma3_text", "num_hidden_layers": 26},
        *({"model_type": kind, "text_config": nested, "hidden_size": 640, "num_hidden_layers": 18}
          for kind in ("gemma3", "llama") for nested in ([], "x", 0, False)),
        *({"model_type": kind} for kind in config_module._BUILDERS),
    ],
)  # fmt: skip
def test_a_configuration_without_sizes_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(CorruptFile) as refused:
        spec_from_config(config, name="test", facts_source="test")
    assert "text_config" in refused.value.what or "hidden_size" in refused.value.what or "layers" in refused.value.what
    assert refused.value.hint


def test_gemma_3_defaults_are_named() -> None:
    config = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "unverified": ["by hand"]}
    defaults, own = spec_from_config(config, name="test", facts_source="test").unverified
    assert own == "by hand"
    assert "num_key_value_heads 4" in defaults and "intermediate_size 9216" in defaults and "hidden" not in defaults
    sizes = ("vocab_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    full = config | dict.fromkeys((*sizes, "sliding_window", "max_position_embeddings"), 8)
    assert spec_from_config(full, name="test", facts_source="test").unverified == ("by hand",)
