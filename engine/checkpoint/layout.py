"""Which tensors a checkpoint of a model holds, with dtype, shape and file (`docs/checkpoint.md`)."""

from __future__ import annotations

from dataclasses import dataclass

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.recorder import record_body, record_head
from twofold.kernels.naive.packing import BASE_BYTES, blocks, tiles
from twofold.kernels.naive.rotation import block_width, needs_mix
from twofold.profiles.model_spec import LinearGroup, ModelSpec

DENSE_FILE = "dense.safetensors"
INDEX_FILE = "model.safetensors.index.json"
EMBEDDING = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor as the format demands it. `dtype` is the safetensors name."""

    dtype: str
    shape: tuple[int, ...]
    file: str


def shard_name(part: str, index: int, total: int) -> str:
    """`base` or `residual` shard of decoder layer `index` (from 0; the head is the last, `total` − 1)."""
    return f"{part}-{index + 1:05d}-of-{total:05d}.safetensors"


def mix_name(dimension: int) -> str:
    return f"rotation.mix_{dimension}"


def _shard_tensors(group: LinearGroup, config: CheckpointConfig, index: int, total: int) -> dict[str, TensorLayout]:
    n_tiles = sum(tiles(member.out_features) for member in group.members)
    n_blocks, n_groups = blocks(group.in_features), -(-group.in_features // config.group_size)
    base, residual = shard_name("base", index, total), shard_name("residual", index, total)
    scales = (n_tiles, n_groups, 16)
    codes = (n_tiles, n_blocks, 32 * config.bits_of(group.name))
    return {
        f"{group.name}.base_codes": TensorLayout("U8", (n_tiles, n_blocks, BASE_BYTES), base),
        f"{group.name}.base_scales": TensorLayout("F16", scales, base),
        f"{group.name}.residual_codes": TensorLayout("U8", codes, residual),
        f"{group.name}.residual_scales": TensorLayout("F16", scales, residual),
    }


def norm_shapes(model: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Every norm weight that the graph asks for, with its shape.

    Raises:
        UnsupportedModel: when the engine has no graph for the model.
    """
    found: dict[str, tuple[int, ...]] = {}
    for recording in (record_body(model), record_head(model)):
        for instruction in recording.instructions:
            if instruction.kind == "rms_norm":
                found[str(instruction.weight)] = instruction.inputs[0].row_shape[-1:]
    return found


def _dense_tensors(model: ModelSpec) -> dict[str, TensorLayout]:
    found = {EMBEDDING: TensorLayout("F16", (model.vocab_size, model.hidden_size), DENSE_FILE)}
    for name, shape in norm_shapes(model).items():
        found[name] = TensorLayout("F32", shape, DENSE_FILE)
    for group in model.groups:
        is_head = group.name == model.head.name
        found[f"{group.name}.input_signs"] = TensorLayout("I8", (group.in_features,), DENSE_FILE)
        if not is_head:
            found[f"{group.name}.output_signs"] = TensorLayout("I8", (group.out_features,), DENSE_FILE)
        if any(member.bias for member in group.members):
            found[f"{group.name}.bias"] = TensorLayout("F32", (group.out_features,), DENSE_FILE)
        rotated = {group.in_features} | (set() if is_head else {member.out_features for member in group.members})
        for dimension in filter(needs_mix, sorted(rotated)):
            m = dimension // block_width(dimension)
            found[mix_name(dimension)] = TensorLayout("F32", (m, m), DENSE_FILE)
    return found


def expected_tensors(model: ModelSpec, config: CheckpointConfig) -> dict[str, TensorLayout]:
    """Every tensor of the checkpoint, by name."""
    total = model.n_layers + 1
    found = _dense_tensors(model)
    for layer in model.layers:
        for group in layer.groups:
            found |= _shard_tensors(group, config, layer.index, total)
    return found | _shard_tensors(model.head, config, model.n_layers, total)
