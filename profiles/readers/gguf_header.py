"""A strict reader of GGUF headers (versions 2 and 3, little-endian): metadata and tensor descriptions, never a tensor.

Works on a local file and on bytes fetched by HTTP range. Every count and length is checked against the bytes that are
left before anything is allocated. Format: the GGUF page of the ggml documentation.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.profiles.errors import CorruptFile, UnsupportedModel
from twofold.profiles.readers.byte_window import ByteWindow, LocalFile

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES = 1 << 16
MAX_TENSORS = 1 << 20
MAX_NAME_BYTES = 1 << 16
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20
SMALL_ARRAY = 4096
DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}


# Types of llama.cpp's forks: id → (name, weights of a block, its bytes). PrismML's ternary types, and Mirai's trellis
# packets with their entry states.
FORK_TYPES = {
    42: ("Q2_0", 64, 18),
    90: ("MS_V4T8", 64, 17),
    91: ("MS_V2T4", 64, 18),
    92: ("MS_V2T6", 128, 50),
    93: ("MS_I3", 128, 49),
    142: ("PQ2_0", 128, 34),
    143: ("PTQ1_0", 128, 28),
}


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """An array that was walked over but not kept (a vocabulary, say)."""

    length: int


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` in rows-first order (numpy's), `offset` in the file, `n_bytes` None for an unknown type."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    type_name: str
    offset: int
    n_bytes: int | None

    @property
    def n_values(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the header says. `fields` holds scalars, strings, and arrays (`SkippedArray` where not kept)."""

    name: str
    version: int
    fields: dict[str, Any]
    tensors: dict[str, TensorInfo]
    data_offset: int
    file_bytes: int


def read_gguf_header(path: Path, *, keep_arrays: bool = False) -> GgufHeader:
    """The header of a local file; `keep_arrays` also keeps the long arrays (tokens, merges, scores).

    Raises:
        CorruptFile: not a GGUF, truncated (tensors included), or damaged.
        UnsupportedModel: a version or byte order that is not read.
    """
    with LocalFile(path) as file:
        return parse_gguf_header(file.window(), keep_arrays=keep_arrays)


def parse_gguf_header(window: ByteWindow, *, keep_arrays: bool = False) -> GgufHeader:
    """Like `read_gguf_header`, over any window of the whole file."""
    version, n_tensors, n_fields = _preamble(window)
    fields: dict[str, Any] = {}
    for _ in range(n_fields):
        key = _string(window, MAX_NAME_BYTES)
        if key in fields:
            raise _damaged(window, f"the key {key!r} appears twice")
        fields[key] = _value(window, _u32(window), keep_arrays)
    alignment = fields.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise _damaged(window, f"the alignment is {alignment!r}")
    raw = [_tensor(window, alignment) for _ in range(n_tensors)]
    data_offset = -(-window.offset // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for info in raw:
        if info.name in tensors:
            raise _damaged(window, f"the tensor {info.name!r} appears twice")
        tensors[info.name] = _placed(info, data_offset, window)
    _refuse_overlaps(tensors, window)
    return GgufHeader(window.name, version, fields, tensors, data_offset, window.size)


def _damaged(window: ByteWindow, why: str) -> CorruptFile:
    return CorruptFile(f"{window.name} is damaged near byte {window.offset}: {why}", hint="get the file again")


def _shown(magic: bytes) -> str:
    """The first bytes as text, or in hexadecimal where they are none."""
    return magic.decode() if magic.isascii() and magic.decode().isprintable() else f"bytes {magic.hex(' ')}"


def _preamble(window: ByteWindow) -> tuple[int, int, int]:
    magic = window.take(4)
    if magic != MAGIC:
        raise CorruptFile(
            f"{window.name} is not a GGUF file",
            found=f"it starts with {_shown(magic)}",
            needed=f"it starts with {_shown(MAGIC)}",
            hint="get the file again",
        )
    version = _u32(window)
    if version in (value << 24 for value in VERSIONS):
        raise UnsupportedModel(f"{window.name} is a big-endian GGUF", hint="convert it on a little-endian machine")
    if version not in VERSIONS:
        raise UnsupportedModel(
            f"{window.name} has GGUF version {version}", needed="version 2 or 3", hint="convert the model again"
        )
    n_tensors, n_fields = struct.unpack("<QQ", window.take(16))
    if n_tensors > MAX_TENSORS or n_fields > MAX_ENTRIES:
        raise _damaged(window, f"it claims {n_tensors} tensors and {n_fields} metadata entries")
    return version, n_tensors, n_fields


def _u32(window: ByteWindow) -> int:
    return int(struct.unpack("<I", window.take(4))[0])


def _u64(window: ByteWindow) -> int:
    return int(struct.unpack("<Q", window.take(8))[0])


def _string(window: ByteWindow, limit: int | None = None) -> str:
    length = _u64(window)
    if limit is not None and length > limit:
        raise _damaged(window, f"a name of {length} bytes")
    # Vocabularies hold single bytes of multi-byte characters; `surrogateescape` keeps them reversible.
    return window.take(length).decode("utf-8", "surrogateescape")


def _value(window: ByteWindow, kind: int, keep: bool) -> Any:
    if kind == _STRING:
        return _string(window)
    if kind == _ARRAY:
        return _array(window, keep)
    if kind not in _SCALARS:
        raise _damaged(window, f"value type {kind}")
    (value,) = struct.unpack(_SCALARS[kind], window.take(struct.calcsize(_SCALARS[kind])))
    if kind == _BOOL:
        return bool(value)
    # A float32 is shown by its shortest decimal, so that 1e-5 reads as 1e-05 and not 9.999999747378752e-06.
    return _shortest_float32(value) if kind == 6 else value


def _shortest_float32(value: float) -> float:
    if not math.isfinite(value):
        return value
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _array(window: ByteWindow, keep: bool) -> list[Any] | SkippedArray:
    kind, length = _u32(window), _u64(window)
    keep = keep or length <= SMALL_ARRAY
    if kind == _STRING:
        if length * 8 > window.size - window.offset:
            raise _damaged(window, f"an array of {length} strings does not fit into the file")
        if keep:
            return [_string(window) for _ in range(length)]
        for _ in range(length):
            window.skip(_u64(window))
        return SkippedArray(length)
    if kind not in _SCALARS:
        raise _damaged(window, f"an array of value type {kind}")
    n_bytes = struct.calcsize(_SCALARS[kind]) * length
    if not keep or n_bytes > window.size - window.offset:
        window.skip(n_bytes)
        return SkippedArray(length)
    values = struct.unpack(f"<{length}{_SCALARS[kind][1]}", window.take(n_bytes))
    return [bool(value) for value in values] if kind == _BOOL else list(values)


def _tensor(window: ByteWindow, alignment: int) -> TensorInfo:
    """One description; `offset` is still relative to the data section."""
    name = _string(window, MAX_NAME_BYTES)
    n_dims = _u32(window)
    if n_dims > MAX_DIMS:
        raise _damaged(window, f"the tensor {name!r} has {n_dims} dimensions")
    dims = [_u64(window) for _ in range(n_dims)]
    type_id, offset = _u32(window), _u64(window)
    if any(dim < 1 for dim in dims) or math.prod(dims) >= 1 << 62:
        raise _damaged(window, f"the tensor {name!r} has shape {dims}")
    if offset % alignment:
        raise _damaged(window, f"the tensor {name!r} starts at {offset}, which is not aligned to {alignment}")
    type_name, n_bytes = _storage(dims, type_id)
    if n_bytes is not None and n_bytes < 0:
        raise _damaged(window, f"the rows of {name!r} ({dims[0]} values) are not whole {type_name} blocks")
    return TensorInfo(name, tuple(reversed(dims)), type_id, type_name, offset, n_bytes)


def _storage(dims: list[int], type_id: int) -> tuple[str, int | None]:
    """Type name and bytes; None bytes for a type that is not known, -1 for rows that are not whole blocks."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(type_id)
        name, (block, block_bytes) = kind.name, GGML_QUANT_SIZES[kind]
    except ValueError:
        if type_id not in FORK_TYPES:
            return f"type {type_id}", None
        name, block, block_bytes = FORK_TYPES[type_id]
    row = dims[0] if dims else 1
    if row % block:
        return name, -1
    return name, math.prod(dims) // block * block_bytes


def _placed(info: TensorInfo, data_offset: int, window: ByteWindow) -> TensorInfo:
    start = data_offset + info.offset
    end = start + (info.n_bytes or 0)
    if end > window.size:
        raise CorruptFile(
            f"{window.name} is truncated: the tensor {info.name!r} ends beyond the file",
            found=f"{window.size} bytes",
            needed=f"at least {end} bytes",
            hint="get the file again",
        )
    return TensorInfo(info.name, info.shape, info.type_id, info.type_name, start, info.n_bytes)


def _refuse_overlaps(tensors: dict[str, TensorInfo], window: ByteWindow) -> None:
    previous: TensorInfo | None = None
    for info in sorted(tensors.values(), key=lambda item: item.offset):
        if previous is not None and previous.offset + (previous.n_bytes or 0) > info.offset:
            raise _damaged(window, f"the tensors {previous.name!r} and {info.name!r} overlap")
        previous = info
