"""What an engine reserves, component by component; and the same numbers from a dry run that reserves nothing.

Both count the tensors of a checkpoint's layout and the arrays that `make_parts` makes, so they cannot drift apart; the
dry run makes arrays that have sizes only. The product's scratch grows to what the widest pass needs: a dry run says
how far, a loaded engine how far it has grown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twofold.engine.arrays import SIZES_ONLY, Array
from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.checkpoint.layout import EMBEDDING, expected_tensors
from twofold.engine.checkpoint.mapped import DTYPES
from twofold.engine.parts import Parts, make_parts
from twofold.engine.residency import resident_bytes
from twofold.kernels.naive.packing import tiles
from twofold.planner.plan import Plan
from twofold.profiles.model_spec import LinearGroup, ModelSpec

if TYPE_CHECKING:
    from twofold.engine.engine import Engine

WEIGHTS = ("base", "head_base", "rotation", "norms", "residual", "embedding")
"""Components that are mapped from files."""
GROWING = ("product_scratch",)
"""Components that take their size in the first passes, at most what a dry run says."""
BOUND_BYTES = 0
"""How far an engine may be from its dry run: not at all."""

Bytes = dict[str, int]


def _component(tensor: str, head: str) -> str:
    """The component that a checkpoint's tensor belongs to."""
    if tensor == EMBEDDING:
        return "embedding"
    if ".base_" in tensor:
        return "head_base" if tensor.startswith(f"{head}.base_") else "base"
    if ".residual_" in tensor:
        return "residual"
    return "norms" if tensor.endswith("norm.weight") else "rotation"


def weight_bytes(tensors: Mapping[str, int], head: str) -> Bytes:
    """Tensors by name and bytes, summed up by component; `rotation` holds signs, mixers and biases."""
    found = dict.fromkeys(WEIGHTS, 0)
    for name, n_bytes in tensors.items():
        found[_component(name, head)] += n_bytes
    return found


def _arrays(parts: Parts) -> dict[str, list[Array]]:
    return {
        "kv_cache": [array for layer in parts.cache.layers for array in (layer.k, layer.v)],
        "activations": list(parts.body.buffers),
        "logits": list(parts.head.buffers),
        "rope_tables": parts.state.angle_arrays,
        "pass_state": [*parts.state.row_arrays, parts.text],
    }


def _part_bytes(parts: Parts) -> Bytes:
    return {name: sum(array.nbytes for array in arrays) for name, arrays in _arrays(parts).items()}


def product_scratch_bytes(spec: ModelSpec, config: CheckpointConfig, rows: int, head_rows: int) -> int:
    """What lies between rotating, multiplying and rotating back (`LinearScratch` of `kernels/cpu`): int16 and int8
    values, int32 sums and fp32 units of the widest rows, twice where base and residual read other planes; and the
    products of the most padded outputs, unless they are written directly.
    """
    values = sums = padded = 0
    for group in spec.groups:
        n = head_rows if group is spec.head else rows
        n_groups = -(-group.in_features // config.group_size)
        sums = max(sums, n_groups * n)
        values = max(values, n_groups * n * config.group_size)
        if not _writes_directly(group, is_head=group is spec.head):
            padded = max(padded, n * 16 * sum(tiles(member.out_features) for member in group.members))
    sets = 1 if config.base_planes == config.residual_planes else 2
    return sets * (4 * values + 8 * sums) + 4 * padded


def _writes_directly(group: LinearGroup, *, is_head: bool) -> bool:
    has_bias = any(member.bias for member in group.members)
    return is_head and not has_bias and group.out_features % 16 == 0


def dry_run(spec: ModelSpec, config: CheckpointConfig, plan: Plan) -> Bytes:
    """What `Engine.load` would reserve for a checkpoint of this model and configuration, without reserving it.

    Raises:
        UnsupportedModel: an architecture without a graph, or a cache that this version cannot keep.
    """
    tensors = {
        name: math.prod(layout.shape) * np.dtype(DTYPES[layout.dtype]).itemsize
        for name, layout in expected_tensors(spec, config).items()
    }
    parts = make_parts(spec, plan, SIZES_ONLY)
    scratch = product_scratch_bytes(spec, config.under(plan.activations), parts.body.max_rows, parts.head.max_rows)
    return weight_bytes(tensors, spec.head.name) | _part_bytes(parts) | {"product_scratch": scratch}


def allocated(engine: Engine) -> Bytes:
    """What a loaded engine reserves now: the tensors in its files, its arrays, scratch as it has grown."""
    weights = weight_bytes(engine.checkpoint.tensor_bytes(), engine.spec.head.name)
    return weights | _part_bytes(engine.parts) | {"product_scratch": engine.player.nbytes}


@dataclass(frozen=True, slots=True)
class Difference:
    """A component that an engine reserves otherwise than its dry run says."""

    component: str
    allocated: int
    expected: int


def differences(engine: Engine) -> tuple[Difference, ...]:
    """Where a loaded engine is not what its dry run says; empty where all is well."""
    expected, real = dry_run(engine.spec, engine.config, engine.plan), allocated(engine)
    found = []
    for name in sorted(expected.keys() | real.keys()):
        over = real.get(name, 0) - expected.get(name, 0)
        if over > BOUND_BYTES or (over < -BOUND_BYTES and name not in GROWING):
            found.append(Difference(name, real.get(name, 0), expected.get(name, 0)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes that are in memory now: of the mapped weights, of the engine's arrays (touched so far), of its scratch."""

    weights: int
    arrays: int
    scratch: int

    @property
    def total(self) -> int:
        return self.weights + self.arrays + self.scratch


def resident(engine: Engine) -> Resident | None:
    """What of the engine is in memory now; None where the system does not tell."""
    arrays = [array for group in _arrays(engine.parts).values() for array in group]
    mapped = resident_bytes(engine.checkpoint.map_ranges())
    touched = resident_bytes([(int(array.ctypes.data), array.nbytes) for array in arrays])
    return None if mapped is None or touched is None else Resident(mapped, touched, engine.player.nbytes)
