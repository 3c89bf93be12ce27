"""Replaying by one native call: a tape's instructions are appended once to a `_cpu.Tape`, which loops over them in C++.

The interpreter lock is released while it runs, so an interruption takes effect between passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from twofold.engine.kv_cache import KvCache
from twofold.engine.replay import PassState
from twofold.engine.tape import F32, Op, Tape
from twofold.kernels.cpu import native
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.model_spec import LayerSpec, ModelSpec

if TYPE_CHECKING:
    from twofold.kernels.cpu._cpu import Tape as NativeTape


class NativePlayer:
    """What `Player` does, by tapes of the compiled module. Not for two threads at a time: a second one is refused."""

    def __init__(
        self,
        model: ModelSpec,
        groups: Mapping[str, SplitWeights],
        dense: Mapping[str, NDArray[Any]],
        cache: KvCache,
        state: PassState,
    ) -> None:
        self._model, self._groups, self._dense = model, groups, dense
        self._cache, self._state = cache, state
        self._workspace = native().Workspace()
        ops = import_module("twofold.kernels.cpu.ops")
        self._bound, self._kv_types = ops.bound_linear, ops.KV_TYPE
        self._programs: WeakKeyDictionary[Tape, NativeTape] = WeakKeyDictionary()
        self._append: dict[str, Callable[[NativeTape, Op], None]] = {
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
        """Scratch, which grows to what the widest pass so far needed."""
        return int(self._workspace.nbytes)

    def play(self, tape: Tape) -> None:
        """Compute the pass that the state describes; its rows' K and V land behind the committed positions."""
        program = self._programs.get(tape)
        if program is None:
            program = self._programs[tape] = self._compile(tape)
        state = self._state
        if tape.source is None:
            program.run(state.tokens, state.parents, state.n_committed, state.use_residual)
        else:
            program.run(None, None, 0, state.use_residual)

    def profile(self, on: bool) -> None:
        """Count the time of each operation from zero, or stop counting."""
        self._workspace.profile(on)

    def spent(self) -> dict[str, tuple[float, int]]:
        """Wall seconds and calls by operation since `profile(True)`."""
        found: dict[str, tuple[float, int]] = self._workspace.spent()
        return found

    def _compile(self, tape: Tape) -> NativeTape:
        program: NativeTape = native().Tape(self._workspace, tape.width, tape.source is None)
        for op in tape.ops:
            self._append[op.instruction.kind](program, op)
        return program

    def _embed(self, program: NativeTape, op: Op) -> None:
        table = self._dense[str(op.instruction.weight)]
        scale = self._model.embedding_scale
        program.embed(table.view(np.uint16), 1.0 if scale is None else scale, _rows(op.output))

    def _rms_norm(self, program: NativeTape, op: Op) -> None:
        weight = self._dense[str(op.instruction.weight)]
        program.rms_norm(_rows(op.inputs[0]), weight, self._model.rms_eps, _rows(op.output))

    def _split_linear(self, program: NativeTape, op: Op) -> None:
        name = str(op.instruction.weight)
        program.split_linear(
            self._bound(self._groups[name]), _without_layer(name), _rows(op.inputs[0]), _rows(op.output)
        )

    def _rope(self, program: NativeTape, op: Op) -> None:
        layer = _layer(op)
        assert layer.rope is not None
        table = self._state.table(layer.rope)
        x, heads = op.inputs[0], op.inputs[0].shape[1]
        program.rope(_rows(x), heads, table.cos, table.sin, table.filled, _rows(op.output))

    def _kv_write(self, program: NativeTape, op: Op) -> None:
        state = self._cache.layers[_layer(op).index]
        for x, cache, kind in zip(op.inputs, (state.k, state.v), (state.k_type, state.v_type), strict=True):
            program.kv_write(_rows(x), cache.view(np.uint8), self._kv_types[kind], state.origin)

    def _attention(self, program: NativeTape, op: Op) -> None:
        layer = _layer(op)
        cache = self._cache.layers[layer.index]
        program.attention(
            _rows(op.inputs[0]),
            layer.n_heads,
            cache.k.view(np.uint8),
            cache.v.view(np.uint8),
            self._kv_types[cache.k_type],
            self._kv_types[cache.v_type],
            cache.origin,
            self._model.score_scale(layer),
            layer.window or 0,
            _rows(op.output),
        )

    def _gelu_mul(self, program: NativeTape, op: Op) -> None:
        program.gelu_mul(_rows(op.inputs[0]), _rows(op.inputs[1]), _rows(op.output))

    def _silu_mul(self, program: NativeTape, op: Op) -> None:
        program.silu_mul(_rows(op.inputs[0]), _rows(op.inputs[1]), _rows(op.output))

    def _add(self, program: NativeTape, op: Op) -> None:
        program.add(_rows(op.inputs[0]), _rows(op.inputs[1]), _rows(op.output))

    def _argmax(self, program: NativeTape, op: Op) -> None:
        program.argmax(_rows(op.inputs[0]), _rows(op.output))


def _rows(array: F32 | None) -> F32:
    """[rows, values], a view."""
    assert array is not None
    return array.reshape(array.shape[0], -1)


def _layer(op: Op) -> LayerSpec:
    assert op.instruction.layer is not None
    return op.instruction.layer


def _without_layer(name: str) -> str:
    """`self_attn.qkv` of `model.layers.3.self_attn.qkv`."""
    return name.split(".", 3)[3] if name.startswith("model.layers.") else name
