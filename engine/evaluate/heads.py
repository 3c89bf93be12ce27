"""Logits of the streams' rows, a slice of the vocabulary at a time."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from twofold.engine.checkpoint.reader import Checkpoint
from twofold.engine.evaluate.dequantize import head_rows
from twofold.engine.evaluate.streams import INT8, REFERENCE, ULP
from twofold.engine.quantize.options import SLICE_ROWS
from twofold.engine.torch_ops import run_head
from twofold.engine.weights import WeightSource
from twofold.engine.weights.source import HEAD
from twofold.profiles.model_spec import ModelSpec

KEEP_BYTES = 3 << 29
"""Both heads in fp32 stay in memory up to this size; larger ones are read again for every chunk of rows."""


class Heads:
    """The head of the source and that of the checkpoint.

    The baselines quantise decoder Linears only, so theirs is the source's head; base and draft streams have the
    checkpoint's whole head, as the engine's draft does.
    """

    def __init__(self, model: ModelSpec, source: WeightSource, checkpoint: Checkpoint) -> None:
        self._model, self._source, self._checkpoint = model, source, checkpoint
        (member,) = model.head.members
        self._keep = 2 * 4 * member.n_weights <= KEEP_BYTES
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def _slice(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rows of the source's head and of the checkpoint's, fp32 [stop − start, hidden_size]."""
        if start in self._kept:
            return self._kept[start]
        weights = self._checkpoint.group(self._model.head.name)
        both = torch.from_numpy(self._source.rows(HEAD, slice(start, stop))), head_rows(weights, start, stop)
        if self._keep:
            self._kept[start] = both
        return both

    def _small_weight(self, name: str) -> Tensor:
        return torch.from_numpy(self._source.tensor(name))

    @torch.no_grad()
    def logits(self, hidden: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rows [n, hidden_size] of some streams → fp32 logits [n, vocab_size] of each."""
        (member,) = self._model.head.members
        result = {name: torch.empty(rows.shape[0], member.out_features) for name, rows in hidden.items()}
        for start in range(0, member.out_features, SLICE_ROWS):
            stop = min(start + SLICE_ROWS, member.out_features)
            own, split = self._slice(start, stop)
            for name, rows in hidden.items():
                weight = own if name in (REFERENCE, INT8, ULP) else split
                result[name][:, start:stop] = run_head(
                    self._model, rows, self._small_weight, linear=lambda group, member, weight=weight: weight
                )
        return result
