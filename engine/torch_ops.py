"""The model in floating point: graphs computed eagerly with torch, for quantising and evaluating.

This is not the engine's arithmetic (`docs/numerics.md`) but the reference that it is judged against. Everything is
fp32 on one device; a pass holds several independent sequences as concatenated rows; only the weights that the wiring
asks for are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twofold.engine import rope
from twofold.engine.graph.registry import graph_of
from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec, RopeSpec

WeightOf = Callable[[str], Any]
"""Hugging Face tensor name → array or tensor (any float dtype)."""
InputHook = Callable[[LinearGroup, Tensor], None]
"""Called with a group and its shared input [rows, in_features] before the product."""
LinearOverride = Callable[[LinearGroup, LinearSpec], "Tensor | None"]
"""A weight [out_features, in_features] to use instead of the source's, or None for the source's own."""
Attention = Callable[[ModelSpec, LayerSpec, Tensor, Tensor, Tensor, Sequence[int]], Tensor]
"""(model, layer, q, k, v, sequence_lengths) → [rows, n_heads * v_head_dim]; q, k, v are [rows, heads, head_dim]."""


def attention_scale(model: ModelSpec, layer: LayerSpec) -> float:
    """What scores are multiplied with."""
    return model.score_scale(layer)


def _window_mask(n: int, window: int, device: torch.device) -> Tensor:
    distance = torch.arange(n, device=device)[:, None] - torch.arange(n, device=device)[None, :]
    return (distance >= 0) & (distance < window)


def causal_attention(
    model: ModelSpec, layer: LayerSpec, q: Tensor, k: Tensor, v: Tensor, sequence_lengths: Sequence[int]
) -> Tensor:
    """Exact causal attention of each sequence on its own, grouped-query heads and the layer's window included."""
    outputs = []
    pieces = zip(*(x.split(list(sequence_lengths)) for x in (q, k, v)), strict=True)
    for query, key, value in pieces:
        n = query.shape[0]
        windowed = layer.window is not None and n > layer.window
        mask = _window_mask(n, layer.window, q.device) if windowed and layer.window is not None else None
        attended = torch.nn.functional.scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            key.transpose(0, 1)[None],
            value.transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=mask is None,
            scale=attention_scale(model, layer),
            enable_gqa=layer.n_heads != layer.n_kv_heads,
        )
        outputs.append(attended[0].transpose(0, 1).reshape(n, -1))
    return torch.cat(outputs)


class TorchOps:
    """`Ops[Tensor]` in fp32.

    Args:
        model: the facts.
        weight: loads one tensor by its Hugging Face name; called for each use, nothing is kept.
        sequence_lengths: rows of each sequence, in order; positions start at 0 in each.
        tokens: int ids [rows], looked up in the embedding by `embed`; or
        embeddings: [rows, hidden_size], returned by `embed` as they are.
        on_input: see `InputHook`. linear: see `LinearOverride`. attention: see `Attention`.
        device: where everything is computed.
    """

    def __init__(
        self,
        model: ModelSpec,
        weight: WeightOf,
        *,
        sequence_lengths: Sequence[int],
        tokens: Tensor | None = None,
        embeddings: Tensor | None = None,
        on_input: InputHook | None = None,
        linear: LinearOverride | None = None,
        attention: Attention = causal_attention,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model
        self.sequence_lengths = tuple(sequence_lengths)
        self.device = torch.device(device)
        self._weight = weight
        self._tokens, self._embeddings = tokens, embeddings
        self._on_input, self._linear, self._attention = on_input, linear, attention
        self._rope_cache: list[tuple[RopeSpec, Tensor, Tensor]] = []

    def _load(self, name: str) -> Tensor:
        value = self._weight(name)
        if isinstance(value, np.ndarray):  # a mapped, read-only array is copied: torch knows no read-only tensors
            value = value.astype(np.float32, copy=not value.flags.writeable)
        return torch.as_tensor(value).to(device=self.device, dtype=torch.float32)

    def embed(self) -> Tensor:
        if self._embeddings is not None:
            return self._embeddings.to(device=self.device, dtype=torch.float32)
        if self._tokens is None:
            raise ValueError("neither tokens nor embeddings were given")
        x = self._load("model.embed_tokens.weight")[self._tokens.to(self.device)]
        return x if self.model.embedding_scale is None else x * self.model.embedding_scale

    def rms_norm(self, x: Tensor, weight: str) -> Tensor:
        mean = x.square().mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + self.model.rms_eps) * self._load(weight)

    def head_norm(self, x: Tensor, weight: str) -> Tensor:
        return self.rms_norm(x, weight)

    def _member(self, group: LinearGroup, member: LinearSpec) -> Tensor:
        override = self._linear(group, member) if self._linear is not None else None
        if override is not None:
            return override.to(device=self.device, dtype=torch.float32)
        tied = group.name == self.model.head.name and self.model.tie_embeddings
        return self._load("model.embed_tokens.weight" if tied else f"{member.name}.weight")

    def linears(self, x: Tensor, group: LinearGroup) -> tuple[Tensor, ...]:
        if self._on_input is not None:
            self._on_input(group, x)
        products = []
        for member in group.members:
            bias = self._load(f"{member.name}.bias") if member.bias else None
            products.append(torch.nn.functional.linear(x, self._member(group, member), bias))
        return tuple(products)

    def heads(self, x: Tensor, n_heads: int) -> Tensor:
        return x.view(x.shape[0], n_heads, -1)

    def _rope_tables(self, spec: RopeSpec) -> tuple[Tensor, Tensor]:
        for known, cos, sin in self._rope_cache:
            if known == spec:
                return cos, sin
        positions = np.concatenate([np.arange(n) for n in self.sequence_lengths])
        cos, sin = (torch.from_numpy(table).to(self.device)[:, None, :] for table in rope.tables(spec, positions))
        self._rope_cache.append((spec, cos, sin))
        return cos, sin

    def rope(self, x: Tensor, layer: LayerSpec) -> Tensor:
        if layer.rope is None:
            return x
        cos, sin = self._rope_tables(layer.rope)
        half = layer.rope.rotary_dim // 2
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, layer: LayerSpec) -> Tensor:
        return self._attention(self.model, layer, q, k, v, self.sequence_lengths)

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.silu(gate) * up

    def gelu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.gelu(gate, approximate="tanh") * up

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


@torch.no_grad()
def run_layer(model: ModelSpec, layer: LayerSpec, x: Tensor, weight: WeightOf, **options: Any) -> Tensor:
    """One decoder layer over [rows, hidden_size]; options are those of `TorchOps` (`sequence_lengths` is needed)."""
    ops = TorchOps(model, weight, embeddings=x, **options)
    result: Tensor = graph_of(model).decoder_layer(ops, model, layer, ops.embed())
    return result


@torch.no_grad()
def run_head(model: ModelSpec, x: Tensor, weight: WeightOf, **options: Any) -> Tensor:
    """Final norm and LM head: hidden [rows, hidden_size] → logits [rows, vocab_size]."""
    options.setdefault("sequence_lengths", (x.shape[0],))
    ops = TorchOps(model, weight, embeddings=x, **options)
    result: Tensor = graph_of(model).head(ops, model, ops.embed())
    return result


@torch.no_grad()
def run_model(model: ModelSpec, tokens: Tensor, weight: WeightOf, **options: Any) -> Tensor:
    """Logits [rows, vocab_size] of token ids [rows]; one sequence unless `sequence_lengths` says otherwise."""
    options.setdefault("sequence_lengths", (tokens.shape[0],))
    ops = TorchOps(model, weight, tokens=tokens, **options)
    result: Tensor = graph_of(model).forward(ops, model)
    return result
