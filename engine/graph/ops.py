"""The operations that a model graph is wired from.

A graph (`engine/graph/llama.py`) is written once per architecture, as wiring only, against this protocol. Two kinds of
implementation exist: an eager one that computes in floating point with torch (quantising, evaluating), and a
recording one that turns the wiring into a tape of kernel calls over pre-resolved buffers (running). `T` is a tensor
for the first and a buffer for the second; rows come first: [rows, features] or [rows, heads, head_dim].
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from twofold.profiles.model_spec import LayerSpec, LinearGroup

T = TypeVar("T")


class Ops(Protocol[T]):
    """What a graph may ask for. Weight arguments are Hugging Face tensor names."""

    def embed(self) -> T:
        """Embedding rows of the pass's tokens, [rows, hidden_size]."""
        ...

    def rms_norm(self, x: T, weight: str) -> T:
        """RMSNorm over the last axis of [rows, features]."""
        ...

    def head_norm(self, x: T, weight: str) -> T:
        """RMSNorm over each head's dimensions of [rows, heads, head_dim] (q_norm and k_norm)."""
        ...

    def linears(self, x: T, group: LinearGroup) -> tuple[T, ...]:
        """Every member's product with the shared input x, biases included: one [rows, out_features] each."""
        ...

    def heads(self, x: T, n_heads: int) -> T:
        """View [rows, n_heads * head_dim] as [rows, n_heads, head_dim]."""
        ...

    def rope(self, x: T, layer: LayerSpec) -> T:
        """Rotate each head by its row's position (Hugging Face's half-split pairing)."""
        ...

    def attention(self, q: T, k: T, v: T, layer: LayerSpec) -> T:
        """Write k and v to the layer's cache, then attend: [rows, n_heads * v_head_dim]."""
        ...

    def silu_mul(self, gate: T, up: T) -> T:
        """silu(gate) * up."""
        ...

    def gelu_mul(self, gate: T, up: T) -> T:
        """gelu(gate) * up, GELU in its tanh form."""
        ...

    def add(self, x: T, y: T) -> T:
        """x + y, the residual stream."""
        ...
