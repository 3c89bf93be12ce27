"""Weights of a GGUF file: dequantised one tensor at a time, in Hugging Face's layout.

GGUF stores the rows of Q and K of the "llama" architecture so that rotary pairs are neighbours; Hugging Face pairs the
halves of a head. The rows are put back here. Gemma's norm weights are stored with their one already added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from twofold.engine.weights.gguf_names import hugging_face_name
from twofold.engine.weights.mapped_bytes import MappedBytes
from twofold.engine.weights.source import EVERY_ROW, Float32, Rows, WeightSource
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.readers.gguf_config import config_from_gguf
from twofold.profiles.readers.gguf_header import TensorInfo, read_gguf_header

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType

_UNQUANTISED = ("F32", "F16", "BF16")


class GgufWeights(WeightSource):
    """A memory-mapped, guarded GGUF file."""

    def __init__(self, path: Path) -> None:
        header = read_gguf_header(path)
        config = config_from_gguf(header)
        super().__init__(path, tied=bool(config["tie_word_embeddings"]))
        architecture = str(header.fields["general.architecture"])
        self._tensors: dict[str, TensorInfo] = {}
        for info in header.tensors.values():
            name = hugging_face_name(info.name, architecture)
            if name is not None:
                _refuse_unreadable(path, info)
                self._tensors[name] = info
        self._permuted_heads = (
            {"q_proj": int(config["num_attention_heads"]), "k_proj": int(config["num_key_value_heads"])}
            if architecture == "llama"
            else {}
        )
        self._shapes = {name: info.shape for name, info in self._tensors.items()}
        self._data = MappedBytes(path)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._shapes

    def close(self) -> None:
        self._data.close()

    def _files(self) -> list[Path]:
        return [self.path]

    def dtype_note(self) -> str:
        weights: Counter[str] = Counter()
        for info in self._tensors.values():
            if len(info.shape) > 1:
                weights[info.type_name] += info.n_values
        names = "/".join(name for name, _ in weights.most_common())
        return names if set(weights) <= set(_UNQUANTISED) else f"{names} dequantised"

    def _read(self, name: str, rows: Rows = EVERY_ROW) -> Float32:
        from gguf import quants

        info = self._tensors[name]
        assert info.n_bytes is not None
        raw = self._data.part(info.offset, info.offset + info.n_bytes)
        member = name.split(".")[-2]
        heads = self._permuted_heads.get(member)
        wanted = rows if heads is None else half_split_order(info.shape[0], heads)[rows]
        row_bytes = info.n_bytes // max(info.n_values // info.shape[-1], 1)
        is_matrix = len(info.shape) > 1
        stored = raw.reshape(info.shape[0] if is_matrix else 1, -1)
        stored = stored[wanted] if is_matrix else stored
        values = quants.dequantize(stored.reshape(-1, row_bytes), _type(info)).astype(np.float32, copy=False)
        values = values.reshape(-1, *info.shape[1:]) if is_matrix else values.reshape(-1)[wanted]
        # Unquantised tensors are still a view of the file: what is handed out must outlive it.
        own = np.ascontiguousarray(values) if values.flags.writeable else values.copy()
        self._data.check_intact()
        return own


def half_split_order(n_rows: int, n_heads: int) -> npt.NDArray[np.intp]:
    """The stored row of every row of [n_heads * head_dim, …]: neighbours of a rotary pair go to the head's halves."""
    pairs = np.arange(n_rows).reshape(n_heads, n_rows // n_heads // 2, 2)
    return pairs.swapaxes(1, 2).reshape(-1)


def _type(info: TensorInfo) -> GGMLQuantizationType:
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType(info.type_id)


def _refuse_unreadable(path: Path, info: TensorInfo) -> None:
    from gguf import quants

    readable = info.n_bytes is not None and (info.type_name in ("F32", "F16") or _type(info) in quants._type_traits)
    if not readable:
        raise UnsupportedModel(
            f"{path.name}: the tensor {info.name} is stored as {info.type_name}, which cannot be dequantised here",
            hint="use another file of the model, for example Q8_0 or BF16",
        )
