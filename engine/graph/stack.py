"""What every model of decoder layers shares: embeddings through all layers, a final norm, the LM head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from twofold.engine.graph.ops import Ops, T
from twofold.profiles.model_spec import LayerSpec, ModelSpec


class DecoderLayer(Protocol):
    """One layer's wiring: x [rows, hidden_size] → [rows, hidden_size]."""

    def __call__(self, ops: Ops[T], model: ModelSpec, layer: LayerSpec, x: T, /) -> T: ...


@dataclass(frozen=True, slots=True)
class Graph:
    """An architecture's wiring; what is its own is the layer."""

    decoder_layer: DecoderLayer

    def head(self, ops: Ops[T], model: ModelSpec, x: T) -> T:
        """The final norm and the LM head: [rows, hidden_size] → logits [rows, vocab_size]."""
        (logits,) = ops.linears(ops.rms_norm(x, "model.norm.weight"), model.head)
        return logits

    def layers(self, ops: Ops[T], model: ModelSpec) -> T:
        """The tokens' embeddings through every layer: [rows, hidden_size]."""
        x = ops.embed()
        for layer in model.layers:
            x = self.decoder_layer(ops, model, layer, x)
        return x

    def forward(self, ops: Ops[T], model: ModelSpec) -> T:
        """The whole pass to logits."""
        return self.head(ops, model, self.layers(ops, model))
