"""fp32 values a row that the CPU engine keeps for a pass through the decoder, from the model's wiring alone.

The engine gives every intermediate result a buffer from its first use to its last, and shares a buffer between results
of one size. Then as many of a size are needed as are ever in use at once. Which results there are follows from the two
wirings that the engine has: pre-norm with a SiLU gate, and Gemma 3's, normed on both sides with a GELU gate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from twofold.planner.per_spec import per_spec
from twofold.profiles.model_spec import LayerSpec, ModelSpec

PRE_NORM = ("llama", "mistral", "qwen2", "qwen3")
BOTH_SIDES = ("gemma3",)


@dataclass(slots=True)
class _Wiring:
    """Results by number: how many values, made by which step, last read by which."""

    sizes: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    steps: int = 0

    def read(self, *results: int) -> None:
        """A step without a result of its own."""
        for result in results:
            self.last[result] = self.steps
        self.steps += 1

    def make(self, size: int, *results: int) -> int:
        """A step that reads `results` and makes a new one."""
        self.sizes.append(size)
        self.made.append(self.steps)
        self.last.append(self.steps)
        self.read(*results)
        return len(self.sizes) - 1

    def values(self) -> int:
        """Σ over sizes of size × the most that are in use in one step."""
        begins: list[list[int]] = [[] for _ in range(self.steps)]
        ends: list[list[int]] = [[] for _ in range(self.steps)]
        for size, made, last in zip(self.sizes, self.made, self.last, strict=True):
            begins[made].append(size)
            ends[last].append(size)
        live: Counter[int] = Counter()
        most: Counter[int] = Counter()
        for begun, ended in zip(begins, ends, strict=True):
            live.update(begun)
            most |= live
            live.subtract(ended)
        return sum(size * n for size, n in most.items())


def _normed(wiring: _Wiring, spec: ModelSpec, value: int) -> int:
    return wiring.make(spec.hidden_size, value) if spec.architecture in BOTH_SIDES else value


def _attention(wiring: _Wiring, spec: ModelSpec, layer: LayerSpec, x: int) -> int:
    qkv, out = layer.groups[0], layer.groups[1]
    stacked = wiring.make(qkv.out_features, wiring.make(spec.hidden_size, x))
    q_size, k_size = layer.n_heads * layer.k_head_dim, layer.n_kv_heads * layer.k_head_dim
    q = k = stacked
    if spec.qk_norm or spec.architecture in BOTH_SIDES:
        q, k = wiring.make(q_size, stacked), wiring.make(k_size, stacked)
    if layer.rope is not None:
        q, k = wiring.make(q_size, q), wiring.make(k_size, k)
    wiring.read(k, stacked)  # into the cache
    attended = wiring.make(layer.n_heads * layer.v_head_dim, q)
    return wiring.make(out.out_features, attended)


def _layer(wiring: _Wiring, spec: ModelSpec, layer: LayerSpec, x: int) -> int:
    hidden = spec.hidden_size
    x = wiring.make(hidden, x, _normed(wiring, spec, _attention(wiring, spec, layer, x)))
    gate_up, down = layer.groups[2], layer.groups[3]
    stacked = wiring.make(gate_up.out_features, wiring.make(hidden, x))
    inner = wiring.make(down.in_features, stacked)
    mlp = _normed(wiring, spec, wiring.make(down.out_features, inner))
    return wiring.make(hidden, x, mlp)


@per_spec
def body_values(spec: ModelSpec) -> int | None:
    """fp32 values a row from tokens to the last layer's output; None for a model that the engine has no wiring for."""
    known = spec.architecture in (*PRE_NORM, *BOTH_SIDES) and spec.runnable_reason is None
    if not known or any(len(layer.groups) != 4 for layer in spec.layers):
        return None
    wiring = _Wiring()
    x = wiring.make(spec.hidden_size)
    for layer in spec.layers:
        x = _layer(wiring, spec, layer, x)
    wiring.read(x)
    return wiring.values()


def head_values(spec: ModelSpec) -> int:
    """The same from the last layer's output to logits: what came in, normed, the logits, the id of the largest."""
    return 2 * spec.hidden_size + spec.vocab_size + 1
