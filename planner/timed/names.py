"""What a timed part of a pass is called in a `KernelTiming`: one vocabulary for measuring and for predicting.

`rows` of a timing are the pass's, its latency is that of one call. Widths (`bits`) are those of the residual, of the
base (2), or of the numbers in the cache.
"""

from __future__ import annotations

from twofold.planner.plan import KvType
from twofold.profiles.model_spec import LayerSpec, LinearGroup, ModelSpec

LINEAR = "linear"
"""A fused Linear of a verify pass: rotating and quantising its rows, base and residual, rotating back."""
LINEAR_BASE = "linear, base alone"
"""The same in a draft pass."""
ATTENTION = "attention"
LAYER_ROWS = "rows of a layer"
"""All of a layer that is neither a Linear nor attention: norms, rotary angles, cache writes, activations, sums."""
HEAD = "head"
"""Final norm and LM head, base and residual."""
HEAD_BASE = "head, base alone"
GUESS = "guesses"
"""What a draft pass takes beside its kernels: the shortlist, its weighing in full, the pass's fixed cost."""
CHOOSE = "choice"
"""Choosing a token from one row of logits, beyond a step's first."""
STEP = "step"
"""What a step takes beside its kernels: the first choice, committing, the fixed cost of a pass."""
FIXED = "fixed"
"""The shape of what has none."""

BASE_BITS = 2
FLOAT_BITS = 16
KV_BITS: dict[KvType, int] = {"f16": 16, "q8_0": 8, "q4_0": 4}


def linear_shape(group: LinearGroup) -> str:
    """Outputs and inputs: `3072x576`."""
    return f"{group.out_features}x{group.in_features}"


def attention_heads(layer: LayerSpec) -> str:
    """`9/3x64+64`: heads over KV heads, width of K and V."""
    return f"{layer.n_heads}/{layer.n_kv_heads}x{layer.k_head_dim}+{layer.v_head_dim}"


def attention_shape(heads: str, context: int) -> str:
    """`9/3x64+64@512`: what a row sees of the cache, a window or all of it."""
    return f"{heads}@{context}"


def seen(layer: LayerSpec, context: int) -> int:
    """Cached positions that a row of `layer` sees behind `context` committed ones."""
    return context if layer.window is None else min(context, layer.window)


def row_values(spec: ModelSpec) -> str:
    """Values that a row of the first layer goes through, which the cost of its row operations follows."""
    layer = spec.layers[0]
    return str(sum(group.in_features + group.out_features for group in layer.groups))
