"""A pass cut into its parts: the engine's own tape, in its own order and buffers, one native call for each part.

Kernels timed alone find their weights in the caches, or other things there than in a pass. Here every weight is touched
once a pass, between the same neighbours. Cutting costs a little for each part, which the whole pass beside it tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.engine.backend import Backend
from twofold.engine.checkpoint import Checkpoint
from twofold.engine.kv_cache import KvCache
from twofold.engine.native_replay import NativePlayer
from twofold.engine.player import player_of
from twofold.engine.recorder import record_body, record_head
from twofold.engine.replay import PassState
from twofold.engine.tape import Op, Tape, TapeMaker
from twofold.kernels.naive.kv_blocks import KvType, encode
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.planner.timed import names
from twofold.profiles.errors import EngineUnavailable
from twofold.profiles.model_spec import LayerSpec, ModelSpec

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Part:
    """What is timed together: an operation of the vocabulary, its shape without a context, its layer's window."""

    op: str
    shape: str
    bits: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One pass: seconds and calls by part, and seconds of the same pass in one piece."""

    parts: Mapping[Part, tuple[float, int]]
    whole: float

    @property
    def n_pieces(self) -> int:
        return sum(n for _, n in self.parts.values())

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.parts.values())


class PassParts:
    """Passes over the first layers of a model behind a full cache, timed part by part.

    Args:
        n_layers: how many; `groups` stand for the checkpoint's weights (None: its own).
        context: the longest that will be asked for. kv_type: of K and V.
        clock: seconds; the processor time of the thread that takes part in everything and spins while it waits.

    Raises:
        EngineUnavailable: numpy's operations are not cut.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        backend: Backend,
        n_layers: int,
        context: int,
        widest: int,
        kv_type: KvType = "f16",
        groups: Mapping[str, SplitWeights] | None = None,
        clock: Clock = time.thread_time,
    ) -> None:
        if backend.name != "cpu":
            raise EngineUnavailable("only the native kernels can be timed in parts", hint="twofold doctor")
        self.spec = replace(checkpoint.spec, layers=checkpoint.spec.layers[:n_layers])
        self.kv_type, self.widest, self._clock = kv_type, widest, clock
        self._groups = checkpoint.weights() if groups is None else groups
        cache = KvCache(self.spec, context + widest, kv_type, kv_type)
        _fill(cache, self.spec, kv_type)
        self._state = PassState(self.spec, widest, cache.slots)
        self._body = TapeMaker(record_body(self.spec), widest)
        self._head = TapeMaker(record_head(self.spec), widest)
        player = player_of(backend, self.spec, self._groups, checkpoint.dense_weights(), cache, self._state)
        assert isinstance(player, NativePlayer)
        self._player = player
        self._pieces: dict[tuple[int, bool], list[tuple[Part, Tape]]] = {}
        self._tapes: dict[int, Tape] = {}

    def sample(self, rows: int, context: int, residual: bool) -> Sample:
        """The pass in parts, and the same pass whole right after it; the head's weights are read between passes."""
        self._describe(rows, context, residual)
        parts = self.parts(rows, context, residual)
        self.head(1, residual)
        self._describe(rows, context, residual)
        tape = self._tape(rows)
        before = self._clock()
        self._player.play(tape)
        return Sample(parts, self._clock() - before)

    def parts(self, rows: int, context: int, residual: bool) -> dict[Part, tuple[float, int]]:
        """The pass in parts alone."""
        pieces = self._cut(rows, residual)
        self._describe(rows, context, residual)
        clock, play = self._clock, self._player.play
        seconds = [0.0] * len(pieces)
        before = clock()
        for i, (_, tape) in enumerate(pieces):
            play(tape)
            now = clock()
            seconds[i], before = now - before, now
        found: dict[Part, tuple[float, int]] = {}
        for (part, _), one in zip(pieces, seconds, strict=True):
            total, n = found.get(part, (0.0, 0))
            found[part] = (total + one, n + 1)
        return found

    def head(self, rows: int, residual: bool) -> float:
        """Seconds of the head's tape."""
        self._state.use_residual = residual
        tape = self._head.tape(rows)
        assert tape.source is not None
        np.copyto(tape.source, 1.0)
        before = self._clock()
        self._player.play(tape)
        return self._clock() - before

    def _describe(self, rows: int, context: int, residual: bool) -> None:
        vocabulary = self.spec.vocab_size
        tokens = [1 + 7 * i % (vocabulary - 1) for i in range(rows)]
        self._state.set(tokens, range(-1, rows - 1), context, residual)

    def _tape(self, rows: int) -> Tape:
        if rows not in self._tapes:
            self._tapes[rows] = self._body.tape(rows)
        return self._tapes[rows]

    def _cut(self, rows: int, residual: bool) -> list[tuple[Part, Tape]]:
        """A Linear, attention, or all row operations between two of them; each is a tape of its own."""
        if (rows, residual) in self._pieces:
            return self._pieces[rows, residual]
        pieces: list[tuple[Part, list[Op]]] = []
        for op in self._tape(rows).ops:
            part = self._part(op, residual)
            if pieces and part == pieces[-1][0] and part.op == names.LAYER_ROWS:
                pieces[-1][1].append(op)
            else:
                pieces.append((part, [op]))
        result = self._tape(rows).result
        made = [(part, Tape(rows, tuple(ops), None, result)) for part, ops in pieces]
        self._pieces[rows, residual] = made
        return made

    def _part(self, op: Op, residual: bool) -> Part:
        kind, layer = op.instruction.kind, op.instruction.layer
        if kind == "split_linear":
            weights = self._groups[str(op.instruction.weight)]
            shape = f"{weights.out_features}x{weights.in_features}"
            bits = weights.residual_bits if residual else names.BASE_BITS
            return Part(names.LINEAR if residual else names.LINEAR_BASE, shape, bits)
        if kind == "attention":
            assert layer is not None
            bits = names.KV_BITS[self.kv_type]
            return Part(names.ATTENTION, names.attention_heads(layer), bits, layer.window)
        return Part(names.LAYER_ROWS, names.row_values(self.spec), names.KV_BITS[self.kv_type])


def _fill(cache: KvCache, spec: ModelSpec, kind: KvType) -> None:
    """Plausible numbers everywhere; untouched memory would be one page of zeros."""
    rng = np.random.default_rng(0)
    made: dict[tuple[int, int, int, int], list[np.ndarray]] = {}
    for layer, state in zip(spec.layers, cache.layers, strict=True):
        key = (state.slots, layer.n_kv_heads, layer.k_head_dim, layer.v_head_dim)
        if key not in made:
            made[key] = [
                encode(rng.standard_normal((state.slots, layer.n_kv_heads, dim)).astype(np.float32), kind)
                for dim in key[2:]
            ]
        for target, source in zip((state.k, state.v), made[key], strict=True):
            target[:] = np.roll(source, layer.index, 0)


def layers_to_time(spec: ModelSpec, groups: Mapping[str, SplitWeights], least_bytes: int) -> int:
    """How many of the first layers hold `least_bytes` of base codes and one of every kind: others cost the same."""
    kinds = {_kind(layer) for layer in spec.layers}
    total = 0
    for n, layer in enumerate(spec.layers, 1):
        kinds.discard(_kind(layer))
        total += sum(groups[group.name].base_codes.nbytes for group in layer.groups)
        if total >= least_bytes and not kinds:
            return n
    return spec.n_layers


def _kind(layer: LayerSpec) -> tuple[object, ...]:
    shapes: Sequence[str] = [names.linear_shape(group) for group in layer.groups]
    return layer.window, names.attention_heads(layer), tuple(shapes)
