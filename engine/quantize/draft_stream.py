"""The draft's computation in training: forward behind what the model computed, divergence from it, and the gradient of
its scales, in bounded memory.

A forward pass keeps each layer's input of one batch; the way back computes a layer again with its gradient and lets it
go before the next (gradient checkpointing by hand).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.engine.evaluate.ranks import behind_exact
from twofold.engine.graph.registry import graph_of
from twofold.engine.quantize.bases import GivenBase
from twofold.engine.quantize.draft_ops import DEPTH, DraftOps
from twofold.engine.quantize.group import GroupRotations
from twofold.engine.quantize.layer import Texts
from twofold.engine.quantize.options import REFINE_BATCH_TOKENS, REFINE_HEAD_LOGITS
from twofold.engine.quantize.rowstore import RowStore
from twofold.engine.torch_ops import TorchOps, causal_attention
from twofold.profiles.model_spec import LayerSpec, LinearGroup, ModelSpec

Scales = Mapping[str, Tensor]
"""By group, [n_groups, rows]."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole texts, which are rows `start` … `stop` − 1 of the store."""

    start: int
    texts: tuple[Sequence[int], ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self.texts))

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    @property
    def stop(self) -> int:
        return self.start + self.n_rows


def batches(texts: Sequence[Sequence[int]], start: int = 0) -> Iterator[Batch]:
    """Whole texts, up to `REFINE_BATCH_TOKENS` tokens at a time (or one that is longer); rows from `start`."""
    left = list(texts)
    for first, _, lengths in Texts(tuple(map(len, texts))).chunks(REFINE_BATCH_TOKENS):
        yield Batch(start + first, tuple(left[: len(lengths)]))
        del left[: len(lengths)]


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A model and its draft. `weight` loads a tensor of the source onto the device, `embed` embeds tokens as the
    checkpoint does, `levels` reads a group's base, int8 [K, rows].
    """

    model: ModelSpec
    weight: Callable[[str], Tensor]
    embed: Callable[[Sequence[int]], Tensor]
    rotations: Callable[[LinearGroup], GroupRotations]
    levels: Callable[[str], Tensor]
    device: torch.device


class DraftStream:
    """`store` holds what the model computes: K and V of every layer and the last hidden rows."""

    def __init__(self, draft: DraftModel, store: RowStore) -> None:
        self.draft, self.model, self.store = draft, draft.model, store
        self._graph = graph_of(draft.model)
        self._inputs: Tensor | None = None
        self._weights: dict[str, Tensor] = {}
        # All at once: made between what comes and goes with each layer they left holes in the allocator's heap, 0.75 GB
        # for SmolLM2.
        groups = (group for layer in self.model.layers for group in layer.groups)
        self._rotations = {group.name: draft.rotations(group) for group in groups}

    @torch.no_grad()
    def run_model(self, over: Sequence[Batch], told: Callable[[str], None]) -> None:
        """The model over all batches, layer by layer, to the store."""
        for batch in over:
            self.store.write("hidden", batch.start, self._embedded(batch))
        for layer in self.model.layers:
            told(f"what the model says, layer {layer.index + 1}/{self.model.n_layers}")
            for batch in over:
                self._model_layer(layer, batch)
            for member in (member for group in layer.groups for member in group.members):
                self._weights.pop(f"{member.name}.weight", None)

    def _model_layer(self, layer: LayerSpec, batch: Batch) -> None:
        def keeping(
            model: ModelSpec, layer: LayerSpec, q: Tensor, k: Tensor, v: Tensor, sequence_lengths: Sequence[int]
        ) -> Tensor:
            self.store.write(f"k-{layer.index}", batch.start, k.flatten(1))
            self.store.write(f"v-{layer.index}", batch.start, v.flatten(1))
            return causal_attention(model, layer, q, k, v, sequence_lengths)

        ops = TorchOps(
            self.model,
            self._weight,
            sequence_lengths=batch.lengths,
            embeddings=self._read("hidden", batch),
            attention=keeping,
            device=self.draft.device,
        )
        self.store.write("hidden", batch.start, self._graph.decoder_layer(ops, self.model, layer, ops.embed()))

    @torch.no_grad()
    def divergence(self, batch: Batch, scales: Scales) -> float:
        """KL(model ‖ draft), nats per token."""
        x = self._embedded(batch)
        for layer in self.model.layers:
            x = self._draft_layer(layer, batch, x, scales)
        return self._loss(x, batch)

    def backward(self, batch: Batch, scales_of: Callable[[LayerSpec], Scales]) -> float:
        """Add the gradient of `divergence` to the leaves that `scales_of` a layer come from; the divergence."""
        inputs = self._inputs_for(batch)
        with torch.no_grad():
            x = self._embedded(batch)
            for layer in self.model.layers:
                inputs[layer.index] = x
                x = self._draft_layer(layer, batch, x, scales_of(layer))
        x = x.requires_grad_(True)
        loss = self._loss(x, batch)
        for layer in reversed(self.model.layers):
            gradient, x = x.grad, inputs[layer.index].detach().requires_grad_(True)
            torch.autograd.backward(self._draft_layer(layer, batch, x, scales_of(layer)), gradient)
        return loss

    def _inputs_for(self, batch: Batch) -> Tensor:
        """Where the layers' inputs [layers, rows, hidden_size] are kept: one place for all batches."""
        if self._inputs is None or self._inputs.shape[1] < batch.n_rows:
            shape = (self.model.n_layers, max(batch.n_rows, REFINE_BATCH_TOKENS), self.model.hidden_size)
            self._inputs = torch.empty(shape, device=self.draft.device)
        return self._inputs[:, : batch.n_rows]

    def _embedded(self, batch: Batch) -> Tensor:
        return torch.cat([self.draft.embed(text) for text in batch.texts]).to(self.draft.device)

    def _draft_layer(self, layer: LayerSpec, batch: Batch, x: Tensor, scales: Scales) -> Tensor:
        def exact(layer: LayerSpec) -> tuple[Tensor, Tensor]:
            shape = (batch.n_rows, layer.n_kv_heads, -1)
            key, value = (self._read(f"{part}-{layer.index}", batch).view(shape) for part in "kv")
            return key, value

        ops = DraftOps(
            self.model,
            self._weight,
            rotations=lambda group: self._rotations[group.name],
            base=lambda group: GivenBase(self.draft.levels(group.name), scales[group.name].float()),
            sequence_lengths=batch.lengths,
            embeddings=x,
            attention=behind_exact(exact, DEPTH),
            device=self.draft.device,
        )
        rows: Tensor = self._graph.decoder_layer(ops, self.model, layer, ops.embed())
        return rows

    def _loss(self, hidden: Tensor, batch: Batch) -> float:
        """KL per token of the draft's last hidden rows, and its gradient, where `hidden` wants one. A few rows against
        the whole vocabulary at a time.
        """
        rows, total = max(1, REFINE_HEAD_LOGITS // self.model.vocab_size), 0.0
        for said, own in zip(self._read("hidden", batch).split(rows), hidden.split(rows), strict=True):
            with torch.no_grad():
                model = self._head(said).log_softmax(-1)
            draft = self._head(own).log_softmax(-1)
            loss = torch.nn.functional.kl_div(draft, model, reduction="sum", log_target=True) / batch.n_rows
            total += float(loss.detach())
            if hidden.requires_grad:
                torch.autograd.backward(loss)
        return total

    def _head(self, rows: Tensor) -> Tensor:
        lengths = (rows.shape[0],)
        ops = TorchOps(self.model, self._weight, sequence_lengths=lengths, embeddings=rows, device=self.draft.device)
        logits: Tensor = self._graph.head(ops, self.model, ops.embed())
        return logits

    def _read(self, name: str, batch: Batch) -> Tensor:
        return self.store.read(name, batch.start, batch.stop).to(self.draft.device)

    def _weight(self, name: str) -> Tensor:
        """Kept: norms, biases and the head for good, a layer's matrices while the model runs through it."""
        if name not in self._weights:
            self._weights[name] = self.draft.weight(name)
        return self._weights[name]
