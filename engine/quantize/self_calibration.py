"""Calibration text that the model writes itself: sampled answers to shipped prompts, several at a time, KV-cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from twofold.engine import rope
from twofold.engine.graph.registry import graph_of
from twofold.engine.quantize.calibration import Calibration, take
from twofold.engine.text.chat_template import ChatTemplate
from twofold.engine.text.tokenizer import Tokenizer
from twofold.engine.torch_ops import TorchOps, WeightOf, attention_scale
from twofold.engine.weights.source import WeightSource
from twofold.profiles.errors import InvalidCalibration
from twofold.profiles.model_spec import LayerSpec, ModelSpec

PROMPTS_FILE = "calibration_prompts.txt"
BATCH = 24
MAX_ANSWER_TOKENS = 320
_TEMPERATURE, _TOP_P, _CANDIDATES = 0.8, 0.95, 4096

Told = Callable[[int, int], None]
"""(tokens written, tokens wanted)."""


def prompts() -> list[str]:
    """The prompts that ship."""
    text = (files("twofold.engine") / "data" / PROMPTS_FILE).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


class _CachedOps(TorchOps):
    """`TorchOps` for rows that continue several sequences: positions are given and attention reads a cache."""

    def __init__(self, model: ModelSpec, weight: WeightOf, tokens: Tensor, cache: _Cache, lanes: Tensor) -> None:
        super().__init__(model, weight, sequence_lengths=(tokens.shape[0],), tokens=tokens)
        self.cache, self.lanes = cache, lanes
        self.positions = cache.lengths[lanes]

    def rope(self, x: Tensor, layer: LayerSpec) -> Tensor:
        if layer.rope is None:
            return x
        cos, sin = (torch.from_numpy(t)[:, None, :] for t in rope.tables(layer.rope, self.positions.numpy()))
        half = layer.rope.rotary_dim // 2
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, layer: LayerSpec) -> Tensor:
        keys, values = self.cache.write(layer, self.lanes, self.positions, k, v)
        longest = int(self.positions.max()) + 1
        distance = self.positions[:, None] - torch.arange(longest)[None, :]
        visible = distance >= 0 if layer.window is None else (distance >= 0) & (distance < layer.window)
        attended = torch.nn.functional.scaled_dot_product_attention(
            q[:, :, None, :],
            keys[self.lanes, :, :longest],
            values[self.lanes, :, :longest],
            attn_mask=visible[:, None, None, :],
            scale=attention_scale(self.model, layer),
            enable_gqa=layer.n_heads != layer.n_kv_heads,
        )
        return attended.reshape(q.shape[0], -1)


class _Cache:
    """K and V per layer, [lanes, kv_heads, capacity, head_dim]; `lengths` counts each lane's tokens."""

    def __init__(self, lanes: int, capacity: int) -> None:
        self.lengths = torch.zeros(lanes, dtype=torch.int64)
        self._capacity = capacity
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: LayerSpec, lanes: Tensor, positions: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if layer.index not in self._layers:
            shape = (self.lengths.shape[0], layer.n_kv_heads, self._capacity)
            self._layers[layer.index] = (
                torch.zeros(*shape, layer.k_head_dim),
                torch.zeros(*shape, layer.v_head_dim),
            )
        keys, values = self._layers[layer.index]
        keys[lanes, :, positions] = k
        values[lanes, :, positions] = v
        return keys, values


def _sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row, temperature 0.8, top-p 0.95, of the likeliest few thousand: sorting all of a large vocabulary
    would take longer than the pass.
    """
    probabilities = torch.softmax(logits / _TEMPERATURE, -1)
    ordered, ids = torch.topk(probabilities, min(_CANDIDATES, probabilities.shape[-1]))
    ordered[ordered.cumsum(-1) - ordered > _TOP_P] = 0
    choice = torch.multinomial(ordered, 1, generator=generator)
    return ids.gather(-1, choice)[:, 0]


def _answers(
    model: ModelSpec,
    weight: WeightOf,
    starts: Sequence[Sequence[int]],
    ends: frozenset[int],
    generator: torch.Generator,
    told: Callable[[int], None],
) -> list[list[int]]:
    """Every start continued to an end token or the longest answer."""
    graph = graph_of(model)
    texts = [list(start) for start in starts]
    cache = _Cache(len(texts), max(map(len, texts)) + MAX_ANSWER_TOKENS)
    alive, done = list(range(len(texts))), [0] * len(texts)
    limit = [len(text) + MAX_ANSWER_TOKENS for text in texts]
    while alive:
        lanes = torch.tensor(alive)
        tokens = torch.tensor([texts[lane][done[lane]] for lane in alive])
        logits = graph.forward(_CachedOps(model, weight, tokens, cache, lanes), model)
        cache.lengths[lanes] += 1
        chosen = _sample(logits[:, : model.vocab_size], generator).tolist()
        told(len(alive))
        for lane, token in zip(list(alive), chosen, strict=True):
            done[lane] += 1
            if done[lane] == len(texts[lane]):
                texts[lane].append(token)
                if token in ends or len(texts[lane]) >= limit[lane]:
                    alive.remove(lane)
    return texts


@torch.no_grad()
def written_by_model(
    source: WeightSource, spec: ModelSpec, tokenizer: Tokenizer, n_tokens: int, seed: int, told: Told | None = None
) -> Calibration:
    """Calibration in the model's own words; all its weights are in memory (fp32) meanwhile.

    Raises:
        InvalidCalibration: when the model says too little to calibrate with.
    """
    weights = {name: torch.from_numpy(np.array(source.tensor(name))) for name in source.names()}
    template = ChatTemplate.from_tokenizer(tokenizer)
    generator = torch.Generator().manual_seed(seed)
    texts: list[list[int]] = []
    written = 0

    def count(n: int) -> None:
        nonlocal written
        written += n
        if told is not None:
            told(min(written, n_tokens), n_tokens)

    starts = [template.encode(tokenizer, [{"role": "user", "content": prompt}]) for prompt in prompts()]
    rounds = 0
    while sum(map(len, texts)) < n_tokens and rounds < 64:
        batch = [starts[(rounds * BATCH + i) % len(starts)] for i in range(BATCH)]
        texts += _answers(spec, weights.__getitem__, batch, frozenset(tokenizer.eos_ids), generator, count)
        rounds += 1
    taken = take(texts, n_tokens)
    if sum(map(len, taken)) < n_tokens:
        raise InvalidCalibration(
            f"{spec.name} writes too little to calibrate with",
            found=f"{sum(map(len, taken))} tokens",
            needed=str(n_tokens),
            hint="--calibration shipped",
        )
    digest = hashlib.sha256(json.dumps(taken).encode()).hexdigest()
    return Calibration(f"self:{spec.name}:seed-{seed}", digest, taken, tokenizer.sha256)
