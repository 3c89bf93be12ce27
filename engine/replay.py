"""Replaying a tape op by op: each is one kernel call on resolved arrays; what varies between replays is in `PassState`.

The native kernels have a player of their own (`native_replay.py`): this one is what they must agree with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.arrays import IN_MEMORY, Arrays
from twofold.engine.kv_cache import KvCache
from twofold.engine.rope import RopeTable
from twofold.engine.tape import Op, Tape
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.model_spec import ModelSpec, RopeSpec

F32 = NDArray[np.float32]


class PassState:
    """The small arrays that ops read: tokens, positions, parents, rotary tables, committed length.

    Row r behind the committed text sits in slot `n_committed` + r, at one position behind its parent row (parent −1:
    behind the committed ones). A pass computes rows `first_row` and up; the ones before it are an earlier pass's.
    """

    def __init__(self, model: ModelSpec, max_rows: int, slots: int, arrays: Arrays = IN_MEMORY) -> None:
        self._tokens: NDArray[np.int64] = arrays.zeros((max_rows,), np.int64)
        self._positions: NDArray[np.int64] = arrays.zeros((max_rows,), np.int64)
        self._parents: NDArray[np.int32] = arrays.zeros((max_rows,), np.int32)
        self._ropes: list[tuple[RopeSpec, RopeTable, F32, F32]] = []
        for layer in model.layers:
            if layer.rope is not None and all(layer.rope != known[0] for known in self._ropes):
                angles = arrays.empty((2, max_rows, layer.rope.rotary_dim // 2), np.float32)
                self._ropes.append((layer.rope, RopeTable(layer.rope, slots, arrays), angles[0], angles[1]))
        self.rows, self.first_row, self.n_committed, self.use_residual = 0, 0, 0, True
        self._located = False

    @property
    def row_arrays(self) -> list[NDArray[Any]]:
        """Tokens, positions and parents."""
        return [self._tokens, self._positions, self._parents]

    @property
    def angle_arrays(self) -> list[NDArray[Any]]:
        """Rotary tables of all positions, and the angles of a pass's rows."""
        return [array for _, table, cos, sin in self._ropes for array in (table.cos, table.sin, cos, sin)]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.row_arrays, *self.angle_arrays))

    @property
    def tokens(self) -> NDArray[np.int64]:
        return self._tokens[: self.rows]

    @property
    def positions(self) -> NDArray[np.int64]:
        self._locate()
        return self._positions[self.first_row : self.first_row + self.rows]

    @property
    def parents(self) -> NDArray[np.int32]:
        """Of all rows up to the pass's last."""
        return self._parents[: self.first_row + self.rows]

    def angles(self, rope: RopeSpec) -> tuple[F32, F32]:
        """cos and sin of the pass's rows, [rows, rotary_dim / 2]."""
        self._locate()
        for known, _, cos, sin in self._ropes:
            if known is rope or known == rope:
                return cos[: self.rows], sin[: self.rows]
        raise KeyError(rope)

    def table(self, rope: RopeSpec) -> RopeTable:
        """The tables of all positions, valid as far as the pass reaches."""
        return next(table for known, table, _, _ in self._ropes if known is rope or known == rope)

    def set(self, tokens: Sequence[int], parents: Sequence[int], n_committed: int, use_residual: bool) -> None:
        """Describe the next pass: the last len(tokens) of the rows that `parents` lists."""
        self.rows, self.first_row = len(tokens), len(parents) - len(tokens)
        self.n_committed, self.use_residual = n_committed, use_residual
        self.tokens[:] = tokens
        self.parents[:] = parents
        self._located = False
        for _, table, _, _ in self._ropes:
            table.fill(n_committed + len(parents))

    def _locate(self) -> None:
        """Positions and angles, which a native tape finds itself."""
        if self._located:
            return
        for row, parent in enumerate(self.parents.tolist()):
            self._positions[row] = self.n_committed if parent < 0 else self._positions[parent] + 1
        self._located = True
        for _, table, cos, sin in self._ropes:
            table.read(self.positions, cos[: self.rows], sin[: self.rows])


class Player:
    """Runs tapes with one set of kernels over one model's weights and cache."""

    def __init__(
        self,
        ops: Any,
        model: ModelSpec,
        groups: Mapping[str, SplitWeights],
        dense: Mapping[str, NDArray[Any]],
        cache: KvCache,
        state: PassState,
    ) -> None:
        self._ops, self._model = ops, model
        self._groups, self._dense, self._cache, self._state = groups, dense, cache, state
        self._run: dict[str, Callable[[Op], None]] = {
            "embed": self._embed,
            "rms_norm": self._rms_norm,
            "split_linear": self._split_linear,
            "rope": self._rope,
            "kv_write": self._kv_write,
            "attention": self._attention,
            "silu_mul": self._silu_mul,
            "gelu_mul": self._gelu_mul,
            "add": self._add,
            "argmax": self._argmax,
        }

    @property
    def nbytes(self) -> int:
        """Scratch of its own: none that stays."""
        return 0

    def play(self, tape: Tape) -> None:
        """Compute the pass that the state describes; its rows' K and V land behind the committed positions."""
        run = self._run
        for op in tape.ops:
            run[op.instruction.kind](op)

    def _embed(self, op: Op) -> None:
        assert op.output is not None
        self._ops.embed(self._dense[str(op.instruction.weight)], self._state.tokens, out=op.output)
        if self._model.embedding_scale is not None:
            np.multiply(op.output, np.float32(self._model.embedding_scale), out=op.output)

    def _rms_norm(self, op: Op) -> None:
        weight = self._dense[str(op.instruction.weight)]
        self._ops.rms_norm(op.inputs[0], weight, self._model.rms_eps, out=op.output)

    def _split_linear(self, op: Op) -> None:
        weights = self._groups[str(op.instruction.weight)]
        self._ops.split_linear(op.inputs[0], weights, self._state.use_residual, out=op.output)

    def _rope(self, op: Op) -> None:
        layer = op.instruction.layer
        assert layer is not None and layer.rope is not None
        cos, sin = self._state.angles(layer.rope)
        self._ops.rope(op.inputs[0], cos, sin, out=op.output)

    def _kv_write(self, op: Op) -> None:
        layer = op.instruction.layer
        assert layer is not None
        k, v = op.inputs
        cache = self._cache.layers[layer.index]
        slot = cache.slot(self._state.n_committed + self._state.first_row)
        self._ops.kv_write(k, cache.k, slot, cache.k_type)
        self._ops.kv_write(v, cache.v, slot, cache.v_type)

    def _attention(self, op: Op) -> None:
        layer = op.instruction.layer
        assert layer is not None
        cache = self._cache.layers[layer.index]
        self._ops.attention(
            op.inputs[0],
            cache.k,
            cache.v,
            cache.slot(self._state.n_committed),
            self._state.parents,
            self._model.score_scale(layer),
            window=layer.window,
            k_type=cache.k_type,
            v_type=cache.v_type,
            first_position=cache.first_position,
            out=op.output,
        )

    def _silu_mul(self, op: Op) -> None:
        self._ops.silu_mul(op.inputs[0], op.inputs[1], out=op.output)

    def _gelu_mul(self, op: Op) -> None:
        self._ops.gelu_mul(op.inputs[0], op.inputs[1], out=op.output)

    def _add(self, op: Op) -> None:
        self._ops.add(op.inputs[0], op.inputs[1], out=op.output)

    def _argmax(self, op: Op) -> None:
        assert op.output is not None
        if self._state.use_residual:
            op.output[:, 0] = self._ops.argmax(op.inputs[0])
