"""The packed layout against a scalar reading of its definition, and round trips over odd shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.kernels.naive import packing

SHAPES = [(1, 1), (3, 5), (16, 16), (17, 16), (16, 33), (100, 80), (192, 576), (33, 64)]


def random_codes(rows: int, inputs: int, highest: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, highest + 1, (rows, inputs), dtype=np.uint8)


def vector_byte(packed_block: np.ndarray, vector: int, byte: int, plane: str) -> int:
    """One code's bits in one plane of one sub-block, read as the format's table says."""
    if plane == "pair":
        return (int(packed_block[byte]) >> (2 * vector)) & 3
    if plane == "nibble":
        return (int(packed_block[64 * (vector // 2) + byte]) >> (4 * (vector % 2))) & 15
    word = int.from_bytes(bytes(packed_block[8 * vector : 8 * vector + 8]), "little")
    return (word >> byte) & 1


PLANES = {  # bits -> (plane, its bytes, the lowest bit it holds)
    4: [("nibble", 128, 0)],
    5: [("nibble", 128, 0), ("single", 32, 4)],
    6: [("nibble", 128, 0), ("pair", 64, 4)],
    7: [("nibble", 128, 0), ("pair", 64, 4), ("single", 32, 6)],
    8: [("nibble", 128, 0), ("nibble", 128, 4)],
}


def scalar_code(packed: np.ndarray, row: int, column: int, planes: list[tuple[str, int, int]]) -> int:
    block = packed[row // 16, column // 16]
    vector, byte = column % 16 // 4, 4 * (row % 16) + column % 4
    code, start = 0, 0
    for plane, size, shift in planes:
        code |= vector_byte(block[start : start + size], vector, byte, plane) << shift
        start += size
    assert start == block.size
    return code


@pytest.mark.parametrize(("rows", "inputs"), SHAPES[:6])
def test_base_layout_is_the_documented_one(rows: int, inputs: int) -> None:
    codes = random_codes(rows, inputs, 3)
    packed = packing.pack_base(codes)
    assert packed.shape == (-(-rows // 16), -(-inputs // 16), 64)
    for row in range(packed.shape[0] * 16):
        for column in range(packed.shape[1] * 16):
            expected = codes[row, column] if row < rows and column < inputs else 0
            assert scalar_code(packed, row, column, [("pair", 64, 0)]) == expected


@pytest.mark.parametrize("bits", packing.RESIDUAL_BITS)
@pytest.mark.parametrize(("rows", "inputs"), [(3, 5), (17, 33)])
def test_residual_layout_is_the_documented_one(rows: int, inputs: int, bits: int) -> None:
    offset = packing.residual_offset(bits)
    codes = random_codes(rows, inputs, 2 * offset)
    packed = packing.pack_residual(codes, bits)
    assert packed.shape == (-(-rows // 16), -(-inputs // 16), 32 * bits)
    for row in range(packed.shape[0] * 16):
        for column in range(packed.shape[1] * 16):
            expected = codes[row, column] if row < rows and column < inputs else offset
            assert scalar_code(packed, row, column, PLANES[bits]) == expected


@pytest.mark.parametrize(("rows", "inputs"), SHAPES)
def test_base_round_trip(rows: int, inputs: int) -> None:
    codes = random_codes(rows, inputs, 3)
    back = packing.unpack_base(packing.pack_base(codes), inputs)
    np.testing.assert_array_equal(back[:rows], codes)
    assert not back[rows:].any()


@pytest.mark.parametrize("bits", packing.RESIDUAL_BITS)
@pytest.mark.parametrize(("rows", "inputs"), SHAPES)
def test_residual_round_trip(rows: int, inputs: int, bits: int) -> None:
    offset = packing.residual_offset(bits)
    codes = random_codes(rows, inputs, 2 * offset)
    back = packing.unpack_residual(packing.pack_residual(codes, bits), inputs, bits)
    np.testing.assert_array_equal(back[:rows], codes)
    assert (back[rows:] == offset).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from(packing.RESIDUAL_BITS), st.integers(0, 2**32))
def test_round_trips_of_any_shape_and_memory_order(rows: int, inputs: int, bits: int, seed: int) -> None:
    codes = np.asfortranarray(random_codes(rows, inputs, 2 * packing.residual_offset(bits), seed))
    back = packing.unpack_residual(packing.pack_residual(codes, bits), inputs, bits)
    np.testing.assert_array_equal(back[:rows], codes)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = random_codes(100, 80, 62)
    whole = packing.pack_residual(codes, 6)
    monkeypatch.setattr(packing, "_CHUNK_BYTES", 1)
    np.testing.assert_array_equal(packing.pack_residual(codes, 6), whole)
    np.testing.assert_array_equal(packing.unpack_residual(whole, 80, 6)[:100], codes)


def test_scales_round_trip() -> None:
    scales = np.random.default_rng(1).normal(size=(100, 5)).astype(np.float16)
    packed = packing.pack_scales(scales)
    assert packed.shape == (7, 5, 16)
    assert packed[2, 3, 4] == scales[36, 3]
    back = packing.unpack_scales(packed)
    np.testing.assert_array_equal(back[:100], scales)
    assert not back[100:].any()


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.full((2, 2), 4, np.uint8), "at most 3, found 4"),
        (np.zeros((2, 2), np.int8), "uint8"),
        (np.zeros(4, np.uint8), "rows, K"),
        (np.zeros((0, 4), np.uint8), "non-empty"),
    ],
)
def test_bad_base_codes_are_refused(codes: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        packing.pack_base(codes)


def test_bad_residuals_are_refused() -> None:
    codes = np.zeros((2, 2), np.uint8)
    with pytest.raises(ValueError, match="4 to 8 bits, got 3"):
        packing.pack_residual(codes, 3)
    with pytest.raises(ValueError, match="at most 62, found 63"):
        packing.pack_residual(codes + 63, 6)
    with pytest.raises(ValueError, match="packed codes must be"):
        packing.unpack_residual(packing.pack_residual(codes, 6), 40, 6)
