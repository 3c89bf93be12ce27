"""`TimedPasses`: seconds of a plan's passes on the CPU engine, as sums of timed kernels.

verify(rows) = every layer's Linears + attention + row operations, head, what a step takes beside them
draft(rows)  = the same from the base alone, with the draft's shortlist
a step       = a draft pass for each level of the tree, as wide as the level has rows with children, and one verify
a prompt     = passes of a chunk without the head, and the step that gives the first token
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from twofold.planner.acceptance import TreeShape
from twofold.planner.draft_choice import PassSeconds
from twofold.planner.knobs import Knobs
from twofold.planner.per_spec import per_spec
from twofold.planner.timed import names
from twofold.planner.timed.curve import NOTHING, Estimate
from twofold.planner.timed.kernels import Kernels
from twofold.profiles.model_spec import LayerSpec, LinearGroup, ModelSpec

UNEVEN = 0.03
"""Relative uncertainty of a sum: whole passes and their parts agreed within 2 to 3 % where both were timed."""
VERIFY_ROWS = (1, 2, 3, 4, 5, 6, 7, 9, 13, 17, 25, 33)
DRAFT_ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Widths for the choice of a draft."""


@dataclass(frozen=True, slots=True)
class _Census:
    """A model's layers by what they cost: fused Linears and caches of each shape, and how many there are."""

    groups: tuple[tuple[LinearGroup, int], ...]
    attention: tuple[tuple[LayerSpec, int], ...]
    values: str
    n_layers: int


@per_spec
def _census(spec: ModelSpec) -> _Census | None:
    """None where a layer is of a kind that was never timed."""
    if not spec.layers or any(layer.kind not in ("growing", "sliding") for layer in spec.layers):
        return None
    groups = [group for layer in spec.layers for group in layer.groups]
    if not groups or any(member.copies > 1 for group in groups for member in group.members):
        return None
    shapes = {names.linear_shape(group): group for group in groups}
    counts = Counter(names.linear_shape(group) for group in groups)
    caches = {(names.attention_heads(layer), layer.window): layer for layer in spec.layers}
    kinds = Counter((names.attention_heads(layer), layer.window) for layer in spec.layers)
    return _Census(
        tuple((shapes[shape], n) for shape, n in counts.items()),
        tuple((caches[kind], n) for kind, n in kinds.items()),
        names.row_values(spec),
        spec.n_layers,
    )


@dataclass(frozen=True, slots=True)
class TimedPasses:
    """A model under knobs on a machine whose kernels were timed; made by `timed_passes`."""

    spec: ModelSpec
    knobs: Knobs
    kernels: Kernels
    census: _Census

    def _layers(self, op: str, bits: int, context: int, rows: int) -> Estimate:
        kernels, knobs = self.kernels, self.knobs
        total = NOTHING
        for group, n in self.census.groups:
            total += kernels.linear(op, group, bits, rows).times(n)
        for layer, n in self.census.attention:
            sides = [kernels.attention(layer, kind, context, rows) for kind in (knobs.k_type, knobs.v_type)]
            total += (sides[0] if knobs.k_type == knobs.v_type else (sides[0] + sides[1]).times(0.5)).times(n)
        bits_kv = names.KV_BITS[knobs.k_type]
        return total + kernels.by_values(names.LAYER_ROWS, self.census.values, bits_kv, rows).times(
            self.census.n_layers
        )

    def chunk(self, rows: int, context: int) -> Estimate:
        """A pass of a prompt: the layers, and no head."""
        return self._layers(names.LINEAR, self.knobs.residual_bits, context, rows).widened(UNEVEN)

    def verify(self, rows: int, context: int) -> Estimate:
        """A verify pass behind `context` committed positions, its step's choices and commit included."""
        bits, kernels = self.knobs.residual_bits, self.kernels
        head = kernels.linear(names.HEAD, self.spec.head, self._head_bits, rows)
        step = kernels.by_values(names.STEP, names.FIXED, names.FLOAT_BITS, 1)
        choice = kernels.by_values(names.CHOOSE, str(self.spec.vocab_size), names.FLOAT_BITS, 1).times(rows)
        return (self._layers(names.LINEAR, bits, context, rows) + head + choice + step).widened(UNEVEN)

    def draft(self, rows: int, context: int) -> Estimate:
        """A draft pass over a level of `rows`."""
        kernels = self.kernels
        head = kernels.linear(names.HEAD_BASE, self.spec.head, names.BASE_BITS, rows)
        guess = kernels.by_values(names.GUESS, str(self.spec.vocab_size), names.BASE_BITS, rows)
        layers = self._layers(names.LINEAR_BASE, names.BASE_BITS, context, rows)
        return (layers + head + guess).widened(UNEVEN)

    @property
    def _head_bits(self) -> int:
        """The head's residual is kept at 8 bits; where it was timed at one width, that is its width."""
        shape = names.linear_shape(self.spec.head)
        widths = [width for own, width in self.kernels.tables[names.HEAD] if own == shape]
        return widths[0] if len(widths) == 1 else max(self.knobs.residual_bits, 8)

    def step(self, shape: TreeShape, context: int) -> Estimate:
        """One step with this tree: its levels and its check."""
        depths = shape.depths
        levels = Counter(depths[row] for row in set(shape.parents))
        total = self.verify(shape.nodes + 1, context)
        for rows in levels.values():
            total += self.draft(rows, context)
        return total

    def prefill(self, tokens: int) -> Estimate:
        """Until the first token after a prompt of `tokens`, from an empty cache."""
        chunk, total, done = self.knobs.prefill_chunk, NOTHING, 0
        while done < tokens - 1:
            rows = min(chunk, tokens - 1 - done)
            total += self.chunk(rows, done)
            done += rows
        return total + self.verify(1, tokens - 1)

    def pass_seconds(self, context: int) -> PassSeconds:
        """What the choice of a draft asks for."""
        return PassSeconds(
            {rows: self.verify(rows, context).likely for rows in VERIFY_ROWS},
            {rows: self.draft(rows, context).likely for rows in DRAFT_ROWS},
        )


def timed_passes(spec: ModelSpec, knobs: Knobs, kernels: Kernels | None) -> TimedPasses | None:
    """None where nothing was timed, or the model has layers of a kind that was not."""
    census = _census(spec) if kernels is not None and knobs.device == "cpu" else None
    return None if census is None or kernels is None else TimedPasses(spec, knobs, kernels, census)
