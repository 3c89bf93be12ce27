"""One layer through both hidden-state streams: stage by stage, quantising every group on the way.

The original stream carries what the source model computes; the prefix stream what the model computes with every Linear
up to here replaced by its base. Within a layer too, a group's base Hessian comes from inputs that the bases before it
produced. Each stream has texts of its own, so that together they see twice as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from twofold.engine.quantize.bases import GivenBase
from twofold.engine.quantize.group import (
    GroupRotations,
    QuantizedGroup,
    quantize_base,
    quantize_group,
    quantize_slices,
)
from twofold.engine.quantize.hessian import Hessian
from twofold.engine.quantize.lloyd_max import Levels
from twofold.engine.quantize.rotation import Rotation
from twofold.engine.quantize.rowstore import RowFile, RowStore
from twofold.engine.quantize.stages import Stage, run_steps
from twofold.engine.torch_ops import TorchOps, WeightOf
from twofold.profiles.model_spec import LinearGroup, LinearSpec, ModelSpec

ORIGINAL, PREFIX = "original", "prefix"
_CHUNK_ROWS = 2048

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Texts:
    """Calibration texts as concatenated rows: the length of each."""

    lengths: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    def chunks(self, rows: int = _CHUNK_ROWS) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(first row, row after the last, lengths): whole texts, about `rows` rows at a time."""
        start = 0
        lengths: list[int] = []
        for length in self.lengths:
            if lengths and sum(lengths) + length > rows:
                yield start, start + sum(lengths), tuple(lengths)
                start, lengths = start + sum(lengths), []
            lengths.append(length)
        if lengths:
            yield start, start + sum(lengths), tuple(lengths)


@dataclass(slots=True)
class _Stream:
    """One hidden-state stream: its texts' rows at the layer's start, and the weights of the product that comes next."""

    name: str
    texts: Texts
    start: RowFile
    weights: Weights = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerJob:
    """What a layer needs. `texts` by stream; `group_weights(group)` loads member name → [out, K] fp32, and
    `row_weights(group, start, stop)` rows of the head's; `on_group(group, rotations, first row, result)` takes each
    result, of the head each slice of rows. With `on_base` only bases are rounded, which it takes; `given_base(group)`
    is a base to keep, whose residual alone is rounded.
    """

    model: ModelSpec
    stages: Sequence[Stage]
    texts: Mapping[str, Texts]
    weight: WeightOf
    group_weights: Callable[[LinearGroup], Weights]
    row_weights: Callable[[LinearGroup, int, int], Tensor]
    rotations: Callable[[LinearGroup], GroupRotations]
    levels: Levels
    bits_of: Callable[[str], int]
    on_group: Callable[[LinearGroup, GroupRotations, int, QuantizedGroup], None]
    device: torch.device
    on_base: Callable[[LinearGroup, GivenBase], None] | None = None
    given_base: Callable[[LinearGroup], GivenBase] | None = None


class LayerRun:
    """Runs a `LayerJob` over the streams; `store` holds what lives between stages."""

    def __init__(self, job: LayerJob, original: RowFile, prefix: RowFile, store: RowStore) -> None:
        self.job, self.store = job, store
        self.streams = (
            _Stream(ORIGINAL, job.texts[ORIGINAL], original),
            _Stream(PREFIX, job.texts[PREFIX], prefix),
        )
        self._live: tuple[int, ...] = (0,)

    @torch.no_grad()
    def run(self, results: tuple[RowFile, RowFile] | None) -> None:
        """All stages; the last one's result goes to `results`. Without `results` the last product is not computed."""
        for stage in self.job.stages:
            if stage.group is None and results is None:
                break
            for i, stream in enumerate(self.streams):
                self._advance(stream, stage, None if results is None else results[i])
                stream.weights = {}
            self._live = stage.keeps
            if stage.group is not None:
                quantize = self._quantize_head if results is None else self._quantize
                quantize(stage.group, stage.group_input)
        self.store.clear()

    def _advance(self, stream: _Stream, stage: Stage, result: RowFile | None) -> None:
        def override(group: LinearGroup, member: LinearSpec) -> Tensor:
            return stream.weights[member.name]

        for start, stop, lengths in stream.texts.chunks():
            values = {value: self._read(stream, value, start, stop) for value in stage.needs}
            ops = TorchOps(
                self.job.model, self.job.weight, sequence_lengths=lengths, linear=override, device=self.job.device
            )
            run_steps(stage, ops, values)
            for value, rows in values.items():
                if stage.group is None and result is not None:
                    result.write(start, rows)
                elif value != 0:
                    self.store.write(f"{stream.name}-{value}", start, rows.reshape(stop - start, -1))
        for value in set(self._live) - set(stage.keeps) - {0}:
            self.store.drop(f"{stream.name}-{value}")

    def _read(self, stream: _Stream, value: int, start: int, stop: int) -> Tensor:
        rows = stream.start.read(start, stop) if value == 0 else self.store.read(f"{stream.name}-{value}", start, stop)
        return rows.to(self.job.device)

    def _quantize(self, group: LinearGroup, group_input: int) -> None:
        job, rotations = self.job, self.job.rotations(group)
        original, prefix = self.streams
        weights = original.weights = job.group_weights(group)
        fill_base, fill_residual = self._filler(prefix, group_input), self._filler(original, group_input)
        on_base = prefix.weights.update
        if job.on_base is not None:
            base = quantize_base(group, weights, rotations, job.levels, fill_base, fill_residual, on_base)
            job.on_base(group, base)
            return
        given, bits = None if job.given_base is None else job.given_base(group), job.bits_of(group.name)
        result = quantize_group(group, weights, rotations, job.levels, bits, fill_base, fill_residual, on_base, given)
        job.on_group(group, rotations, 0, result)

    def _quantize_head(self, group: LinearGroup, group_input: int) -> None:
        rotations = self.job.rotations(group)
        original, prefix = self.streams
        slices = quantize_slices(
            group,
            lambda start, stop: self.job.row_weights(group, start, stop),
            rotations,
            self.job.levels,
            self.job.bits_of(group.name),
            self._filler(prefix, group_input),
            self._filler(original, group_input),
        )
        for first, result in slices:
            self.job.on_group(group, rotations, first, result)

    def _filler(self, stream: _Stream, value: int) -> Callable[[Hessian, Rotation], None]:
        def fill(hessian: Hessian, r_in: Rotation) -> None:
            for start in range(0, stream.texts.n_rows, _CHUNK_ROWS):
                stop = min(start + _CHUNK_ROWS, stream.texts.n_rows)
                hessian.add(r_in.apply(self._read(stream, value, start, stop)))

        return fill
