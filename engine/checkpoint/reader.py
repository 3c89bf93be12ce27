"""Opening a checkpoint: everything is checked against the model's facts at once, weights are read on first touch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.checkpoint.layout import DENSE_FILE, TensorLayout, expected_tensors, mix_name
from twofold.engine.checkpoint.mapped import MappedTensors, all_intact, changed
from twofold.kernels.naive.rotation import needs_mix
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.activations import Activations
from twofold.profiles.errors import CorruptFile, ModelNotFound, UnsupportedModel
from twofold.profiles.model_spec import LinearGroup, ModelSpec
from twofold.profiles.readers.local import read_folder_spec, read_json_object

_AGAIN = "twofold quantize {source} -o {folder}"


def _again(folder: Path, config: CheckpointConfig | None = None) -> str:
    source = str(config.source.get("name", "MODEL")) if config else "MODEL"
    return _AGAIN.format(source=source, folder=folder)


def _read_config(folder: Path) -> CheckpointConfig:
    if not folder.is_dir():
        raise ModelNotFound(f"there is no checkpoint folder {folder}", hint=_again(folder))
    path = folder / "config.json"
    if not path.is_file():
        if any(folder.glob("base-*.safetensors")) or (folder / "dense.safetensors").exists():
            raise CorruptFile(
                f"{folder} is an unfinished quantisation (config.json is written last)",
                hint=f"resume it: {_again(folder)}",
            )
        raise CorruptFile(f"{folder} is not a twofold checkpoint", found="no config.json", hint=_again(folder))
    whole = read_json_object(path)
    if "quantization_config" not in whole:
        raise UnsupportedModel(
            f"{folder} is not a twofold checkpoint",
            found="a config.json without quantization_config",
            hint=f"twofold quantize {folder} -o DIR",
        )
    return CheckpointConfig.from_json(whole["quantization_config"])


def _check_tensor(file: MappedTensors, name: str, layout: TensorLayout, hint: str) -> None:
    entry = file.entries.get(name)
    if entry is None:
        raise CorruptFile(f"{file.path} lacks the tensor {name}", hint=hint)
    if (entry.dtype, entry.shape) != (layout.dtype, layout.shape):
        raise CorruptFile(
            f"{file.path}: {name} has another type or shape",
            found=f"{entry.dtype} {list(entry.shape)}",
            needed=f"{layout.dtype} {list(layout.shape)}",
            hint=hint,
        )


class Checkpoint:
    """An open checkpoint: `spec`, `config`, and its tensors as memory maps.

    `stored` is the configuration in the folder; `config` differs from it where a plan decided (`under`).
    """

    def __init__(self, path: Path, spec: ModelSpec, config: CheckpointConfig) -> None:
        self.path, self.spec, self.config, self.stored = path, spec, config, config
        self._groups: dict[str, LinearGroup] = {group.name: group for group in spec.groups}
        self._layout = expected_tensors(spec, config)
        self._files = self._open_files()
        self._guards = [file.guard for file in self._files.values()]

    @classmethod
    def open(cls, path: str | Path) -> Checkpoint:
        """Open and check a folder.

        Raises:
            ModelNotFound: no such folder.
            UnsupportedModel: not twofold's, another format version, or an architecture without a graph.
            CorruptFile: unfinished, truncated, or a tensor is missing or of another type or shape.
        """
        folder = Path(path)
        config = _read_config(folder)
        return cls(folder, read_folder_spec(folder), config)

    def under(self, activations: Activations) -> Checkpoint:
        """The same open files, their products with activations rounded so."""
        if activations == self.config.activations:
            return self
        other = copy.copy(self)
        other.config = self.config.under(activations)
        return other

    def _open_files(self) -> dict[str, MappedTensors]:
        hint = _again(self.path, self.config)
        files: dict[str, MappedTensors] = {}
        for name, layout in self._layout.items():
            if layout.file not in files:
                shard = self.path / layout.file
                if not shard.is_file():
                    raise CorruptFile(f"{self.path} lacks {layout.file}", hint=hint)
                files[layout.file] = MappedTensors(shard)
            _check_tensor(files[layout.file], name, layout, hint)
        return files

    def check_intact(self) -> None:
        """Call after computing from the weights, before the result is used.

        Raises:
            CorruptFile: a weight file became shorter, or a part of it could not be read.
        """
        if all_intact(self._guards):
            return
        hurt = next(file for file in self._files.values() if not file.guard.intact())
        raise changed(hurt.path, hurt.size_bytes, self._make_again)

    def check_unchanged(self) -> None:
        """Call before computing something new: what was written over in place shows nowhere else.

        Raises:
            CorruptFile: a weight file was written to since it was opened.
        """
        hurt = next((file for file in self._files.values() if not file.guard.unchanged()), None)
        if hurt is not None:
            raise changed(hurt.path, hurt.size_bytes, self._make_again)

    @property
    def _make_again(self) -> str:
        return f"make the checkpoint again: {_again(self.path, self.config)} --force"

    @property
    def mapped_bytes(self) -> int:
        """Bytes of all weight files."""
        return sum(file.size_bytes for file in self._files.values())

    def tensor_bytes(self) -> dict[str, int]:
        """Bytes of every tensor as its file's header has it."""
        entries = {name: self._files[layout.file].entries[name] for name, layout in self._layout.items()}
        return {name: entry.end - entry.start for name, entry in entries.items()}

    def map_ranges(self) -> list[tuple[int, int]]:
        """(address, bytes) of every mapped weight file."""
        return [file.range for file in self._files.values()]

    def dense(self, name: str) -> NDArray[Any]:
        """An embedding, norm, bias, sign vector or mixer, as stored (a read-only view).

        Raises:
            KeyError: when the format has no such tensor for this model.
        """
        return self._files[self._layout[name].file].array(name)

    def dense_weights(self) -> dict[str, NDArray[Any]]:
        """Embedding and norms by name, as a graph asks for them."""
        wanted = [name for name, layout in self._layout.items() if layout.file == DENSE_FILE]
        return {name: self.dense(name) for name in wanted if name.endswith(".weight")}

    def _optional(self, name: str) -> NDArray[Any] | None:
        return self.dense(name) if name in self._layout else None

    def _mix(self, dimension: int) -> NDArray[np.float32] | None:
        return self.dense(mix_name(dimension)) if needs_mix(dimension) else None

    def group(self, name: str) -> SplitWeights:
        """The weights of a group as the kernels take them; arrays are views of the maps.

        Raises:
            KeyError: when the model has no such group.
            CorruptFile: when the kernels refuse its numbers.
        """
        group, config = self._groups[name], self.config
        members = tuple(member.out_features for member in group.members)
        output_signs = self._optional(f"{name}.output_signs")
        try:
            return SplitWeights(
                in_features=group.in_features,
                member_rows=members,
                base_codes=self.dense(f"{name}.base_codes"),
                base_scales=self.dense(f"{name}.base_scales"),
                levels=np.array(config.base_levels, np.int8),
                residual_codes=self.dense(f"{name}.residual_codes"),
                residual_scales=self.dense(f"{name}.residual_scales"),
                residual_bits=config.bits_of(name),
                group_size=config.group_size,
                base_planes=config.base_planes,
                residual_planes=config.residual_planes,
                exchange_dtype=config.exchange_dtype,
                input_signs=self.dense(f"{name}.input_signs"),
                output_signs=output_signs,
                mix_in=self._mix(group.in_features),
                mix_out=() if output_signs is None else tuple(self._mix(rows) for rows in members),
                bias=self._optional(f"{name}.bias"),
            )
        except ValueError as error:
            raise CorruptFile(f"{self.path}: the group {name} cannot be used: {error}") from None

    def weights(self) -> Mapping[str, SplitWeights]:
        """All groups by name, in execution order."""
        return {name: self.group(name) for name in self._groups}
