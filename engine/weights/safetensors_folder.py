"""Weights of a Hugging Face folder of safetensors: memory-mapped, one tensor at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from twofold.engine.weights.mapped_bytes import MappedBytes
from twofold.engine.weights.source import EVERY_ROW, Float32, Rows, WeightSource
from twofold.profiles.errors import CorruptFile, ModelNotFound, UnsupportedModel
from twofold.profiles.readers.config import architecture_of, config_of_language_model
from twofold.profiles.readers.local import read_json_object
from twofold.profiles.readers.safetensors_header import StoredTensor, read_safetensors_header

INDEX = "model.safetensors.index.json"
_PREFIXES = {
    "language_model.model.": "model.",
    "model.language_model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
_READABLE = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class SafetensorsWeights(WeightSource):
    """The shards named by the index, or the one file."""

    def __init__(self, path: Path) -> None:
        config = config_of_language_model(read_json_object(path / "config.json"))
        method = (config.get("quantization_config") or {}).get("quant_method")
        if method is not None:
            raise UnsupportedModel(
                f"the weights of {path.name} are quantised with {method!r}",
                needed="float weights",
                hint="use the original model",
            )
        gemma3 = architecture_of(config) == "gemma3"
        tied = config.get("tie_word_embeddings", gemma3 or None) is True
        super().__init__(path, tied=tied, norm_offset=1.0 if gemma3 else 0.0)
        self._place = {_plain_name(name): place for name, place in _tensors(path).items()}
        self._shapes = {name: tensor.shape for name, (_, tensor) in self._place.items()}
        self._maps: dict[Path, MappedBytes] = {}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._shapes

    def close(self) -> None:
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()

    def _files(self) -> list[Path]:
        return sorted({file for file, _ in self._place.values()})

    def dtype_note(self) -> str:
        weights: Counter[str] = Counter()
        for _, tensor in self._place.values():
            weights[_READABLE.get(tensor.dtype, tensor.dtype)] += tensor.n_values
        return "/".join(name for name, _ in weights.most_common())

    def _read(self, name: str, rows: Rows = EVERY_ROW) -> Float32:
        file, tensor = self._place[name]
        if tensor.dtype not in _READABLE:
            raise UnsupportedModel(
                f"{file.name}: the tensor {name} is stored as {tensor.dtype}", needed=" or ".join(_READABLE)
            )
        mapped = self._maps.get(file)
        if mapped is None:
            mapped = self._maps[file] = MappedBytes(file)
        raw = mapped.part(tensor.start, tensor.end)
        if not tensor.n_values or not tensor.shape:
            values = _as_float32(raw, tensor.dtype).reshape(tensor.shape)[rows if tensor.shape else ()]
        else:
            wanted = raw.reshape(tensor.shape[0], -1)[rows]
            values = _as_float32(wanted, tensor.dtype).reshape(-1, *tensor.shape[1:])
        mapped.check_intact()
        return values


def _plain_name(name: str) -> str:
    """The name that the language model alone would have: a multimodal model's files put a part in front of it."""
    for prefix, plain in _PREFIXES.items():
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name


def _as_float32(raw: np.ndarray, dtype: str) -> Float32:
    """Bytes of any alignment as a new float32 array."""
    own = np.array(raw).reshape(-1)
    if dtype == "F32":
        return own.view(np.float32)
    if dtype == "F16":
        return own.view(np.float16).astype(np.float32)
    return (own.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _tensors(path: Path) -> dict[str, tuple[Path, StoredTensor]]:
    if (path / INDEX).exists():
        return _indexed(path)
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ModelNotFound(f"{path.name} holds no weights", needed="*.safetensors beside config.json")
    if len(files) > 1:
        raise CorruptFile(
            f"{path.name} holds {len(files)} safetensors files and no index", needed=INDEX, hint="get the model again"
        )
    return {name: (files[0], tensor) for name, tensor in read_safetensors_header(files[0]).items()}


def _indexed(path: Path) -> dict[str, tuple[Path, StoredTensor]]:
    """Every tensor of the index, found in the shard that the index names."""
    weight_map = read_json_object(path / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CorruptFile(f"{INDEX} has no usable weight_map", hint="get the file again")
    shards = {}
    for shard in sorted(set(weight_map.values())):
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CorruptFile(f"{INDEX} names a file outside the folder", found=ascii(shard)[:80])
        if not (path / shard).is_file():
            raise CorruptFile(f"{path.name} lacks the shard {shard}", hint="get the model again")
        shards[shard] = read_safetensors_header(path / shard)
    missing = [name for name, shard in weight_map.items() if name not in shards[shard]]
    if missing:
        raise CorruptFile(
            f"{INDEX} and the shards disagree",
            found=f"{len(missing)} tensors are not where the index says, first {missing[0]}",
            hint="get the model again",
        )
    return {name: (path / shard, shards[shard][name]) for name, shard in weight_map.items()}
