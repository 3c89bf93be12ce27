"""Gemma 3: the float reference against transformers, norm weights folded alike from both kinds of file, and what is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from twofold.engine.engine import Engine
from twofold.engine.torch_ops import run_model
from twofold.engine.weights import open_weights
from twofold.kernels import cpu
from twofold.planner.plan import Plan
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config
from twofold.profiles.sources import read_spec, resolve

transformers = pytest.importorskip("transformers")

SHAPE: dict[str, Any] = {
    "hidden_size": 80,
    "intermediate_size": 160,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 301,
    "max_position_embeddings": 256,
    "sliding_window": 16,
    "query_pre_attn_scalar": 24,
}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"attention_bias": True, "num_key_value_heads": 2},
    "untied": {"tie_word_embeddings": False},
    "linear-rope": {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    },
    "short-window": {"sliding_window": 3, "layer_types": ["full_attention", *["sliding_attention"] * 6]},
}


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def tiny_model(**options: Any) -> tuple[Any, ModelSpec]:
    """A random transformers model, its norms far from their initial zeros, and its spec."""
    config = transformers.Gemma3TextConfig(**(SHAPE | options))
    torch.manual_seed(1)
    model = transformers.Gemma3ForCausalLM._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model, spec_from_config(json.loads(config.to_json_string()), name="tiny", facts_source="test")


def plain_weights(model: Any) -> Callable[[str], torch.Tensor]:
    """As the weights readers hand them out: norms as factors."""
    state = model.state_dict()
    return lambda name: state[name] + 1 if name.endswith("norm.weight") else state[name]


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers(case: str) -> None:
    model, spec = tiny_model(**CASES[case])
    tokens = torch.randint(0, spec.vocab_size, (70,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = model(tokens[None]).logits[0]
    found = run_model(spec, torch.cat([tokens, tokens[:20]]), plain_weights(model), sequence_lengths=(70, 20))
    assert relative_error(found[:70], expected) <= 1e-5
    assert relative_error(found[70:], expected[:20]) <= 1e-5


def test_embeddings_are_scaled_in_the_weights_own_type() -> None:
    def scale(**keys: str) -> float | None:
        return spec_from_config(
            SHAPE | {"model_type": "gemma3_text", **keys}, name="x", facts_source=""
        ).embedding_scale

    for dtype in ("bfloat16", "float16", "float32"):
        rounded = float(torch.tensor(80**0.5).to(getattr(torch, dtype)))
        assert scale(dtype=dtype) == scale(torch_dtype=dtype) == rounded
    assert scale() == np.float32(80**0.5)


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_a_folder_hands_out_norms_as_factors(tiny_gemma3_folder: Path, tmp_path: Path, prefix: str) -> None:
    from safetensors.numpy import load_file, save_file

    stored = load_file(tiny_gemma3_folder / "model.safetensors")
    save_file(
        {prefix + name.removeprefix("model."): value for name, value in stored.items()}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_bytes((tiny_gemma3_folder / "config.json").read_bytes())
    spec = read_spec(resolve(str(tmp_path)))
    with open_weights(tmp_path) as source:
        source.check_complete(spec)
        assert source.tied and set(source.names()) == set(stored)
        for name, value in stored.items():
            assert np.array_equal(source.tensor(name), value + 1 if name.endswith("norm.weight") else value)
        tokens = torch.arange(40)
        found = run_model(spec, tokens, source.tensor)
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_gemma3_folder, attn_implementation="eager")
    with torch.no_grad():
        assert relative_error(found, model(tokens[None]).logits[0]) <= 1e-5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"final_logit_softcapping": 30.0}, "soft cap"),
        ({"attn_logit_softcapping": 50.0}, "soft cap"),
        ({"hidden_activation": "gelu"}, "no gelu activation"),
        ({"use_bidirectional_attention": True}, "left to right"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'"),
    ],
)
def test_what_the_engine_cannot_run_is_refused(change: dict[str, Any], reason: str) -> None:
    spec = spec_from_config(SHAPE | {"model_type": "gemma3_text"} | change, name="odd", facts_source="test")
    with pytest.raises(UnsupportedModel, match=f"cannot run odd: .*{reason}"):
        run_model(spec, torch.arange(3), lambda name: torch.zeros(1))


def test_gemma_2_is_refused_with_its_reason() -> None:
    with pytest.raises(UnsupportedModel, match=r"gemma2.*soft caps"):
        spec_from_config(SHAPE | {"model_type": "gemma2"}, name="old", facts_source="test")


@pytest.mark.skipif(cpu.missing_reason() is not None, reason="the native kernels are not built")
def test_native_logits_equal_numpy_bit_for_bit_beyond_the_window(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    folder = make_checkpoint(model_type="gemma3_text", **SHAPE)
    tokens = np.random.default_rng(3).integers(0, 301, 50).tolist()
    expected = Engine.load(folder, make_plan(prefill_chunk=50), kernels="naive").forward_logits(tokens)
    for knobs in ({"threads": 1, "prefill_chunk": 7}, {"threads": 2, "prefill_chunk": 32, "cpu_isa": "generic"}):
        found = Engine.load(folder, make_plan(**knobs), kernels="cpu").forward_logits(tokens)
        assert np.array_equal(found, expected), knobs
