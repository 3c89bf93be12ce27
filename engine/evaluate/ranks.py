"""Where the verifier's token stands in the draft's ranking, per draft depth.

For query position p and draft depth d, the draft attends to the verifier's exact K/V at keys j < p − d + 1 and to its
own K/V at the rest: what its d-th level sees when it drafts behind a verified text. With its own K/V everywhere the
draft is a plain 2-bit model. Its products are computed in floating point: that the engine's drafts read one int8 plane
of their activations is not in the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from twofold.engine.torch_ops import Attention, attention_scale
from twofold.profiles.model_spec import LayerSpec, ModelSpec

RECALL_AT = (1, 2, 4, 8, 16)
MAX_RANK = 16


def rank_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Rank of `tokens` [n] in `logits` [n, vocab_size]: 0 is the argmax; equal logits are ordered by id."""
    chosen = logits.gather(1, tokens[:, None])
    ids = torch.arange(logits.shape[1])
    ahead = (logits > chosen) | ((logits == chosen) & (ids[None, :] < tokens[:, None]))
    return ahead.sum(dim=1)


def recalls(ranks: np.ndarray) -> list[float]:
    """Share of ranks below 1, 2, 4, 8, 16."""
    return [float(np.mean(ranks < at)) for at in RECALL_AT]


def rank_frequencies(ranks: np.ndarray) -> list[float]:
    """p(r) for r < 16: what a best-first tree is built from."""
    counts = np.bincount(np.minimum(ranks, MAX_RANK), minlength=MAX_RANK + 1)
    return [float(count) / len(ranks) for count in counts[:MAX_RANK]]


def mixed_attention(
    q: Tensor,
    exact: tuple[Tensor, Tensor],
    draft: tuple[Tensor, Tensor],
    depth: int,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Causal (windowed, where the layer is) attention of one sequence over a mixture of exact and draft keys and
    values.

    Shapes: q [n, heads, dim]; each K, V [n, kv_heads, dim]. Returns [n, heads, dim]. Both halves are scored and the
    key's half is chosen per (query, key): as if they were concatenated and masked, without doubling the softmax.
    """
    n, n_heads, _ = q.shape
    repeat = n_heads // exact[0].shape[1]
    key_exact, value_exact, key_draft, value_draft = (
        part.repeat_interleave(repeat, dim=1).transpose(0, 1) for part in (*exact, *draft)
    )
    query = q.transpose(0, 1)
    position = torch.arange(n, device=q.device)
    from_exact = position[None, :] < position[:, None] - depth + 1
    scores = torch.where(from_exact, query @ key_exact.transpose(1, 2), query @ key_draft.transpose(1, 2)) * scale
    distance = position[:, None] - position[None, :]
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    scores = scores.masked_fill(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    mixed = (weights * from_exact) @ value_exact + (weights * ~from_exact) @ value_draft
    return mixed.transpose(0, 1)


def behind_exact(exact: Callable[[LayerSpec], tuple[Tensor, Tensor]], depth: int) -> Attention:
    """`mixed_attention` of each text at `depth`, over the exact K and V [rows, kv_heads, dim] that `exact` gives for a
    layer.
    """

    def attend(
        model: ModelSpec, layer: LayerSpec, q: Tensor, k: Tensor, v: Tensor, sequence_lengths: Sequence[int]
    ) -> Tensor:
        texts = zip(*(rows.split(list(sequence_lengths)) for rows in (q, k, v, *exact(layer))), strict=True)
        scale = attention_scale(model, layer)
        outputs = [
            mixed_attention(query, (exact_key, exact_value), (key, value), depth, scale, layer.window).flatten(1)
            for query, key, value, exact_key, exact_value in texts
        ]
        return torch.cat(outputs)

    return attend
