"""Weight bytes against the packed arrays themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from twofold.kernels.naive.packing import pack_base, pack_residual
from twofold.planner import codecs
from twofold.profiles.model_spec import LinearGroup, LinearSpec, ModelSpec

SHAPES = [(16, 16), (1, 1), (576, 576), (1536, 576), (100, 50), (17, 129), (33, 1536)]


def _group(rows: int, inputs: int, **kwargs: object) -> LinearGroup:
    return LinearGroup("g", (LinearSpec("w", inputs, rows, **kwargs),))  # type: ignore[arg-type]


def _scale_bytes(rows: int, inputs: int) -> int:
    tiles, groups = -(-rows // 16), len(range(0, inputs, 128))
    return np.zeros((tiles, groups, 16), np.float16).nbytes


@pytest.mark.parametrize("rows, inputs", SHAPES)
def test_base_bytes_are_those_of_the_packed_array(rows: int, inputs: int) -> None:
    packed = pack_base(np.zeros((rows, inputs), np.uint8))
    assert codecs.base_bytes(_group(rows, inputs)) == packed.nbytes + _scale_bytes(rows, inputs)


@pytest.mark.parametrize("bits", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("rows, inputs", SHAPES)
def test_residual_bytes_are_those_of_the_packed_array(rows: int, inputs: int, bits: int) -> None:
    packed = pack_residual(np.zeros((rows, inputs), np.uint8), bits)
    assert codecs.residual_bytes(_group(rows, inputs), bits) == packed.nbytes + _scale_bytes(rows, inputs)


def test_every_member_is_padded_alone() -> None:
    two = LinearGroup("g", (LinearSpec("a", 64, 17), LinearSpec("b", 64, 15)))
    assert codecs.base_bytes(two) == codecs.base_bytes(_group(32, 64)) + codecs.base_bytes(_group(16, 64))


def test_experts_count_as_often_as_they_are_there() -> None:
    assert codecs.residual_bytes(_group(32, 64, copies=7), 6) == 7 * codecs.residual_bytes(_group(32, 64), 6)


def test_signs_and_biases() -> None:
    assert codecs.side_bytes(_group(10, 30), is_head=False) == 40
    assert codecs.side_bytes(_group(10, 30), is_head=True) == 30
    assert codecs.side_bytes(_group(10, 30, bias=True), is_head=False) == 40 + 4 * 10


def test_mixers_are_one_per_rotated_dimension(shipped: Callable[[str], ModelSpec]) -> None:
    # SmolLM2: 576 = 9·64, 192 = 3·64, 1536 = 3·512; the head's 49152 rows are not rotated.
    assert codecs.mixer_bytes(shipped("HuggingFaceTB/SmolLM2-135M")) == 4 * (81 + 9 + 9)


def test_the_base_of_a_31b_takes_the_reported_7_78_gb(shipped: Callable[[str], ModelSpec]) -> None:
    spec = shipped("google/gemma-4-31B-it")
    base = sum(codecs.base_bytes(group) for layer in spec.layers for group in layer.groups)
    assert round(base / 1e9, 2) == 7.78
    assert base * 8 == spec.n_decoder_weights * 2.125


@pytest.mark.parametrize("codec", ["Q8_0", "Q4_0", "Q5_1", "F16"])
def test_gguf_bytes_are_those_of_a_quantised_array(codec: str) -> None:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    array = np.zeros((5, 96), np.float32)
    assert codecs.gguf_bytes(5, 96, codec) == quantize(array, GGMLQuantizationType[codec]).nbytes


def test_k_quants_fall_back_where_a_row_is_no_multiple_of_256() -> None:
    assert codecs.gguf_bytes(3, 576, "Q4_K") == codecs.gguf_bytes(3, 576, "Q5_0")
    assert codecs.gguf_bytes(3, 576, "Q6_K") == codecs.gguf_bytes(3, 576, "Q8_0")
    assert codecs.gguf_bytes(3, 33, "Q8_0") == 3 * 33 * 2
    assert codecs.gguf_bytes(2, 512, "Q4_K") == 2 * 2 * 144
