"""The packed weight layout of a split Linear, in numpy: the one place that defines it in code.

A tile is 16 output rows. A sub-block is 16 rows x 16 inputs as four vectors v0..v3 of 64 bytes; vector v holds inputs
4v..4v+3 and its byte 4*row + i is (row, input 4v + i), the operand order of a 512-bit integer dot product. Codes are
stored in planes of 2, 4 or 1 bits of these vectors, low bits first, so that unpacking is shifts and masks.

Rows are padded to whole tiles and inputs to whole sub-blocks. Padded base codes are 0 under a scale of 0, padded
residual codes are qm (a residual of 0).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
F16 = npt.NDArray[np.float16]

TILE_ROWS = 16
BLOCK_INPUTS = 16
BASE_BYTES = 64
RESIDUAL_BITS = (4, 5, 6, 7, 8)

_CHUNK_BYTES = 1 << 22  # works on this many codes at a time: the temporaries stay in the cache


def residual_offset(bits: int) -> int:
    """qm, the code of a zero residual: codes run over 0..2*qm."""
    _check_bits(bits)
    return (1 << (bits - 1)) - 1


def tiles(rows: int) -> int:
    """Tiles of 16 rows that hold `rows` rows."""
    return -(-rows // TILE_ROWS)


def blocks(in_features: int) -> int:
    """Sub-blocks of 16 inputs that hold `in_features` inputs."""
    return -(-in_features // BLOCK_INPUTS)


def pack_base(codes: U8) -> U8:
    """2-bit codes [rows, K], each 0..3, to U8 [tiles, sub-blocks, 64]."""
    _check_codes(codes, 3)
    out = np.empty((tiles(codes.shape[0]), blocks(codes.shape[1]), BASE_BYTES), np.uint8)
    for chunk, vectors in _vectors(codes, 0):
        _pack_pair(vectors, out[chunk])
    return out


def unpack_base(packed: U8, in_features: int) -> U8:
    """The inverse of `pack_base`: U8 [16 * tiles, in_features], padded rows included."""
    _check_packed(packed, in_features, BASE_BYTES)
    out = np.empty((packed.shape[0] * TILE_ROWS, in_features), np.uint8)
    for chunk in _chunks(packed.shape[0], packed.shape[1]):
        vectors = np.zeros((*packed[chunk].shape[:2], 4, 64), np.uint8)
        _unpack_pair(np.asarray(packed[chunk]), 0, vectors)
        _store_rows(vectors, chunk, out)
    return out


def pack_residual(codes: U8, bits: int) -> U8:
    """Residual codes u [rows, K], each 0..2*qm, to U8 [tiles, sub-blocks, 32 * bits]."""
    offset = residual_offset(bits)
    _check_codes(codes, 2 * offset)
    out = np.empty((tiles(codes.shape[0]), blocks(codes.shape[1]), 32 * bits), np.uint8)
    for chunk, v in _vectors(codes, offset):
        part = out[chunk]
        _pack_nibble(v & np.uint8(15), part[..., :128])
        if bits in (6, 7):
            _pack_pair(v >> np.uint8(4) & np.uint8(3), part[..., 128:192])
        if bits in (5, 7):
            part[..., 32 * bits - 32 :] = _pack_single(v >> np.uint8(bits - 1) & np.uint8(1))
        if bits == 8:
            _pack_nibble(v >> np.uint8(4), part[..., 128:])
    return out


def unpack_residual(packed: U8, in_features: int, bits: int) -> U8:
    """The inverse of `pack_residual`: U8 [16 * tiles, in_features], padded rows included."""
    _check_bits(bits)
    _check_packed(packed, in_features, 32 * bits)
    out = np.empty((packed.shape[0] * TILE_ROWS, in_features), np.uint8)
    for chunk in _chunks(packed.shape[0], packed.shape[1]):
        part = np.asarray(packed[chunk])
        vectors = np.zeros((*part.shape[:2], 4, 64), np.uint8)
        _unpack_nibble(part[..., :128], 0, vectors)
        if bits in (6, 7):
            _unpack_pair(part[..., 128:192], 4, vectors)
        if bits in (5, 7):
            _unpack_single(part[..., 32 * bits - 32 :], bits - 1, vectors)
        if bits == 8:
            _unpack_nibble(part[..., 128:], 4, vectors)
        _store_rows(vectors, chunk, out)
    return out


def pack_scales(scales: F16) -> F16:
    """One scale per row and scale group, F16 [rows, groups], to F16 [tiles, groups, 16]; padded rows get 0."""
    if scales.ndim != 2 or scales.dtype != np.float16:
        raise ValueError(f"scales must be float16 [rows, groups], got {scales.dtype} {scales.shape}")
    rows, groups = scales.shape
    padded = np.zeros((tiles(rows) * TILE_ROWS, groups), np.float16)
    padded[:rows] = scales
    return np.ascontiguousarray(padded.reshape(-1, TILE_ROWS, groups).transpose(0, 2, 1))


def unpack_scales(packed: F16) -> F16:
    """The inverse of `pack_scales`: F16 [16 * tiles, groups], padded rows included."""
    if packed.ndim != 3 or packed.shape[2] != TILE_ROWS or packed.dtype != np.float16:
        raise ValueError(f"packed scales must be float16 [tiles, groups, 16], got {packed.dtype} {packed.shape}")
    return np.ascontiguousarray(packed.transpose(0, 2, 1)).reshape(-1, packed.shape[1])


def _check_bits(bits: int) -> None:
    if bits not in RESIDUAL_BITS:
        raise ValueError(f"a residual has 4 to 8 bits, got {bits}")


def _check_codes(codes: U8, highest: int) -> None:
    if codes.ndim != 2 or codes.dtype != np.uint8 or codes.size == 0:
        raise ValueError(f"codes must be a non-empty uint8 [rows, K], got {codes.dtype} {codes.shape}")
    found = int(codes.max())
    if found > highest:
        raise ValueError(f"codes must be at most {highest}, found {found}")


def _check_packed(packed: U8, in_features: int, block_bytes: int) -> None:
    expected = (blocks(in_features), block_bytes)
    if packed.ndim != 3 or packed.dtype != np.uint8 or packed.shape[1:] != expected or in_features < 1:
        raise ValueError(f"packed codes must be uint8 [tiles, {expected[0]}, {expected[1]}], got {packed.shape}")


def _chunks(n_tiles: int, n_blocks: int) -> Iterator[slice]:
    step = max(1, _CHUNK_BYTES // (n_blocks * 256))
    for start in range(0, n_tiles, step):
        yield slice(start, min(start + step, n_tiles))


def _vectors(codes: U8, fill: int) -> Iterator[tuple[slice, U8]]:
    """Runs of tiles in vector order, U8 [tiles, sub-blocks, 4, 64], padded with `fill`."""
    rows, inputs = codes.shape
    width = blocks(inputs) * BLOCK_INPUTS
    for chunk in _chunks(tiles(rows), blocks(inputs)):
        part = codes[chunk.start * TILE_ROWS : chunk.stop * TILE_ROWS]
        padded = np.full(((chunk.stop - chunk.start) * TILE_ROWS, width), fill, np.uint8)
        padded[: part.shape[0], :inputs] = part
        # four inputs of one row are four neighbouring bytes on both sides, so they move as one 32-bit word
        quads = padded.view(np.uint32).reshape(-1, TILE_ROWS, width // BLOCK_INPUTS, 4)
        moved = np.ascontiguousarray(quads.transpose(0, 2, 3, 1)).view(np.uint8)
        yield chunk, moved.reshape(-1, width // BLOCK_INPUTS, 4, 64)


def _store_rows(vectors: U8, chunk: slice, out: U8) -> None:
    """Vectors [tiles, sub-blocks, 4, 64] back to rows of `out`, without the padded inputs."""
    quads = vectors.view(np.uint32)  # [tiles, sub-blocks, 4, 16]
    rows = np.ascontiguousarray(quads.transpose(0, 3, 1, 2)).view(np.uint8)
    rows = rows.reshape(vectors.shape[0] * TILE_ROWS, -1)
    out[chunk.start * TILE_ROWS : chunk.stop * TILE_ROWS] = rows[:, : out.shape[1]]


def _pack_pair(v: U8, out: U8) -> None:
    out[...] = v[..., 0, :] | v[..., 1, :] << 2 | v[..., 2, :] << 4 | v[..., 3, :] << 6


def _unpack_pair(packed: U8, shift: int, vectors: U8) -> None:
    for vector in range(4):
        vectors[..., vector, :] |= ((packed >> (2 * vector)) & 3) << shift


def _pack_nibble(v: U8, out: U8) -> None:
    out[..., :64] = v[..., 0, :] | v[..., 1, :] << 4
    out[..., 64:] = v[..., 2, :] | v[..., 3, :] << 4


def _unpack_nibble(packed: U8, shift: int, vectors: U8) -> None:
    for vector in range(4):
        half = packed[..., 64 * (vector // 2) : 64 * (vector // 2) + 64]
        vectors[..., vector, :] |= ((half >> (4 * (vector % 2))) & 0x0F) << shift


def _pack_single(bit: U8) -> U8:
    """One bit a code, [..., 4, 64] to [..., 32]: bit j of a vector's little-endian 64-bit word is its byte j."""
    words: U8 = np.packbits(bit, axis=-1, bitorder="little")
    return words.reshape(*bit.shape[:-2], 32)


def _unpack_single(packed: U8, shift: int, vectors: U8) -> None:
    words = packed.reshape(*packed.shape[:-1], 4, 8)
    vectors |= np.unpackbits(words, axis=-1, bitorder="little") << shift
