"""Fixtures that every room uses: an isolated home, the default model's GGUF, and tiny random checkpoints."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No test reads or writes the user's own folders, and none reaches the Hub unless it sets HF_ENDPOINT itself."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TWOFOLD_HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    yield home
    # Fetched models and checkpoints are large, and pytest keeps the folders of its last runs.
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def timed_tables() -> Any:
    """The module of made-up kernel timings (`planner/timed_tables.py`)."""
    path = Path(__file__).parent / "planner" / "timed_tables.py"
    spec = importlib.util.spec_from_file_location("timed_tables", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def smollm2_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model's GGUF, fetched once by the real code into `TWOFOLD_TEST_CACHE` or the user's own cache."""
    from twofold.profiles.sources import fetch, resolve

    with pytest.MonkeyPatch.context() as patch:
        shared = os.environ.get("TWOFOLD_TEST_CACHE")
        if shared:
            patch.setenv("TWOFOLD_HOME", shared)
        else:
            patch.delenv("TWOFOLD_HOME", raising=False)
        return fetch(resolve("smollm2"))


def _write_tiny(folder: Path, config_class: str, model_class: str, **changes: Any) -> Path:
    import torch
    import transformers

    values: dict[str, Any] = {
        "vocab_size": 160,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    } | changes
    torch.manual_seed(len(config_class) + len(changes))
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**values))
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases that are not all ones and zeros
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama of 2 layers, hidden size 96 (= 3 * 2^5), 6 heads over 2, untied, float32."""
    return _write_tiny(tmp_path_factory.mktemp("tiny") / "llama", "LlamaConfig", "LlamaForCausalLM")


@pytest.fixture(scope="session")
def tiny_mistral_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a mistral, without a sliding window."""
    folder = tmp_path_factory.mktemp("tiny") / "mistral"
    return _write_tiny(folder, "MistralConfig", "MistralForCausalLM", sliding_window=None)


@pytest.fixture(scope="session")
def tiny_qwen2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a qwen2 (biases in q, k, v), tied."""
    folder = tmp_path_factory.mktemp("tiny") / "qwen2"
    return _write_tiny(folder, "Qwen2Config", "Qwen2ForCausalLM", tie_word_embeddings=True)


@pytest.fixture(scope="session")
def tiny_qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a qwen3 (norms on query and key heads), head_dim 32 that is not hidden_size / heads."""
    return _write_tiny(tmp_path_factory.mktemp("tiny") / "qwen3", "Qwen3Config", "Qwen3ForCausalLM", head_dim=32)


@pytest.fixture(scope="session")
def tiny_gemma3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random gemma3 of 6 layers (five slide over 8 tokens), tied, head_dim 32 that is not hidden_size / heads."""
    folder = tmp_path_factory.mktemp("tiny") / "gemma3"
    changes = {"num_hidden_layers": 6, "head_dim": 32, "num_key_value_heads": 1, "sliding_window": 8}
    changes |= {"tie_word_embeddings": True, "query_pre_attn_scalar": 32}
    return _write_tiny(folder, "Gemma3TextConfig", "Gemma3ForCausalLM", **changes)


@pytest.fixture(params=["llama", "mistral", "qwen2", "qwen3"])
def tiny_folder(request: pytest.FixtureRequest) -> Path:
    """Each of the tiny checkpoints in turn."""
    folder: Path = request.getfixturevalue(f"tiny_{request.param}_folder")
    return folder


@pytest.fixture(scope="session")
def quantizable_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama with a byte-level tokenizer and a chat template: 3 layers, hidden size 72 (= 9 * 2^3), tied."""
    import json

    import numpy as np
    import tokenizers
    from safetensors.numpy import save_file

    folder = tmp_path_factory.mktemp("tiny") / "quantizable"
    folder.mkdir()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(special + alphabet)}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(special)
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}), encoding="utf-8")
    hidden, mlp, heads, kv, dim, vocab, layers = 72, 160, 6, 2, 12, 259, 3
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": mlp,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim,
        "vocab_size": vocab, "max_position_embeddings": 512, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    rng = np.random.default_rng(5)

    def linear(rows: int, inputs: int) -> Any:
        return (rng.standard_normal((rows, inputs)) / inputs**0.5).astype(np.float32)

    tensors = {"model.embed_tokens.weight": linear(vocab, hidden), "model.norm.weight": np.ones(hidden, np.float32)}
    for index in range(layers):
        name = f"model.layers.{index}"
        shapes = {
            "self_attn.q_proj": (heads * dim, hidden), "self_attn.k_proj": (kv * dim, hidden),
            "self_attn.v_proj": (kv * dim, hidden), "self_attn.o_proj": (hidden, heads * dim),
            "mlp.gate_proj": (mlp, hidden), "mlp.up_proj": (mlp, hidden), "mlp.down_proj": (hidden, mlp),
        }  # fmt: skip
        tensors |= {f"{name}.{part}.weight": linear(*shape) for part, shape in shapes.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}.{norm}.weight"] = (1 + 0.1 * rng.standard_normal(hidden)).astype(np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
