"""`ModelSpec`: the facts about a model that planning and running need, read from metadata alone.

Names are Hugging Face's (`model.layers.0.self_attn.q_proj`). A `LinearGroup` is the unit of the split-precision
engine: the Linears of a layer that share an input and hence one rotation, stored and computed as one stack of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

LayerKind = Literal["growing", "sliding", "shared", "latent", "recurrent"]
"""How a layer's state grows: every token; a window; another layer's cache; compressed (MLA); constant."""


@dataclass(frozen=True, slots=True)
class LinearSpec:
    """One Linear, y = W x (+ bias), W of shape [out_features, in_features].

    `copies` > 1 for experts, of which a token uses `used_copies` (None: all, or not known).
    """

    name: str
    in_features: int
    out_features: int
    bias: bool = False
    copies: int = 1
    used_copies: int | None = None

    @property
    def n_weights(self) -> int:
        return self.in_features * self.out_features * self.copies

    def share_read(self, rows: int) -> float:
        """The share of the copies that a pass of `rows` tokens is expected to use, each token choosing for itself.

        Tokens that follow each other choose alike, so this is rather too much than too little.
        """
        if self.used_copies is None or self.used_copies >= self.copies:
            return 1.0
        return 1.0 - float((1.0 - self.used_copies / self.copies) ** rows)


@dataclass(frozen=True, slots=True)
class LinearGroup:
    """Linears with one shared input: `members` in stacking order (q, k, v; gate, up; o; down; lm_head)."""

    name: str
    members: tuple[LinearSpec, ...]

    @property
    def in_features(self) -> int:
        return self.members[0].in_features

    @property
    def out_features(self) -> int:
        return sum(member.out_features for member in self.members)

    @property
    def used_copies(self) -> int:
        """How many of its copies a token goes through: 1 without experts, all of them where it is not known."""
        first = self.members[0]
        return first.copies if first.used_copies is None else first.used_copies

    def share_read(self, rows: int) -> float:
        """`LinearSpec.share_read`: members of a group have the same copies."""
        return self.members[0].share_read(rows)


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding: base, rotated dimensions per head, and the scaling entry of the config (None = none)."""

    theta: float
    rotary_dim: int
    scaling: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One decoder layer.

    `window` in tokens for sliding layers. `state_bytes` is a recurrent layer's state per live copy (fp32 matrices and
    the convolution tail). `latent_dim` is the cached width of an MLA layer. `shares_layer` is the layer whose cache
    is reused. `dense_weights` counts weights that stay in 16 bits (routers, small gates, convolutions, norms);
    `gate_weights` are those of them that are matrices beside the recurrent layer's input projections.
    """

    index: int
    kind: LayerKind
    groups: tuple[LinearGroup, ...]
    n_heads: int = 0
    n_kv_heads: int = 0
    k_head_dim: int = 0
    v_head_dim: int = 0
    window: int | None = None
    state_bytes: int = 0
    latent_dim: int = 0
    shares_layer: int | None = None
    dense_weights: int = 0
    gate_weights: int = 0
    rope: RopeSpec | None = None

    @property
    def kv_values_per_token(self) -> int:
        """Numbers cached per token: K and V (both, also where they share a projection), or the latent."""
        if self.kind in ("recurrent", "shared"):
            return 0
        if self.kind == "latent":
            return self.latent_dim
        return self.n_kv_heads * (self.k_head_dim + self.v_head_dim)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as its metadata describes it.

    `weights_bytes` is the size of the weight files where known (None = not known, never 0). `runnable_reason` is None
    when this version's engine has a graph for the architecture, else the reason why it cannot run it. `facts_source`
    says where the facts come from. `head` is the LM head as a group (also when the embedding is tied).
    """

    name: str
    architecture: str
    layers: tuple[LayerSpec, ...]
    head: LinearGroup
    hidden_size: int
    vocab_size: int
    context_length: int
    tie_embeddings: bool
    rms_eps: float
    activation: str
    facts_source: str
    qk_norm: bool = False
    intermediate_size: int = 0
    logit_softcap: float | None = None
    attention_scale: float | None = None
    embedding_scale: float | None = None
    extra_embedding_weights: int = 0
    draft_head_weights: int = 0
    weights_bytes: int | None = None
    runnable_reason: str | None = None
    unverified: tuple[str, ...] = field(default=())

    def score_scale(self, layer: LayerSpec) -> float:
        """What attention scores of `layer` are multiplied with: the model's own factor, or 1 / sqrt(head_dim)."""
        return self.attention_scale if self.attention_scale is not None else float(layer.k_head_dim) ** -0.5

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def groups(self) -> tuple[LinearGroup, ...]:
        """All split Linears in execution order, the head last."""
        return (*(group for layer in self.layers for group in layer.groups), self.head)

    @property
    def n_used_weights(self) -> int:
        """Decoder and head weights that one token is multiplied with: of experts only those that it uses."""
        members = (member for group in self.groups for member in group.members)
        return sum(round(member.n_weights * member.share_read(1)) for member in members)

    @property
    def n_decoder_weights(self) -> int:
        return sum(member.n_weights for layer in self.layers for group in layer.groups for member in group.members)

    @property
    def n_embedding_weights(self) -> int:
        return self.vocab_size * self.hidden_size + self.extra_embedding_weights

    @property
    def n_parameters(self) -> int:
        """All parameters of the model as published: a tied head once, the MTP head not included."""
        biases = sum(
            member.out_features * member.copies for group in self.groups for member in group.members if member.bias
        )
        dense = sum(layer.dense_weights for layer in self.layers) + self.hidden_size
        head = 0 if self.tie_embeddings else self.vocab_size * self.hidden_size
        return self.n_decoder_weights + dense + biases + self.n_embedding_weights + head
