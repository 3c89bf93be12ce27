"""The benchmarks' own modules on the path, and small GGUF files: odd shapes, and the default model's first layer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # processes that a test spawns inherit it


@pytest.fixture(scope="session")
def benchmarks_folder() -> Path:
    return BENCHMARKS


@pytest.fixture
def odd_gguf(tmp_path: Path) -> Path:
    """Matrices in several types, one whose rows are no multiple of 32, and metadata of every common type."""
    from gguf import GGMLQuantizationType, GGUFWriter, quants

    path = tmp_path / "odd.gguf"
    rng = np.random.default_rng(3)
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_float32("llama.rope.freq_base", 10000.5)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_string("general.name", "odd – ünïcode")
    writer.add_array("tokenizer.ggml.tokens", ["<a>", "b", "Ġc"])
    writer.add_array("tokenizer.ggml.token_type", [3, 1, 1])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 2.0])
    writer.add_string("quantize.imatrix.file", "somewhere")
    writer.add_file_type(3)
    for name, kind, shape in (
        ("token_embd.weight", "Q8_0", (7, 64)),
        ("blk.0.attn_q.weight", "Q4_1", (64, 96)),
        ("blk.0.attn_k.weight", "Q4_0", (3, 32)),
        ("blk.0.attn_v.weight", "BF16", (5, 64)),
        ("blk.0.ffn_up.weight", "F16", (4, 72)),
        ("blk.0.attn_norm.weight", "F32", (96,)),
        ("blk.0.scale.weight", "F16", (3,)),
    ):
        values = rng.standard_normal(shape).astype(np.float32)
        values.flat[0] = 0
        values[..., :32] *= 0 if name.endswith("attn_k.weight") else 1  # a block of zeros has no scale
        type_ = GGMLQuantizationType[kind]
        raw_type = None if kind in ("F32", "F16") else type_
        writer.add_tensor(name, quants.quantize(values, type_), raw_dtype=raw_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def one_layer_gguf(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 cut behind its first layer: a real vocabulary, real weights, and a thirtieth of the work."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter

    path = tmp_path_factory.mktemp("one_layer") / "SmolLM2-one-layer.gguf"
    reader, writer = GGUFReader(smollm2_gguf), GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = 1 if field.name == "llama.block_count" else field.contents()
        kind = field.types[0]
        writer.add_key_value(field.name, value, kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk.") or tensor.name.startswith("blk.0."):
            raw_type = None if tensor.tensor_type.name == "F32" else tensor.tensor_type
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=raw_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def one_layer_q8_0(one_layer_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its Q8_0 file, as the benchmark makes it."""
    from versus.q8_file import write_q8_0

    path = tmp_path_factory.mktemp("q8") / "one-layer-q8_0.gguf"
    write_q8_0(one_layer_gguf, path)
    return path
