"""A layer's wiring, recorded once and cut at its split Linears, so that each is quantised before the next sees data.

Running the graph eagerly would either hold every text's activations at once or repeat the layer for each Linear.
Recorded as a list of steps it runs stage by stage, a chunk of texts at a time, keeping only the values that a later
stage still reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from twofold.engine.graph.ops import Ops
from twofold.profiles.model_spec import LayerSpec, LinearGroup


@dataclass(frozen=True, slots=True)
class Value:
    """A placeholder for a tensor: its number in order of creation."""

    id: int


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an op: `run(ops, *tensors)` gives the outputs' tensors. `group` is set for split Linears."""

    run: Callable[..., tuple[Tensor, ...]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    group: LinearGroup | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps up to the input of `group` (None after the last Linear): reads `needs`, leaves `keeps` for later stages.

    The first step of every stage but the first is the product of the Linear that ended the stage before. `group_input`
    is the value that `group` multiplies; for the last stage it is the graph's result.
    """

    steps: tuple[Step, ...]
    needs: tuple[int, ...]
    keeps: tuple[int, ...]
    group: LinearGroup | None
    group_input: int


class _Recorder:
    """`Ops[Value]` that notes every call."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._n = 0

    def _new(self, count: int) -> tuple[Value, ...]:
        first, self._n = self._n, self._n + count
        return tuple(Value(first + i) for i in range(count))

    def source(self) -> Value:
        return self._new(1)[0]

    def _one(self, run: Callable[..., Tensor], *inputs: Value) -> Value:
        (out,) = self._new(1)
        self.steps.append(Step(lambda *a: (run(*a),), tuple(x.id for x in inputs), (out.id,)))
        return out

    def embed(self) -> Value:
        raise NotImplementedError("a layer has no embedding")

    def rms_norm(self, x: Value, weight: str) -> Value:
        return self._one(lambda ops, t: ops.rms_norm(t, weight), x)

    def head_norm(self, x: Value, weight: str) -> Value:
        return self._one(lambda ops, t: ops.head_norm(t, weight), x)

    def linears(self, x: Value, group: LinearGroup) -> tuple[Value, ...]:
        outputs = self._new(len(group.members))
        self.steps.append(Step(lambda ops, t: ops.linears(t, group), (x.id,), tuple(out.id for out in outputs), group))
        return outputs

    def heads(self, x: Value, n_heads: int) -> Value:
        return self._one(lambda ops, t: ops.heads(t, n_heads), x)

    def rope(self, x: Value, layer: LayerSpec) -> Value:
        return self._one(lambda ops, t: ops.rope(t, layer), x)

    def attention(self, q: Value, k: Value, v: Value, layer: LayerSpec) -> Value:
        return self._one(lambda ops, *t: ops.attention(*t, layer), q, k, v)

    def silu_mul(self, gate: Value, up: Value) -> Value:
        return self._one(lambda ops, *t: ops.silu_mul(*t), gate, up)

    def gelu_mul(self, gate: Value, up: Value) -> Value:
        return self._one(lambda ops, *t: ops.gelu_mul(*t), gate, up)

    def add(self, x: Value, y: Value) -> Value:
        return self._one(lambda ops, *t: ops.add(*t), x, y)


def _needed(steps: list[Step], after: tuple[int, ...]) -> tuple[int, ...]:
    """What `steps` and whoever reads `after` need from before."""
    needed = set(after)
    for step in reversed(steps):
        needed -= set(step.outputs)
        needed |= set(step.inputs)
    return tuple(sorted(needed))


def record(wiring: Callable[[Ops[Value], Value], Value]) -> tuple[Stage, ...]:
    """The stages of `wiring(ops, x)`; value 0 is x."""
    recorder = _Recorder()
    result = wiring(recorder, recorder.source())
    cuts = [i for i, step in enumerate(recorder.steps) if step.group is not None]
    bounds = [0, *cuts, len(recorder.steps)]
    stages: list[Stage] = []
    keeps: tuple[int, ...] = (result.id,)
    for index in range(len(bounds) - 2, -1, -1):
        steps = recorder.steps[bounds[index] : bounds[index + 1]]
        ending = recorder.steps[bounds[index + 1]] if index < len(cuts) else None
        needs = _needed(steps, keeps)
        group, group_input = (ending.group, ending.inputs[0]) if ending is not None else (None, result.id)
        stages.append(Stage(tuple(steps), needs, keeps, group, group_input))
        keeps = needs
    return tuple(reversed(stages))


def run_steps(stage: Stage, ops: Ops[Tensor], values: dict[int, Tensor]) -> None:
    """Compute a stage's steps on tensors in `values`, which then holds what the stage keeps and nothing else."""
    last_use = {value: i for i, step in enumerate(stage.steps) for value in step.inputs}
    for i, step in enumerate(stage.steps):
        outputs = step.run(ops, *(values[value] for value in step.inputs))
        values.update(zip(step.outputs, outputs, strict=True))
        for value in (*step.inputs, *step.outputs):
            if last_use.get(value, -1) <= i and value not in stage.keeps:
                values.pop(value, None)
