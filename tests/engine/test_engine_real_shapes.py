"""The engine in the default model's real widths (random weights, three layers): short scale groups, 49k tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from twofold.engine import backend
from twofold.engine.engine import Engine
from twofold.planner.plan import Plan

SMOLLM2_SHAPE = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 3,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
}


@pytest.mark.slow
@pytest.mark.skipif(backend._native()[0] is None, reason="the native kernels are not built")
def test_native_logits_equal_numpy_bit_for_bit(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan]
) -> None:
    folder = make_checkpoint(name="smollm2-shaped", **SMOLLM2_SHAPE)
    tokens = np.random.default_rng(1).integers(0, 49152, 40).tolist()
    expected = Engine.load(folder, make_plan(prefill_chunk=8), kernels="naive").forward_logits(tokens[:8])
    whole = Engine.load(folder, make_plan(prefill_chunk=40), kernels="cpu").forward_logits(tokens)
    assert np.array_equal(whole[:8], expected)
    for knobs in (
        {"threads": 2, "prefill_chunk": 7},
        {"threads": 3, "prefill_chunk": 1},
        {"threads": 2, "prefill_chunk": 32, "cpu_isa": "generic"},
    ):
        found = Engine.load(folder, make_plan(**knobs), kernels="cpu").forward_logits(tokens)
        assert np.array_equal(found, whole), knobs
