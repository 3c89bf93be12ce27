"""Several versions of one model run side by side, one layer at a time.

Each version is a stream of hidden states; a layer's weights are loaded once, used by every stream and dropped, so
models larger than memory can be judged. The draft's streams at depth d attend to the verifier's exact K/V
(`ranks.mixed_attention`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from twofold.engine.checkpoint.layout import EMBEDDING
from twofold.engine.checkpoint.reader import Checkpoint
from twofold.engine.evaluate.baselines import int8_g32, one_ulp_noise
from twofold.engine.evaluate.dequantize import member_weights
from twofold.engine.evaluate.ranks import behind_exact
from twofold.engine.torch_ops import Attention, causal_attention, run_layer
from twofold.engine.weights import WeightSource
from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec

REFERENCE, INT8, ULP, BASE, SPLIT = "reference", "int8_g32", "ulp_floor", "base", "split"
"""`split` is base + residual in floating point: its K/V stand for the verifier's in the draft's emulation."""


def draft_name(depth: int) -> str:
    return f"draft_{depth}"


@dataclass
class _LayerWeights:
    """One group of weights, from the source and from the checkpoint, each computed once and dropped with the layer."""

    source: WeightSource
    checkpoint: Checkpoint
    noise: torch.Generator
    loaded: dict[str, Tensor] = field(default_factory=dict)
    made: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    def source_tensor(self, name: str) -> Tensor:
        if name not in self.loaded:
            self.loaded[name] = torch.from_numpy(np.ascontiguousarray(self.source.tensor(name)))
        return self.loaded[name]

    def split(self, group: LinearGroup, member: LinearSpec, *, use_residual: bool) -> Tensor:
        kind = SPLIT if use_residual else BASE
        if (kind, member.name) not in self.made:
            matrices = member_weights(self.checkpoint.group(group.name), use_residual=use_residual)
            for each, matrix in zip(group.members, matrices, strict=True):
                self.made[kind, each.name] = matrix
        return self.made[kind, member.name]

    def baseline(self, kind: str, name: str, make: Callable[[Tensor], Tensor]) -> Tensor:
        if (kind, name) not in self.made:
            self.made[kind, name] = make(self.source_tensor(name))
        return self.made[kind, name]

    def override(self, kind: str) -> Callable[[LinearGroup, LinearSpec], Tensor | None] | None:
        """The stream's replacement of a Linear's weight; None for the source's own."""
        if kind == REFERENCE:
            return None
        if kind == INT8:
            return lambda _, member: self.baseline(INT8, f"{member.name}.weight", int8_g32)
        if kind == ULP:
            return lambda _, member: self.baseline(
                ULP, f"{member.name}.weight", lambda weight: one_ulp_noise(weight, self.noise)
            )
        return lambda group, member: self.split(group, member, use_residual=kind == SPLIT)


class _Attention:
    """The layer's attention per stream: the split stream leaves its K/V behind, draft streams mix them in."""

    def __init__(self) -> None:
        self.exact: tuple[Tensor, Tensor] | None = None

    def keeping(
        self, model: ModelSpec, layer: LayerSpec, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]
    ) -> Tensor:
        self.exact = (k, v)
        return causal_attention(model, layer, q, k, v, lengths)

    def mixing(self, depth: int) -> Attention:
        def exact(_: LayerSpec) -> tuple[Tensor, Tensor]:
            assert self.exact is not None
            return self.exact

        return behind_exact(exact, depth)


@torch.no_grad()
def run_streams(
    model: ModelSpec,
    source: WeightSource,
    checkpoint: Checkpoint,
    texts: Sequence[Sequence[int]],
    *,
    depths: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Tensor]:
    """Final hidden states [tokens, hidden_size] of every stream over the concatenated texts.

    Streams: reference, int8_g32, ulp_floor (source weights and two baselines), base, split, draft_1 … draft_<depths>.
    `progress(done, total)` counts layers.
    """
    lengths = [len(text) for text in texts]
    tokens = torch.tensor([token for text in texts for token in text])
    generator = torch.Generator().manual_seed(seed)
    first = torch.from_numpy(source.rows(EMBEDDING, tokens.numpy()))
    if model.embedding_scale is not None:
        first *= model.embedding_scale
    drafts = {draft_name(depth): depth for depth in range(1, depths + 1)}
    hidden = {name: first for name in (REFERENCE, INT8, ULP, BASE, SPLIT, *drafts)}
    for done, layer in enumerate(model.layers):
        weights, attention = _LayerWeights(source, checkpoint, generator), _Attention()
        for name, rows in hidden.items():
            attend = attention.mixing(drafts[name]) if name in drafts else attention.keeping if name == SPLIT else None
            hidden[name] = run_layer(
                model,
                layer,
                rows,
                weights.source_tensor,
                sequence_lengths=lengths,
                linear=weights.override(BASE if name in drafts else name),
                attention=attend or causal_attention,
            )
        if progress is not None:
            progress(done + 1, model.n_layers)
    return hidden
