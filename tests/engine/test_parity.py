"""The engine against the float reference: the same weights, multiplied out, give the same logits up to rounding.

What differs is known: activations in two int8 planes (about 2^-16 of a row's largest value), K and V in fp16. The one
plane of a draft is coarser, so the reference rounds to it, and K and V with it: else many a value takes another step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from twofold.engine.checkpoint import Checkpoint, SplitWeights
from twofold.engine.engine import Engine
from twofold.engine.graph.registry import graph_of
from twofold.engine.torch_ops import TorchOps, causal_attention, run_model
from twofold.kernels.naive.packing import residual_offset, unpack_base, unpack_residual, unpack_scales
from twofold.kernels.naive.rotation import block_width
from twofold.planner.plan import Plan
from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec

pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def hadamard(width: int) -> np.ndarray:
    matrix = np.ones((1, 1))
    while matrix.shape[0] < width:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(width)


def rotation(signs: np.ndarray, mix: np.ndarray | None) -> np.ndarray:
    """R as a matrix: (Q ⊗ H) · diag(signs)."""
    dimension = len(signs)
    width = block_width(dimension)
    q = np.eye(dimension // width) if mix is None else mix.astype(np.float64)
    return np.kron(q, hadamard(width)) * signs.astype(np.float64)


def dense_members(weights: SplitWeights, use_residual: bool) -> list[np.ndarray]:
    """W = R_oᵀ · W~ · R_i of each member, multiplied out in fp64."""
    group_of = np.arange(weights.in_features) // weights.group_size
    base = weights.levels[unpack_base(weights.base_codes, weights.in_features)].astype(np.float64)
    stored = base * unpack_scales(weights.base_scales).astype(np.float64)[:, group_of]
    if use_residual:
        u = unpack_residual(weights.residual_codes, weights.in_features, weights.residual_bits).astype(np.float64)
        scales = unpack_scales(weights.residual_scales).astype(np.float64)[:, group_of]
        stored += (u - residual_offset(weights.residual_bits)) * scales
    right = stored @ rotation(weights.input_signs, weights.mix_in)
    members, tile_row, out_row = [], 0, 0
    for i, rows in enumerate(weights.member_rows):
        part = right[tile_row : tile_row + rows]
        if weights.output_signs is not None:
            signs = weights.output_signs[out_row : out_row + rows]
            part = rotation(signs, weights.mix_out[i] if weights.mix_out else None).T @ part
        members.append(part)
        tile_row, out_row = tile_row + -(-rows // 16) * 16, out_row + rows
    return members


class DraftOps(TorchOps):
    """The float model whose Linears, the head aside, read one int8 plane of rotated inputs; K and V are fp16."""

    def __init__(self, checkpoint: Checkpoint, **options: Any) -> None:
        super().__init__(checkpoint.spec, attention=_fp16_attention, **options)
        self._checkpoint = checkpoint

    def linears(self, x: torch.Tensor, group: LinearGroup) -> tuple[torch.Tensor, ...]:
        if group.name == self.model.head.name:
            return super().linears(x, group)
        weights = self._checkpoint.group(group.name)
        turn = rotation(weights.input_signs, weights.mix_in)
        rotated = x.numpy().astype(np.float64) @ turn.T
        for start in range(0, weights.in_features, weights.group_size):
            part = rotated[:, start : start + weights.group_size]
            scale = np.abs(part).max(axis=1, keepdims=True) / 127
            part[:] = np.rint(part / scale) * scale
        return super().linears(torch.from_numpy((rotated @ turn).astype(np.float32)), group)


def _fp16_attention(
    model: ModelSpec, layer: LayerSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int]
) -> torch.Tensor:
    return causal_attention(model, layer, q, k.half().float(), v.half().float(), lengths)


def reference_logits(checkpoint: Checkpoint, tokens: list[int], use_residual: bool) -> torch.Tensor:
    def linear(group: LinearGroup, member: LinearSpec) -> torch.Tensor:
        is_head = group.name == checkpoint.spec.head.name
        members = dense_members(checkpoint.group(group.name), use_residual or is_head)
        return torch.from_numpy(members[group.members.index(member)])

    def weight(name: str) -> Any:
        if not name.endswith(".bias"):
            return checkpoint.dense(name).copy()
        for group in checkpoint.spec.groups:
            start = 0
            for member in group.members:
                if name == f"{member.name}.bias":
                    return checkpoint.dense(f"{group.name}.bias")[start : start + member.out_features].copy()
                start += member.out_features
        raise KeyError(name)

    if use_residual:
        return run_model(checkpoint.spec, torch.tensor(tokens), weight, linear=linear)
    options = {"weight": weight, "linear": linear, "tokens": torch.tensor(tokens), "sequence_lengths": (len(tokens),)}
    with torch.no_grad():
        logits: torch.Tensor = graph_of(checkpoint.spec).forward(DraftOps(checkpoint, **options), checkpoint.spec)
    return logits


@pytest.mark.parametrize("use_residual", [True, False], ids=["verify", "draft"])
@pytest.mark.parametrize(
    "model",
    [
        {},
        {"model_type": "qwen2"},
        {"model_type": "qwen3", "head_dim": 20},
        {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
        {"model_type": "mistral", "sliding_window": 512, "rope_scaling": LLAMA3},
        {"hidden_size": 128, "num_key_value_heads": 6, "head_dim": 16, "intermediate_size": 344},
        {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 9, "query_pre_attn_scalar": 20},
    ],
    ids=["llama", "qwen2", "qwen3", "biases", "mistral", "wide", "gemma3"],
)
def test_engine_logits_equal_the_float_model(
    make_checkpoint: Callable[..., Path],
    make_plan: Callable[..., Plan],
    model: dict[str, Any],
    use_residual: bool,
) -> None:
    folder = make_checkpoint(residual_bits=5, **model)
    tokens = np.random.default_rng(8).integers(0, 117, 40).tolist()
    engine = Engine.load(folder, make_plan(residual_bits=5, prefill_chunk=16))
    found = torch.from_numpy(engine.forward_logits(tokens, use_residual=use_residual))
    expected = reference_logits(Checkpoint.open(folder), tokens, use_residual)
    errors = (found - expected).norm(dim=1) / expected.norm(dim=1)
    total = float((found - expected).norm() / expected.norm())
    # a draft's row is off by 2e-5, or by up to 7e-3 where a value fell on the other side of a step, there or in a row
    # that it attends to; against a reference that does not round, every row is off by 3e-3 to 2e-2
    assert total <= 1e-3 if use_residual else (float(errors.min()) <= 1e-4 and total <= 3e-3)
    assert float(expected.std()) > 0.05
