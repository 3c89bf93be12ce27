"""Bytes of the KV cache and recurrent state, from metadata alone.

Per layer kind: growing layers keep every token, sliding ones a window plus the largest pass (a pass writes before the
window moves), shared ones nothing, latent ones one compressed vector a token, recurrent ones a constant state per
live copy. q8_0 takes 34 bytes per 32 values and q4_0 takes 18; a row is one head's vector, and its last block is
padded.
"""

from __future__ import annotations

from dataclasses import dataclass

from twofold.planner.per_spec import per_spec
from twofold.planner.plan import KvType
from twofold.profiles.model_spec import LayerSpec, ModelSpec

KV_BLOCKS: dict[KvType, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
"""KV type → (values in a block, bytes of a block)."""


def row_bytes(values: int, kv_type: KvType) -> int:
    """One cached vector of `values` numbers."""
    block, size = KV_BLOCKS[kv_type]
    return -(-values // block) * size


def layer_token_bytes(layer: LayerSpec, k_type: KvType, v_type: KvType) -> int:
    """What one more token costs in this layer while it still grows. K and V both, also where they share a
    projection.
    """
    if layer.kind in ("recurrent", "shared"):
        return 0
    if layer.kind == "latent":
        return row_bytes(layer.latent_dim, k_type)
    return layer.n_kv_heads * (row_bytes(layer.k_head_dim, k_type) + row_bytes(layer.v_head_dim, v_type))


def layer_tokens(layer: LayerSpec, context_tokens: int, largest_pass: int) -> int:
    """How many tokens this layer's cache holds at most."""
    if layer.kind == "sliding" and layer.window is not None:
        return min(context_tokens, layer.window + largest_pass)
    return context_tokens


@dataclass(frozen=True, slots=True)
class CacheBytes:
    """The cache of a whole model, by layer kind. `growing_per_token` is the slope in context, latent layers
    included.
    """

    growing: int
    sliding: int
    recurrent: int
    growing_per_token: int
    sliding_per_token: int
    state_per_copy: int

    @property
    def total(self) -> int:
        return self.growing + self.sliding + self.recurrent


@per_spec
def _layer_shapes(spec: ModelSpec) -> list[tuple[LayerSpec, int]]:
    """One layer of each cache shape, and how many there are."""
    found: dict[tuple[object, ...], tuple[LayerSpec, int]] = {}
    for layer in spec.layers:
        heads = (layer.n_kv_heads, layer.k_head_dim, layer.v_head_dim)
        key = (layer.kind, *heads, layer.window, layer.latent_dim, layer.state_bytes)
        first, n = found.get(key, (layer, 0))
        found[key] = (first, n + 1)
    return list(found.values())


def cache_bytes(
    spec: ModelSpec,
    context_tokens: int,
    k_type: KvType = "f16",
    v_type: KvType = "f16",
    *,
    largest_pass: int = 0,
    live_copies: int = 1,
) -> CacheBytes:
    """The cache at `context_tokens`; `largest_pass` is the widest pass (prefill chunk or tree), 0 for the bare
    window.
    """
    growing = sliding = growing_per_token = sliding_per_token = state = 0
    for layer, n in _layer_shapes(spec):
        token = n * layer_token_bytes(layer, k_type, v_type)
        if layer.kind == "sliding":
            sliding += token * layer_tokens(layer, context_tokens, largest_pass)
            sliding_per_token += token
        else:
            growing += token * context_tokens
            growing_per_token += token
        state += n * layer.state_bytes
    return CacheBytes(growing, sliding, state * live_copies, growing_per_token, sliding_per_token, state)
