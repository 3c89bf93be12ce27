"""The float reference against transformers: tiny random models of every runnable architecture, then a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from twofold.engine import rope
from twofold.engine.torch_ops import TorchOps, run_head, run_layer, run_model
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import ModelSpec, RopeSpec
from twofold.profiles.readers.config import spec_from_config

transformers = pytest.importorskip("transformers")

SHAPE = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 301,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 50000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama3-rope": ("LlamaConfig", {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True}),
    "linear-rope": ("LlamaConfig", {"rope_parameters": LINEAR, "tie_word_embeddings": True}),
    "one-head": ("LlamaConfig", {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 10}),
    "mistral": ("MistralConfig", {"sliding_window": None, "head_dim": 24}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
}


def tiny_model(case: str) -> tuple[Any, ModelSpec]:
    """A random transformers model, biases and norms far from their initial constants, and its spec."""
    kind, options = CASES[case]
    config = getattr(transformers, kind)(**(SHAPE | options))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    spec = spec_from_config(json.loads(config.to_json_string()), name=case, facts_source="test")
    return model, spec


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers(case: str) -> None:
    model, spec = tiny_model(case)
    weights = model.state_dict()
    tokens = torch.randint(0, spec.vocab_size, (70,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = model(tokens[None]).logits[0]
    found = run_model(spec, torch.cat([tokens, tokens[:20]]), weights.__getitem__, sequence_lengths=(70, 20))
    assert relative_error(found[:70], expected) <= 1e-5
    assert relative_error(found[70:], expected[:20]) <= 1e-5


def test_layer_by_layer_equals_the_whole_pass_and_loads_only_that_layer() -> None:
    model, spec = tiny_model("qwen2")
    weights = model.state_dict()
    tokens = torch.arange(24)
    asked: list[str] = []

    def weight(name: str) -> torch.Tensor:
        asked.append(name)
        return weights[name]

    x = weights["model.embed_tokens.weight"][tokens]
    for layer in spec.layers:
        asked.clear()
        x = run_layer(spec, layer, x, weight, sequence_lengths=(10, 14))
        assert all(name.startswith(f"model.layers.{layer.index}.") for name in asked)
    logits = run_head(spec, x, weight)
    whole = run_model(spec, tokens, weight, sequence_lengths=(10, 14))
    assert torch.equal(logits, whole)


def test_hooks_see_each_groups_input_and_overrides_replace_weights() -> None:
    model, spec = tiny_model("llama")
    weights = model.state_dict()
    seen: dict[str, torch.Tensor] = {}
    tokens = torch.arange(9)
    plain = run_model(spec, tokens, weights.__getitem__, on_input=lambda group, x: seen.update({group.name: x}))
    assert list(seen) == [group.name for group in spec.groups]
    assert all(seen[group.name].shape == (9, group.in_features) for group in spec.groups)
    head = seen["lm_head"] @ weights["lm_head.weight"].T
    assert relative_error(plain, head) <= 1e-6
    zero = run_model(
        spec,
        tokens,
        weights.__getitem__,
        linear=lambda group, member: torch.zeros(301, 96) if member.name == "lm_head" else None,
    )
    assert torch.count_nonzero(zero) == 0


def test_attention_can_be_replaced() -> None:
    model, spec = tiny_model("llama")
    calls: list[tuple[int, ...]] = []

    def attend(model: ModelSpec, layer: Any, q: Any, k: Any, v: Any, lengths: Any) -> torch.Tensor:
        calls.append((layer.index, *q.shape, *k.shape, *lengths))
        return torch.zeros(q.shape[0], layer.n_heads * layer.v_head_dim)

    run_model(spec, torch.arange(5), model.state_dict().__getitem__, attention=attend, sequence_lengths=(2, 3))
    assert calls == [(index, 5, 6, 16, 5, 2, 16, 2, 3) for index in range(3)]


def test_sliding_windows_hide_old_positions() -> None:
    config = transformers.MistralConfig(**SHAPE, sliding_window=16)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    spec = spec_from_config(json.loads(config.to_json_string()), name="mistral", facts_source="test")
    weights = model.state_dict()
    tokens = torch.randint(0, 301, (60,), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = model.model(tokens[None], output_hidden_states=True).hidden_states[1][0]
    ops = TorchOps(spec, weights.__getitem__, sequence_lengths=(60,), tokens=tokens)
    from twofold.engine.graph import llama

    with torch.no_grad():
        found = llama.decoder_layer(ops, spec, spec.layers[0], ops.embed())
    assert relative_error(found, expected) <= 1e-5


def test_what_the_engine_cannot_run_is_refused() -> None:
    config = dict(SHAPE, model_type="llama", hidden_act="gelu")
    spec = spec_from_config(config, name="odd", facts_source="test")
    with pytest.raises(UnsupportedModel, match="cannot run odd"):
        run_model(spec, torch.arange(3), lambda name: torch.zeros(1))


def test_neither_tokens_nor_embeddings() -> None:
    _, spec = tiny_model("llama")
    with pytest.raises(ValueError, match="neither tokens nor embeddings"):
        TorchOps(spec, lambda name: None, sequence_lengths=(1,)).embed()


def test_unknown_rope_scaling_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="yarn"):
        rope.tables(RopeSpec(10000.0, 8, {"rope_type": "yarn", "factor": 2.0}), np.arange(3))
    with pytest.raises(UnsupportedModel, match="lacks 'factor'"):
        rope.tables(RopeSpec(10000.0, 8, {"rope_type": "linear"}), np.arange(3))


def test_rope_tables_are_rounded_once_from_fp64() -> None:
    cos, sin = rope.tables(RopeSpec(10000.0, 64), np.array([0, 1, 100_000]))
    assert cos.dtype == np.float32 and cos.shape == (3, 32)
    angle = 100_000 * 10000.0 ** (-2 * 5 / 64)
    assert cos[2, 5] == np.float32(np.cos(angle)) and sin[2, 5] == np.float32(np.sin(angle))


@pytest.mark.slow
def test_smollm2_logits_equal_transformers(smollm2_gguf: Path, tmp_path: Path) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    from twofold.engine.weights import open_weights
    from twofold.profiles.readers.local import read_config, read_gguf_spec

    spec = read_gguf_spec(smollm2_gguf)
    source = open_weights(smollm2_gguf)
    config = transformers.LlamaConfig(**{k: v for k, v in read_config(smollm2_gguf).items() if k != "model_type"})
    with torch.device("meta"):  # random weights of this size take longer than the test
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    state = {name: torch.from_numpy(np.array(source.tensor(name))) for name in source.names()}
    result = model.load_state_dict(state, strict=False, assign=True)
    assert not result.unexpected_keys and set(result.missing_keys) <= {"lm_head.weight"}
    model.tie_weights()
    tokens = torch.randint(0, spec.vocab_size, (24,), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        expected = model(tokens[None]).logits[0]
    found = run_model(spec, tokens, source.tensor)
    source.close()
    assert relative_error(found, expected) <= 1e-4
