"""GGUF weights: the real default model speaks through transformers; damaged files are refused before use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine.weights import open_weights
from twofold.engine.weights.gguf_file import half_split_order
from twofold.kernels.cpu import missing_reason
from twofold.profiles.errors import CorruptFile, UnsupportedModel
from twofold.profiles.readers.gguf_header import read_gguf_header
from twofold.profiles.sources import read_spec, resolve


@pytest.mark.slow
def test_smollm2_dequantised_continues_sensibly_in_transformers(smollm2_gguf: Path) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    from twofold.profiles.readers.local import read_config

    config = LlamaConfig(**read_config(smollm2_gguf))
    with torch.device("meta"):  # random weights of this size take longer than the test
        model = LlamaForCausalLM(config)
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    with open_weights(smollm2_gguf) as source:
        source.check_complete(read_spec(resolve(str(smollm2_gguf))))
        state = {name: torch.tensor(source.tensor(name)) for name in source.names()}
        assert np.array_equal(source.tensor("lm_head.weight"), source.tensor("model.embed_tokens.weight"))
        assert source.dtype_note() == "Q4_1/Q8_0 dequantised"
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    model.eval()
    assert not unexpected
    assert missing == ["lm_head.weight"]
    fields = read_gguf_header(smollm2_gguf, keep_arrays=True).fields
    vocab = {token: index for index, token in enumerate(fields["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    prompt = torch.tensor([tokenizer.encode("The capital of France is").ids])
    with torch.no_grad():
        generated = model.generate(prompt, max_new_tokens=3, do_sample=False)
    assert "Paris" in tokenizer.decode(generated[0].tolist())


def gguf_of(folder: Path, path: Path, kind: str = "F32") -> Path:
    """A GGUF made from a safetensors folder by the published conversion rules: Q and K rows of llama reordered, one
    added to Gemma's norms.
    """
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    arch = config["model_type"].removesuffix("_text")
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if arch == "gemma3":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    ids = {name: arch_id for arch_id, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(ids[arch], config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, values in load_file(folder / "model.safetensors").items():
        member = name.split(".")[-2]
        if arch == "llama" and member in heads:
            n = heads[member]
            values = values.reshape(n, 2, values.shape[0] // n // 2, *values.shape[1:]).swapaxes(1, 2)
            values = values.reshape(-1, *values.shape[3:])
        if arch == "gemma3" and member.endswith("norm"):
            values = values + 1
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        quantised = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        data = gguf.quants.quantize(np.ascontiguousarray(values), quantised)
        writer.add_tensor(target, data, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3"])
def test_a_float_gguf_holds_exactly_the_folders_weights(name: str, request: Any, tmp_path: Path) -> None:
    folder = request.getfixturevalue(f"tiny_{name}_folder")
    path = gguf_of(folder, tmp_path / f"{name}.gguf")
    with open_weights(path) as found, open_weights(folder) as expected:
        spec = read_spec(resolve(str(path)))
        same = read_spec(resolve(str(folder)))
        assert spec.layers == same.layers
        assert (spec.embedding_scale, spec.attention_scale) == (same.embedding_scale, same.attention_scale)
        found.check_complete(spec)
        assert set(found.names()) == set(expected.names())
        assert found.tied == expected.tied
        for tensor in expected.names():
            assert np.array_equal(found.tensor(tensor), expected.tensor(tensor))
            assert found.tensor(tensor).flags.writeable and found.tensor(tensor).flags.c_contiguous
        assert found.dtype_note() == "F32"


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0"])
def test_stored_types_are_dequantised_close_to_the_original(kind: str, tiny_llama_folder: Path, tmp_path: Path) -> None:
    path = gguf_of(tiny_llama_folder, tmp_path / "model.gguf", kind)
    with open_weights(path) as found, open_weights(tiny_llama_folder) as expected:
        for tensor in expected.names():
            assert np.abs(found.tensor(tensor) - expected.tensor(tensor)).max() < 2e-3
        assert found.dtype_note() == (f"{kind} dequantised" if kind == "Q8_0" else kind)


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0"])
def test_rows_are_those_of_the_whole_tensor(kind: str, tiny_llama_folder: Path, tmp_path: Path) -> None:
    """Of a matrix as stored, of one whose rows are put back in order, of a vector; in order, repeated, none."""
    names = ("model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.norm.weight")
    with open_weights(gguf_of(tiny_llama_folder, tmp_path / "model.gguf", kind)) as source:
        for name in names:
            whole = source.tensor(name)
            for rows in (slice(0, 16), slice(5, 31), slice(30, 1000), slice(0, 0), np.array([7, 0, 7, 29])):
                found = source.rows(name, rows)
                assert np.array_equal(found, whole[rows])
                assert found.flags.writeable and found.flags.c_contiguous


def test_rows_come_back_in_halves() -> None:
    # Two heads of four rows: pairs (0, 2) and (1, 3) of a head are neighbours in the file.
    stored = np.array([0, 2, 1, 3, 10, 12, 11, 13], np.float32)[:, None]
    assert stored[half_split_order(len(stored), 2)][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.99, 0.999999])
def test_truncated_files_are_refused_when_opened(tiny_llama_folder: Path, tmp_path: Path, share: float) -> None:
    path = gguf_of(tiny_llama_folder, tmp_path / "model.gguf")
    size = int(path.stat().st_size * share)
    os.truncate(path, size)
    with pytest.raises(CorruptFile):
        open_weights(path)


def test_nan_in_a_gguf_names_the_tensor(tiny_llama_folder: Path, tmp_path: Path) -> None:
    path = gguf_of(tiny_llama_folder, tmp_path / "model.gguf")
    info = read_gguf_header(path).tensors["blk.1.ffn_down.weight"]
    with open(path, "r+b") as file:
        file.seek(info.offset + 40)
        file.write(b"\xff\xff\xff\xff")
    with open_weights(path) as source:
        source.tensor("model.layers.0.mlp.down_proj.weight")
        with pytest.raises(CorruptFile, match=r"model\.layers\.1\.mlp\.down_proj\.weight"):
            source.tensor("model.layers.1.mlp.down_proj.weight")


def test_a_type_that_cannot_be_dequantised_is_named(tiny_llama_folder: Path, tmp_path: Path) -> None:
    path = gguf_of(tiny_llama_folder, tmp_path / "model.gguf")
    data = path.read_bytes()
    name = b"blk.0.ffn_up.weight"
    place = data.index(name) + len(name) + 4 + 16
    changed = data[:place] + (250).to_bytes(4, "little") + data[place + 4 :]
    path.write_bytes(changed)
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.ffn_up\.weight is stored as type 250"):
        open_weights(path)


def test_a_missing_tensor_is_listed(tiny_llama_folder: Path, tmp_path: Path) -> None:
    path = gguf_of(tiny_llama_folder, tmp_path / "model.gguf")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"blk.1.attn_v.weight", b"blk.1.attn_x.weight"))
    spec = read_spec(resolve(str(path)))
    with open_weights(path) as source, pytest.raises(CorruptFile) as caught:
        source.check_complete(spec)
    assert "model.layers.1.self_attn.v_proj.weight is missing" in str(caught.value.found)


@pytest.mark.skipif(missing_reason() is not None, reason="no native module to guard the map")
def test_a_file_that_is_cut_while_it_is_read_is_an_error(
    tiny_llama_folder: Path, reads_after_truncation: Callable[[Path], dict[str, list[int]]], tmp_path: Path
) -> None:
    """Nothing is handed out once the file is shorter, and the process lives."""
    found = reads_after_truncation(gguf_of(tiny_llama_folder, tmp_path / "whole.gguf"))
    assert len(found) == 3
    for left, (refused, given, tries) in found.items():
        assert (refused, given) == (tries, 0) and tries > 20, left
