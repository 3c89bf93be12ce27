"""llama.cpp's Q8_0 file of a model, made from the very weights that twofold splits.

Every matrix of the source GGUF is dequantised and quantised to Q8_0 by llama.cpp's own `gguf` package (whose blocks are
those of `ggml_quantize_row_q8_0_ref`); vectors stay F32, and a matrix whose rows are no multiple of 32 becomes F16, as
`llama-quantize` does. Metadata and vocabulary are copied.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.files import file_sha256
from twofold.profiles.settings import cache_dir

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, ReaderTensor

WRITER_VERSION = 1
"""In the file's name: a change of what is written makes a new file."""
Q8_0_BLOCK = 32
_NOT_COPIED = ("GGUF.", "quantize.imatrix.", "split.")
_REPLACED = ("general.architecture", "general.file_type", "general.quantization_version", "general.alignment")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a GGUF file holds. `weights` counts matrix values by type; `head` is the type of the output matrix."""

    size_bytes: int
    weights: dict[str, int]
    embedding: str
    head: str

    def to_json(self) -> dict[str, Any]:
        return {
            "size_bytes": self.size_bytes,
            "weights": self.weights,
            "embedding": self.embedding,
            "head": self.head,
        }


def cached_q8_0(source: Path) -> Path:
    """The Q8_0 file of `source` in the cache, made now if it is not there.

    Raises:
        UnsupportedModel: a tensor type that cannot be dequantised. OSError: the cache cannot be written.
    """
    name = f"{source.stem[:80]}-{file_sha256(source)[:16]}-Q8_0-v{WRITER_VERSION}.gguf"
    target = cache_dir() / "benchmarks" / name
    if not target.is_file():
        write_q8_0(source, target)
    return target


def write_q8_0(source: Path, target: Path) -> None:
    """Write `source` as Q8_0 to `target`: aside first, then renamed, so that it is whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
    os.close(descriptor)
    try:
        _write(source, Path(aside))
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def target_type(shape: tuple[int, ...]) -> GGMLQuantizationType:
    """The type of a tensor (numpy's order of dimensions) in a Q8_0 file."""
    from gguf import GGMLQuantizationType

    if len(shape) < 2:
        return GGMLQuantizationType.F32
    return GGMLQuantizationType.F16 if shape[-1] % Q8_0_BLOCK else GGMLQuantizationType.Q8_0


def read_facts(path: Path) -> FileFacts:
    """Types and size of a GGUF file."""
    from gguf import GGUFReader

    weights: Counter[str] = Counter()
    types: dict[str, str] = {}
    for tensor in GGUFReader(path).tensors:
        types[tensor.name] = tensor.tensor_type.name
        if len(tensor.shape) > 1:
            weights[tensor.tensor_type.name] += int(tensor.n_elements)
    embedding = types.get("token_embd.weight", "none")
    head = types.get("output.weight", f"{embedding} (tied to the embedding)")
    return FileFacts(path.stat().st_size, dict(weights.most_common()), embedding, head)


def _write(source: Path, path: Path) -> None:
    from gguf import GGUFReader, GGUFWriter
    from gguf.quants import quant_shape_to_byte_shape

    reader = GGUFReader(source)
    writer = GGUFWriter(path, str(reader.fields["general.architecture"].contents()))
    try:
        _copy_metadata(reader, writer)
        for tensor in reader.tensors:
            shape = _shape(tensor)
            kind = target_type(shape)
            dtype = {"F32": np.float32, "F16": np.float16}.get(kind.name, np.uint8)
            stored = quant_shape_to_byte_shape(shape, kind) if dtype is np.uint8 else shape
            n_bytes = int(np.prod(stored)) * np.dtype(dtype).itemsize
            writer.add_tensor_info(tensor.name, stored, np.dtype(dtype), n_bytes, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in reader.tensors:
            writer.write_tensor_data(_converted(tensor))
    finally:
        writer.close()


def _shape(tensor: ReaderTensor) -> tuple[int, ...]:
    return tuple(int(n) for n in reversed(tensor.shape))


def _converted(tensor: ReaderTensor) -> np.ndarray:
    from gguf import quants

    shape = _shape(tensor)
    try:
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False).reshape(shape)
    except NotImplementedError:
        raise UnsupportedModel(
            f"the tensor {tensor.name} is stored as {tensor.tensor_type.name}, which cannot be dequantised here",
            hint="use another file of the model, for example Q8_0 or BF16",
        ) from None
    return quants.quantize(values, target_type(shape))


def _copy_metadata(reader: GGUFReader, writer: GGUFWriter) -> None:
    from gguf import GGUFValueType, LlamaFileType

    for field in reader.fields.values():
        if field.name.startswith(_NOT_COPIED) or field.name in _REPLACED:
            continue
        kind = field.types[0]
        value = field.contents()
        if kind == GGUFValueType.ARRAY and not value:
            continue  # an empty list has no type to write
        writer.add_key_value(field.name, value, kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None)
    writer.add_file_type(int(LlamaFileType.MOSTLY_Q8_0))
    writer.add_quantization_version(2)
