"""The Q8_0 writer: blocks to the byte, metadata kept, whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from versus.q8_file import cached_q8_0, read_facts, write_q8_0

from twofold.profiles.errors import UnsupportedModel


def _blocks(values: np.ndarray) -> bytes:
    """Q8_0 as ggml's reference defines it, one block at a time."""
    found = b""
    for block in values.astype(np.float32).reshape(-1, 32):
        scale = np.float32(np.abs(block).max() / np.float32(127))
        scaled = block * (np.float32(1) / scale if scale else np.float32(0))
        codes = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))  # half away from zero
        found += np.float16(scale).tobytes() + codes.astype(np.int8).tobytes()
    return found


def test_every_matrix_is_what_ggml_defines(odd_gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / "q8.gguf"
    write_q8_0(odd_gguf, target)
    source = {tensor.name: tensor for tensor in GGUFReader(odd_gguf).tensors}
    made = {tensor.name: tensor for tensor in GGUFReader(target).tensors}
    assert list(made) == list(source)
    for name, tensor in made.items():
        values = quants.dequantize(source[name].data, source[name].tensor_type)
        assert list(tensor.shape) == list(source[name].shape)
        if len(tensor.shape) == 1:
            assert tensor.tensor_type == GGMLQuantizationType.F32
            np.testing.assert_array_equal(tensor.data, values)
        elif tensor.shape[0] % 32:
            assert tensor.tensor_type == GGMLQuantizationType.F16
            np.testing.assert_array_equal(tensor.data, values.reshape(tensor.data.shape).astype(np.float16))
        else:
            assert tensor.tensor_type == GGMLQuantizationType.Q8_0
            assert tensor.data.tobytes() == _blocks(values), name


def test_metadata_is_kept_and_the_type_is_told(odd_gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "q8.gguf"
    write_q8_0(odd_gguf, target)
    source, made = GGUFReader(odd_gguf).fields, GGUFReader(target).fields
    assert made["general.file_type"].contents() == 7
    assert made["general.quantization_version"].contents() == 2
    assert "quantize.imatrix.file" not in made
    for name in ("general.architecture", "general.name", "llama.block_count", "llama.rope.freq_base",
                 "tokenizer.ggml.add_bos_token", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                 "tokenizer.ggml.scores"):  # fmt: skip
        assert made[name].contents() == source[name].contents(), name
        assert made[name].types == source[name].types, name


def test_what_a_file_holds_is_stated(odd_gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "q8.gguf"
    write_q8_0(odd_gguf, target)
    facts = read_facts(target)
    assert facts.weights == {"Q8_0": 7 * 64 + 64 * 96 + 3 * 32 + 5 * 64, "F16": 4 * 72}
    assert (facts.embedding, facts.head) == ("Q8_0", "Q8_0 (tied to the embedding)")
    assert facts.size_bytes == target.stat().st_size


def test_a_type_that_cannot_be_read_leaves_nothing_behind(tmp_path: Path) -> None:
    source, folder = tmp_path / "source.gguf", tmp_path / "made"
    writer = GGUFWriter(source, "llama")
    writer.add_tensor("token_embd.weight", np.zeros((2, 32), np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match="I32"):
        write_q8_0(source, folder / "q8.gguf")
    assert list(folder.iterdir()) == []


def test_the_cache_keeps_one_file_for_each_source(odd_gguf: Path, isolated_home: Path) -> None:
    first = cached_q8_0(odd_gguf)
    assert first.is_relative_to(isolated_home)
    os.utime(first, (1, 1))
    assert cached_q8_0(odd_gguf) == first and first.stat().st_mtime == 1
    with odd_gguf.open("r+b") as file:  # another source under the same name
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    assert cached_q8_0(odd_gguf) != first


@pytest.mark.slow
def test_twofold_reads_the_real_model_from_it(one_layer_gguf: Path, one_layer_q8_0: Path) -> None:
    from twofold.engine.text import Tokenizer
    from twofold.engine.weights import open_weights
    from twofold.profiles.readers.gguf_config import config_from_gguf
    from twofold.profiles.readers.gguf_header import read_gguf_header

    target = one_layer_q8_0
    assert config_from_gguf(read_gguf_header(target)) == config_from_gguf(read_gguf_header(one_layer_gguf))
    assert Tokenizer.from_gguf(target).sha256 == Tokenizer.from_gguf(one_layer_gguf).sha256
    name = "model.layers.0.mlp.down_proj.weight"
    with open_weights(one_layer_gguf) as source, open_weights(target) as made:
        before, after = source.tensor(name), made.tensor(name)
        step = np.abs(before.reshape(-1, 32)).max(axis=1, keepdims=True) / 127
        # Half a step of rounding, and the scale's own rounding to 11 bits, times at most 127 steps.
        assert (np.abs(after - before).reshape(-1, 32) <= step * (0.5 + 127 / 2**11 + 1e-4)).all()
        assert not np.array_equal(before, after)
        # Q8_0 of Q8_0 is itself: the embedding of this source is.
        embedding = "model.embed_tokens.weight"
        np.testing.assert_array_equal(source.tensor(embedding), made.tensor(embedding))
