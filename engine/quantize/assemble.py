"""From what quantising computed to what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.checkpoint.layout import DENSE_FILE, EMBEDDING, expected_tensors, mix_name
from twofold.engine.quantize.group import GroupRotations, QuantizedGroup, make_rotations
from twofold.engine.quantize.options import SLICE_ROWS
from twofold.engine.quantize.rotation import make_mix
from twofold.kernels.naive.packing import TILE_ROWS, pack_base, pack_residual, pack_scales
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.errors import CorruptFile
from twofold.profiles.model_spec import LinearGroup, ModelSpec

_MAX_F16 = 65504.0

Packed = NDArray[Any]


def _members(group: LinearGroup, columns: Tensor) -> list[NDArray[Any]]:
    """[n, rows of all members] split by member, each transposed to [rows, n] on the CPU."""
    sizes = [member.out_features for member in group.members]
    return [np.ascontiguousarray(part.T.cpu().numpy()) for part in columns.split(sizes, dim=1)]


def split_weights(
    group: LinearGroup, rotations: GroupRotations, result: QuantizedGroup, config: CheckpointConfig
) -> SplitWeights:
    """The packed group. `bias` stays out: it lives in the dense file."""
    bits = config.bits_of(group.name)
    mixes = tuple(make_mix(m.out_features) for m in group.members) if rotations.output_signs is not None else ()
    return SplitWeights(
        in_features=group.in_features,
        member_rows=tuple(member.out_features for member in group.members),
        base_codes=np.concatenate([pack_base(codes) for codes in _members(group, result.base.codes)]),
        base_scales=np.concatenate([pack_scales(scales) for scales in _members(group, result.base.scales)]),
        levels=np.array(config.base_levels, np.int8),
        residual_codes=np.concatenate([pack_residual(u, bits) for u in _members(group, result.residual_codes)]),
        residual_scales=np.concatenate([pack_scales(s) for s in _members(group, result.residual_scales)]),
        residual_bits=bits,
        group_size=config.group_size,
        base_planes=config.base_planes,
        residual_planes=config.residual_planes,
        exchange_dtype=config.exchange_dtype,
        input_signs=rotations.input_signs,
        output_signs=None if rotations.output_signs is None else np.concatenate(rotations.output_signs),
        mix_in=make_mix(group.in_features),
        mix_out=mixes,
    )


def packed_rows(group: LinearGroup, first: int, result: QuantizedGroup, bits: int) -> Iterator[tuple[str, int, Packed]]:
    """A slice of the head that starts at row `first`: (tensor, first tile, packed rows)."""
    if first % TILE_ROWS:
        raise ValueError(f"a slice starts at a whole tile of {TILE_ROWS} rows, not at row {first}")

    def rows(columns: Tensor) -> Packed:
        return np.ascontiguousarray(columns.T.cpu().numpy())

    tile = first // TILE_ROWS
    yield f"{group.name}.base_codes", tile, pack_base(rows(result.base.codes))
    yield f"{group.name}.base_scales", tile, pack_scales(rows(result.base.scales))
    yield f"{group.name}.residual_codes", tile, pack_residual(rows(result.residual_codes), bits)
    yield f"{group.name}.residual_scales", tile, pack_scales(rows(result.residual_scales))


def embedding_f16(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """The embedding as stored.

    Raises:
        CorruptFile: when a value does not fit 16 bits.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= _MAX_F16:
        raise CorruptFile("the embedding does not fit 16-bit floats", found=f"{largest:g}", needed=f"≤ {_MAX_F16:g}")
    return values.astype(np.float16)


def embedding_slices(
    model: ModelSpec, rows: Callable[[str, slice], NDArray[np.float32]]
) -> Iterator[tuple[int, NDArray[np.float16]]]:
    """The embedding as stored, a slice after the other: (first row, rows)."""
    for start in range(0, model.vocab_size, SLICE_ROWS):
        yield start, embedding_f16(rows(EMBEDDING, slice(start, min(start + SLICE_ROWS, model.vocab_size))))


def dense_tensors(
    model: ModelSpec, config: CheckpointConfig, tensor: Callable[[str], NDArray[np.float32]]
) -> dict[str, NDArray[Any]]:
    """Everything of `dense.safetensors` but the embedding: norms, biases, signs, mixers."""
    dense: dict[str, NDArray[Any]] = {}
    for group in model.groups:
        rotations = make_rotations(config.seed, group, is_head=group.name == model.head.name)
        dense[f"{group.name}.input_signs"] = rotations.input_signs
        if rotations.output_signs is not None:
            dense[f"{group.name}.output_signs"] = np.concatenate(rotations.output_signs)
        if any(member.bias for member in group.members):
            dense[f"{group.name}.bias"] = np.concatenate(
                [tensor(f"{m.name}.bias") if m.bias else np.zeros(m.out_features, np.float32) for m in group.members]
            )
        for dimension in (group.in_features, *(m.out_features for m in group.members)):
            mix = make_mix(dimension)
            if mix is not None:
                dense[mix_name(dimension)] = mix
    for name, layout in expected_tensors(model, config).items():
        if layout.file == DENSE_FILE and name not in dense and name != EMBEDDING:
            dense[name] = tensor(name)
    return {name: dense[name] for name, layout in expected_tensors(model, config).items() if name in dense}
