"""Writing a checkpoint: shards one by one as layers finish, `config.json` last, each file whole or not there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.checkpoint.layout import DENSE_FILE, INDEX_FILE, TensorLayout, mix_name, shard_name
from twofold.engine.checkpoint.mapped import MappedTensors
from twofold.engine.checkpoint.shards import ShardSet, layouts_of
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.files import write_atomically

Arrays = Mapping[str, NDArray[Any]]


def _write(folder: Path, files: Mapping[str, Arrays]) -> None:
    """Whole tensors, by file."""
    layouts: dict[str, TensorLayout] = {}
    for file, tensors in files.items():
        layouts |= layouts_of(file, tensors)
    with ShardSet(folder, layouts) as shards:
        for tensors in files.values():
            for name, array in tensors.items():
                shards.write(name, array)


def packed_tensors(name: str, weights: SplitWeights) -> dict[str, NDArray[Any]]:
    """The tensors of a group that live in its layer's shards."""
    return {
        f"{name}.base_codes": weights.base_codes,
        f"{name}.base_scales": weights.base_scales,
        f"{name}.residual_codes": weights.residual_codes,
        f"{name}.residual_scales": weights.residual_scales,
    }


def write_layer(folder: Path, index: int, total: int, groups: Mapping[str, SplitWeights]) -> None:
    """The base and residual shards of decoder layer `index` (from 0; the head is `total` − 1), groups by name.

    The residual is published last: a layer is finished when both shards are there (`layer_is_written`).
    """
    parts: dict[str, dict[str, NDArray[Any]]] = {"base": {}, "residual": {}}
    for group, weights in groups.items():
        for name, array in packed_tensors(group, weights).items():
            parts["residual" if ".residual_" in name else "base"][name] = array
    _write(folder, {shard_name(part, index, total): tensors for part, tensors in parts.items()})


def layer_is_written(folder: Path, index: int, total: int) -> bool:
    """Whether `write_layer` has finished for this index."""
    return all((folder / shard_name(part, index, total)).is_file() for part in ("base", "residual"))


def dense_of_group(name: str, weights: SplitWeights) -> dict[str, NDArray[Any]]:
    """The tensors of a group that live in `dense.safetensors`: signs, bias and rotation mixers."""
    dense: dict[str, NDArray[Any]] = {f"{name}.input_signs": weights.input_signs}
    if weights.output_signs is not None:
        dense[f"{name}.output_signs"] = weights.output_signs
    if weights.bias is not None:
        dense[f"{name}.bias"] = weights.bias
    if weights.mix_in is not None:
        dense[mix_name(weights.in_features)] = weights.mix_in
    for rows, mix in zip(weights.member_rows, weights.mix_out, strict=False):
        if mix is not None:
            dense[mix_name(rows)] = mix
    return dense


def write_dense(folder: Path, tensors: Arrays) -> None:
    """Embedding (F16), norms and biases (F32), signs (I8) and rotation mixers (F32), all by their final names."""
    _write(folder, {DENSE_FILE: tensors})


def _index(folder: Path) -> dict[str, Any]:
    weight_map: dict[str, str] = {}
    total_size = 0
    for path in sorted(folder.glob("*.safetensors")):
        for name, entry in MappedTensors(path).entries.items():
            weight_map[name] = path.name
            total_size += entry.end - entry.start
    return {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(weight_map.items()))}


def finish(folder: Path, source_config: Mapping[str, Any], config: CheckpointConfig) -> None:
    """Write the index of all shards in the folder, then `config.json`: from here on the checkpoint is complete."""
    write_atomically(folder / INDEX_FILE, json.dumps(_index(folder), indent=1) + "\n")
    whole = {**source_config, "quantization_config": config.to_json()}
    write_atomically(folder / "config.json", json.dumps(whole, indent=2) + "\n")


def update_measured(folder: Path, measured: Mapping[str, Any]) -> None:
    """Replace what was measured in a finished checkpoint's `config.json`."""
    path = folder / "config.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    whole["quantization_config"]["measured"] = dict(measured)
    write_atomically(path, json.dumps(whole, indent=2) + "\n")
