"""The KV cache: per-layer states behind three verbs: write behind what is committed, commit a path, roll back.

Slots 0..length−1 hold the committed positions; a pass writes its rows behind them. `length` is the one fact
that says what is valid and it changes last, so an interruption at any point leaves the cache as it was before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import LayerSpec, ModelSpec

F16 = NDArray[np.float16]
F32 = NDArray[np.float32]
KV_TYPES = ("f16",)


class LayerState(Protocol):
    """What a layer remembers. Later kinds (sliding, recurrent) bring their own storage under the same verbs."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        ...

    def write(self, first_slot: int, k: F32, v: F32) -> None:
        """Store a pass's rows from `first_slot` on: fp32 [rows, kv_heads, dim] each."""
        ...

    def commit(self, length: int, path: Sequence[int]) -> None:
        """Move the rows of an accepted path (ascending) to the slots right behind `length`."""
        ...


class GrowingState:
    """fp16 K (after RoPE) and V of every position, rounded to nearest even: [slots, kv_heads, dim].

    All slots are reserved at once so that tapes can hold the arrays; memory is touched as positions come.
    """

    def __init__(self, layer: LayerSpec, slots: int) -> None:
        self.k: F16 = np.zeros((slots, layer.n_kv_heads, layer.k_head_dim), np.float16)
        self.v: F16 = np.zeros((slots, layer.n_kv_heads, layer.v_head_dim), np.float16)

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def write(self, first_slot: int, k: F32, v: F32) -> None:
        rows = slice(first_slot, first_slot + k.shape[0])
        with np.errstate(all="ignore"):  # an overflow becomes infinite logits, which are refused where they are read
            self.k[rows] = k
            self.v[rows] = v

    def commit(self, length: int, path: Sequence[int]) -> None:
        if list(path) == list(range(len(path))):
            return
        chosen = np.asarray(path, np.int64) + length
        target = slice(length, length + len(path))
        self.k[target] = self.k[chosen]
        self.v[target] = self.v[chosen]


class KvCache:
    """States of all layers and how many positions are committed.

    Args:
        model: the facts. slots: committed positions plus the widest pass's rows.
        k_type, v_type: only "f16" in this version.

    Raises:
        UnsupportedModel: for another type or a layer kind without a state.
    """

    def __init__(self, model: ModelSpec, slots: int, k_type: str = "f16", v_type: str = "f16") -> None:
        for side, kind in (("K", k_type), ("V", v_type)):
            if kind not in KV_TYPES:
                raise UnsupportedModel(
                    f"this version cannot keep {side} as {kind}", found=kind, needed="f16", hint="plan with f16 K and V"
                )
        for layer in model.layers:
            if layer.kind not in ("growing", "sliding"):  # a sliding layer keeps all and reads its window
                raise UnsupportedModel(f"this version has no {layer.kind} cache (layer {layer.index} of {model.name})")
        self.slots, self.length = slots, 0
        self.layers = [GrowingState(layer, slots) for layer in model.layers]

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self.layers)

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of the last pass that are on `path` (ascending), in that order."""
        if any(b <= a for a, b in itertools.pairwise(path)) or (path and path[0] < 0):
            raise ValueError(f"a path is ascending row numbers, got {list(path)}")
        if self.length + (path[-1] + 1 if path else 0) > self.slots:
            raise ValueError(f"row {path[-1]} after {self.length} positions is outside {self.slots} slots")
        if path and path[-1] != len(path) - 1:  # else every row is where it stays
            for state in self.layers:
                state.commit(self.length, path)
        self.length += len(path)

    def roll_back(self, length: int) -> None:
        """Forget all positions from `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} of {self.length} positions")
        self.length = length
