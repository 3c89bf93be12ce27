"""The graph's wiring turned into instructions: `Ops` over abstract values, recorded once per model.

A value is a row shape without the number of rows; what holds it is decided when a tape of a given width is made
(`tape.py`). Parts of a stacked product (q, k and v of one) are views of it: nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal

from twofold.engine.graph.registry import graph_of
from twofold.profiles.model_spec import LayerSpec, LinearGroup, ModelSpec

Kind = Literal[
    "embed", "rms_norm", "split_linear", "rope", "kv_write", "attention", "silu_mul", "gelu_mul", "add", "argmax"
]
MOST_IDS = 1 << 24
"""What fp32 counts to without a gap."""


@dataclass(frozen=True, slots=True)
class Value:
    """fp32 [rows, *row_shape]. `storage` numbers what it lives in: views of one storage share it.

    A row of the storage has `storage_size` values, the view's are those from `start` on.
    """

    storage: int
    row_shape: tuple[int, ...]
    storage_size: int
    start: int = 0

    @property
    def size(self) -> int:
        """Values in a row of the view."""
        return prod(self.row_shape)

    def view(self, *row_shape: int, start: int = 0) -> Value:
        """A part of this value: the `row_shape` values of each row from its `start` on."""
        part = Value(self.storage, row_shape, self.storage_size, self.start + start)
        if start < 0 or start + part.size > self.size:
            raise ValueError(f"{row_shape} from {start} on is no part of {self.row_shape}")
        return part


@dataclass(frozen=True, slots=True)
class Instruction:
    """One kernel call. `weight` names a norm, a group or the embedding; an output is a whole storage."""

    kind: Kind
    inputs: tuple[Value, ...]
    output: Value | None
    weight: str | None = None
    layer: LayerSpec | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """Part of a pass, from `source` (None: the tokens) to `result`; a head's `choice` is each row's greedy one."""

    instructions: tuple[Instruction, ...]
    source: Value | None
    result: Value
    choice: Value | None = None


@dataclass
class Recorder:
    """`Ops[Value]`: each call appends an instruction."""

    model: ModelSpec
    instructions: list[Instruction] = field(default_factory=list)
    _n_storages: int = 0

    def new(self, *row_shape: int) -> Value:
        """A value in a storage of its own."""
        self._n_storages += 1
        return Value(self._n_storages - 1, row_shape, prod(row_shape))

    def _emit(
        self,
        kind: Kind,
        inputs: tuple[Value, ...],
        output: Value,
        weight: str | None = None,
        layer: LayerSpec | None = None,
    ) -> Value:
        self.instructions.append(Instruction(kind, inputs, output, weight, layer))
        return output

    def embed(self) -> Value:
        return self._emit("embed", (), self.new(self.model.hidden_size), "model.embed_tokens.weight")

    def rms_norm(self, x: Value, weight: str) -> Value:
        return self._emit("rms_norm", (x,), self.new(*x.row_shape), weight)

    def head_norm(self, x: Value, weight: str) -> Value:
        return self.rms_norm(x, weight)

    def linears(self, x: Value, group: LinearGroup) -> tuple[Value, ...]:
        stacked = self._emit("split_linear", (x,), self.new(group.out_features), group.name)
        parts, start = [], 0
        for member in group.members:
            parts.append(stacked.view(member.out_features, start=start))
            start += member.out_features
        return tuple(parts)

    def heads(self, x: Value, n_heads: int) -> Value:
        return x.view(n_heads, x.size // n_heads)

    def rope(self, x: Value, layer: LayerSpec) -> Value:
        if layer.rope is None:
            return x
        return self._emit("rope", (x,), self.new(*x.row_shape), layer=layer)

    def attention(self, q: Value, k: Value, v: Value, layer: LayerSpec) -> Value:
        self.instructions.append(Instruction("kv_write", (k, v), None, layer=layer))
        attended = self._emit("attention", (q,), self.new(layer.n_heads, layer.v_head_dim), layer=layer)
        return attended.view(layer.n_heads * layer.v_head_dim)

    def silu_mul(self, gate: Value, up: Value) -> Value:
        return self._emit("silu_mul", (gate, up), self.new(*gate.row_shape))

    def gelu_mul(self, gate: Value, up: Value) -> Value:
        return self._emit("gelu_mul", (gate, up), self.new(*gate.row_shape))

    def add(self, x: Value, y: Value) -> Value:
        return self._emit("add", (x, y), self.new(*x.row_shape))

    def argmax(self, logits: Value) -> Value:
        """Ids as fp32, which holds them exactly; not computed for a draft, whose guesses come from a shortlist."""
        if logits.size > MOST_IDS:
            raise ValueError(f"fp32 numbers at most {MOST_IDS} ids, got {logits.size}")
        return self._emit("argmax", (logits,), self.new(1))


def record_body(model: ModelSpec) -> Recording:
    """From tokens to the last layer's output [rows, hidden_size].

    Raises:
        UnsupportedModel: when the engine has no graph for the model.
    """
    ops = Recorder(model)
    x = graph_of(model).layers(ops, model)
    return Recording(tuple(ops.instructions), None, x)


def record_head(model: ModelSpec) -> Recording:
    """From the last layer's output to logits [rows, vocab_size]; apart, since a prompt's chunks need none."""
    ops = Recorder(model)
    source = ops.new(model.hidden_size)
    logits = graph_of(model).head(ops, model, source)
    choice = ops.argmax(logits)
    return Recording(tuple(ops.instructions), source, logits, choice)
