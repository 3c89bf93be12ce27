"""The KV cache: per-layer states behind three verbs: write behind what is committed, commit a path, roll back.

Slots 0..length−1 of a growing layer hold the committed positions; a pass writes its rows behind them. A sliding layer
keeps its window and the largest pass: slot s holds position `first_position` + s, and when a pass finds no room the
window moves to the front. `length` is the one fact that says what is valid and it changes last, so an interruption at
any point leaves the cache as it was before, or (while a window moves) empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.arrays import IN_MEMORY, Arrays
from twofold.kernels.naive.kv_blocks import BLOCK_BYTES, KvType, cache_width
from twofold.planner.kv import layer_tokens
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import LayerSpec, ModelSpec

Array = NDArray[Any]
KV_TYPES = ("f16", *BLOCK_BYTES)


class LayerState:
    """K (after RoPE) and V of a growing layer's positions: [slots, kv_heads, width], fp16 or the bytes of blocks.

    All slots are reserved at once so that tapes can hold the arrays; memory is touched as positions come.

    Attributes:
        k, v: the arrays, of `k_type` and `v_type`.
        origin: int64 [1], the position in slot 0, which tapes read at every run; what lies before it is gone.
        window: how many positions a row sees (None: all).
    """

    def __init__(
        self, layer: LayerSpec, slots: int, k_type: KvType, v_type: KvType, arrays: Arrays = IN_MEMORY
    ) -> None:
        self.k = _array(arrays, layer, slots, layer.k_head_dim, k_type)
        self.v = _array(arrays, layer, slots, layer.v_head_dim, v_type)
        self.k_type, self.v_type, self.window = k_type, v_type, layer.window
        self.slots, self.origin = slots, np.zeros(1, np.int64)

    @property
    def first_position(self) -> int:
        return int(self.origin[0])

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.k.nbytes + self.v.nbytes

    def slot(self, position: int) -> int:
        """Where a position is kept, or will be."""
        return position - self.first_position

    def has_room(self, length: int, rows: int) -> bool:
        return self.slot(length) + rows <= self.slots

    def commit(self, length: int, path: Sequence[int]) -> None:
        """Move the rows of an accepted path (ascending) to the slots right behind the `length` committed positions."""
        if not path or path[-1] == len(path) - 1:
            return
        start = self.slot(length)
        for target, row in enumerate(path):  # ascending: a row never lands on one that is still to be moved
            if target != row:
                self.k[start + target] = self.k[start + row]
                self.v[start + target] = self.v[start + row]

    def move_window(self, length: int) -> None:
        """Bring the positions that a row behind `length` still sees to the front."""
        if self.window is None:
            return
        first = max(self.first_position, length - (self.window - 1))
        kept = slice(self.slot(first), self.slot(length))
        n = kept.stop - kept.start
        self.k[:n] = self.k[kept]
        self.v[:n] = self.v[kept]
        self.origin[0] = first

    def repeat(self, length: int, until: int) -> None:
        """Fill the slots of positions up to `until` with the `length` committed rows over and over.

        Only from slot 0 on: nothing has been let go of yet. A layer that keeps less than `until` then holds what a row
        behind `until` sees.
        """
        first = 0 if self.window is None or until <= self.slots else max(0, until - (self.window - 1))
        end = until - first
        for array in (self.k, self.v):
            done = length
            while done < end:  # doubling: every copy is of what is there already
                n = min(done, end - done)
                array[done : done + n] = array[:n]
                done += n
        self.origin[0] = first

    def keeps(self, length: int) -> bool:
        """Whether all that a row behind `length` sees is here."""
        return self.first_position == 0 or (
            self.window is not None and length - (self.window - 1) >= self.first_position
        )


def _array(arrays: Arrays, layer: LayerSpec, slots: int, dim: int, kind: KvType) -> Array:
    return arrays.zeros((slots, layer.n_kv_heads, cache_width(dim, kind)), np.float16 if kind == "f16" else np.uint8)


class KvCache:
    """States of all layers and how many positions are committed.

    Args:
        model: the facts.
        slots: committed positions plus the widest pass that runs behind all of them.
        k_type, v_type: "f16", "q8_0" or "q4_0".
        largest_pass: rows of the widest pass, which sliding layers keep beside their window (None: they keep all).

    Raises:
        UnsupportedModel: for another type or a layer kind without a state.
    """

    def __init__(
        self,
        model: ModelSpec,
        slots: int,
        k_type: KvType = "f16",
        v_type: KvType = "f16",
        largest_pass: int | None = None,
        arrays: Arrays = IN_MEMORY,
    ) -> None:
        for side, kind in (("K", k_type), ("V", v_type)):
            if kind not in KV_TYPES:
                needed = " or ".join(KV_TYPES)
                raise UnsupportedModel(f"this version cannot keep {side} as {kind}", found=kind, needed=needed)
        for layer in model.layers:
            if layer.kind not in ("growing", "sliding"):
                raise UnsupportedModel(f"this version has no {layer.kind} cache (layer {layer.index} of {model.name})")
        self.slots, self.length = slots, 0
        self.layers = [
            LayerState(
                layer,
                slots if largest_pass is None else layer_tokens(layer, slots, largest_pass),
                k_type,
                v_type,
                arrays,
            )
            for layer in model.layers
        ]
        # Those that keep less than all, by size and window: they move together, so that one of them speaks for all.
        self._windowed: dict[tuple[int, int | None], list[LayerState]] = {}
        for state in self.layers:
            if state.slots < slots:
                self._windowed.setdefault((state.slots, state.window), []).append(state)

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self.layers)

    def make_room(self, rows: int) -> None:
        """Before the next `rows` are written behind the committed positions: move the windows that have no room.

        Interrupted here the cache is empty.

        Raises:
            ValueError: more rows than were reserved.
        """
        if self.length + rows > self.slots:
            raise ValueError(f"{rows} rows after {self.length} positions do not fit {self.slots} slots")
        if self.length == 0:
            self._forget()  # also what an interruption left
        kinds = [states for states in self._windowed.values() if not states[0].has_room(self.length, rows)]
        if not kinds:
            return
        length, self.length = self.length, 0
        for state in itertools.chain.from_iterable(kinds):
            state.move_window(length)
            if not state.has_room(length, rows):
                self._forget()
                raise ValueError(f"{rows} rows do not fit {state.slots} slots beside a window of {state.window}")
        self.length = length

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

    def repeat(self, until: int) -> None:
        """Commit `until` positions, made of the committed rows over and over. For timing only.

        Raises:
            ValueError: nothing is committed, more is, a window has moved, or there are not that many slots.
        """
        moved = any(state.first_position for state in self.layers)
        if not 0 < self.length <= until <= self.slots or moved:
            raise ValueError(f"cannot repeat {self.length} positions up to {until} of {self.slots} slots")
        length, self.length = self.length, 0
        for state in self.layers:
            state.repeat(length, until)
        self.length = until

    def roll_back(self, length: int) -> int:
        """Forget all positions from `length` on; returns how many are left.

        Fewer than `length` where a sliding layer has let go of what the next row would see: then none.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} of {self.length} positions")
        if all(states[0].keeps(length) for states in self._windowed.values()):
            self.length = length
        else:
            self._forget()
        if self.length == 0:
            self._forget()
        return self.length

    def _forget(self) -> None:
        self.length = 0
        for state in itertools.chain.from_iterable(self._windowed.values()):
            state.origin[0] = 0
