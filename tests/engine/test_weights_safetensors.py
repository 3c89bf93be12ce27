"""Safetensors folders: values equal to safetensors' own, and damaged folders refused before a value is read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine.weights import open_weights
from twofold.kernels.cpu import missing_reason
from twofold.profiles.errors import CorruptFile, ModelNotFound, UnsafeFile, UnsupportedModel
from twofold.profiles.sources import read_spec, resolve


def copy_of(folder: Path, place: Path) -> Path:
    shutil.copytree(folder, place)
    return place


def rewrite(path: Path, change: Any) -> None:
    """Apply `change` to the header of a safetensors file, the data unchanged."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def sharded(folder: Path, place: Path) -> Path:
    """The same model saved in several shards with an index."""
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(place, max_shard_size="200KB")
    assert len(list(place.glob("*.safetensors"))) > 2
    return place


def test_every_tensor_equals_what_safetensors_reads(tiny_folder: Path) -> None:
    from safetensors.numpy import load_file

    expected = load_file(tiny_folder / "model.safetensors")
    with open_weights(tiny_folder) as source:
        source.check_complete(read_spec(resolve(str(tiny_folder))))
        assert set(source.names()) == set(expected)
        for name, values in expected.items():
            found = source.tensor(name)
            assert found.dtype == np.float32
            assert np.array_equal(found, values)
        assert source.dtype_note() == "float32"


def test_tied_head_is_the_embedding(tiny_qwen2_folder: Path) -> None:
    with open_weights(tiny_qwen2_folder) as source:
        assert source.tied and "lm_head.weight" not in source.names()
        assert np.array_equal(source.tensor("lm_head.weight"), source.tensor("model.embed_tokens.weight"))


def test_rows_are_those_of_the_whole_tensor(tiny_qwen2_folder: Path) -> None:
    names = ("lm_head.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias")
    with open_weights(tiny_qwen2_folder) as source:
        for name in names:
            whole = source.tensor(name)
            for rows in (slice(0, 16), slice(5, 31), slice(30, 1000), slice(0, 0), np.array([7, 0, 7, 29])):
                found = source.rows(name, rows)
                assert np.array_equal(found, whole[rows])
                assert found.flags.writeable and found.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_widened_exactly(tiny_llama_folder: Path, tmp_path: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = copy_of(tiny_llama_folder, tmp_path / "half")
    tensors = {name: value.to(getattr(torch, dtype)) for name, value in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    with open_weights(folder) as source:
        assert source.dtype_note() == dtype
        for name, value in tensors.items():
            assert np.array_equal(source.tensor(name), value.float().numpy())


def test_shards_through_the_index(tiny_llama_folder: Path, tmp_path: Path) -> None:
    folder = sharded(tiny_llama_folder, tmp_path / "sharded")
    with open_weights(folder) as source, open_weights(tiny_llama_folder) as single:
        assert set(source.names()) == set(single.names())
        for name in source.names():
            assert np.array_equal(source.tensor(name), single.tensor(name))
        assert source.sha256() != single.sha256()
        assert len(source.sha256()) == 64


def test_sha256_of_one_file_is_the_file(tiny_llama_folder: Path) -> None:
    with open_weights(tiny_llama_folder) as source:
        data = (tiny_llama_folder / "model.safetensors").read_bytes()
        assert source.sha256() == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9999])
def test_truncated_shard_is_found_before_use(tiny_llama_folder: Path, tmp_path: Path, share: float) -> None:
    folder = sharded(tiny_llama_folder, tmp_path / "cut")
    shard = max(folder.glob("*.safetensors"))
    size = shard.stat().st_size
    os.truncate(shard, int(size * share))
    with pytest.raises(CorruptFile) as caught:
        open_weights(folder)
    assert caught.value.found == f"{int(size * share)} bytes"


def test_missing_shard(tiny_llama_folder: Path, tmp_path: Path) -> None:
    folder = sharded(tiny_llama_folder, tmp_path / "gone")
    sorted(folder.glob("*.safetensors"))[1].unlink()
    with pytest.raises(CorruptFile, match="lacks the shard"):
        open_weights(folder)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "model.bin"])
def test_index_may_not_point_elsewhere(tiny_llama_folder: Path, tmp_path: Path, shard: str) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "index")
    index = {"weight_map": {"model.norm.weight": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptFile, match="outside the folder"):
        open_weights(folder)


def test_index_and_shards_disagree(tiny_llama_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "index")
    index = {"weight_map": {"model.ghost.weight": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptFile, match=r"disagree") as caught:
        open_weights(folder)
    assert "model.ghost.weight" in str(caught.value.found)


def _oversized(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["data_offsets"][1] += 1 << 40


def _wrong_shape(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["shape"] = [97]


def _overlap(header: dict[str, Any]) -> None:
    low, _ = header["model.embed_tokens.weight"]["data_offsets"]
    entry = header["model.norm.weight"]
    entry["data_offsets"] = [low + 4, low + 4 + entry["data_offsets"][1] - entry["data_offsets"][0]]


def _negative(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["data_offsets"] = [-4, 380]


def _unknown_dtype(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["dtype"] = "F12"


def _incomplete(header: dict[str, Any]) -> None:
    del header["model.norm.weight"]["shape"]


def _bool_shape(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["shape"] = [96, True]


@pytest.mark.parametrize(
    "change", [_oversized, _wrong_shape, _overlap, _negative, _unknown_dtype, _incomplete, _bool_shape]
)
def test_damaged_headers(tiny_llama_folder: Path, tmp_path: Path, change: Any) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "bad")
    rewrite(folder / "model.safetensors", change)
    with pytest.raises(CorruptFile, match=r"model\.safetensors"):
        open_weights(folder)


@pytest.mark.parametrize("data", [b"", b"\x01", struct.pack("<Q", 1 << 60), struct.pack("<Q", 5) + b"[1,2]"])
def test_not_a_safetensors_file(tiny_llama_folder: Path, tmp_path: Path, data: bytes) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "bad")
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(CorruptFile):
        open_weights(folder)


def test_integer_weights_are_unsupported_when_read(tiny_llama_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "int")
    rewrite(folder / "model.safetensors", lambda header: header["model.norm.weight"].update(dtype="I32"))
    with open_weights(folder) as source, pytest.raises(UnsupportedModel, match=r"model\.norm\.weight.*I32"):
        source.tensor("model.norm.weight")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_name_the_tensor(tiny_llama_folder: Path, tmp_path: Path, value: float) -> None:
    from safetensors.numpy import load_file, save_file

    folder = copy_of(tiny_llama_folder, tmp_path / "nan")
    tensors = {name: array.copy() for name, array in load_file(folder / "model.safetensors").items()}
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = value
    save_file(tensors, folder / "model.safetensors")
    with open_weights(folder) as source:
        source.tensor("model.layers.0.mlp.up_proj.weight")
        with pytest.raises(CorruptFile, match=r"model\.layers\.1\.mlp\.up_proj\.weight") as caught:
            source.tensor("model.layers.1.mlp.up_proj.weight")
        assert caught.value.found == "1 of 15360 are NaN or infinite"


def test_missing_and_misshapen_tensors_are_listed(tiny_llama_folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = copy_of(tiny_llama_folder, tmp_path / "less")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].copy()
    save_file(tensors, folder / "model.safetensors")
    with open_weights(folder) as source:
        with pytest.raises(CorruptFile) as caught:
            source.check_complete(read_spec(resolve(str(folder))))
        with pytest.raises(CorruptFile, match="lacks the tensor"):
            source.tensor("model.layers.1.self_attn.k_proj.weight")
    assert "model.layers.1.self_attn.k_proj.weight is missing" in str(caught.value.found)
    assert "model.norm.weight is [95] instead of [96]" in str(caught.value.found)


def test_several_files_without_an_index(tiny_llama_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "two")
    shutil.copy(folder / "model.safetensors", folder / "other.safetensors")
    with pytest.raises(CorruptFile, match="no index"):
        open_weights(folder)


def test_folder_without_weights(tiny_llama_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "none")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match="no weights"):
        open_weights(folder)


def test_pickles_are_refused(tiny_llama_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "pickle")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsafeFile, match="pickled"):
        open_weights(folder)


@pytest.mark.parametrize(("method", "what"), [("gptq", "quantised with 'gptq'"), ("twofold", "already split")])
def test_quantised_folders_are_no_source(tiny_llama_folder: Path, tmp_path: Path, method: str, what: str) -> None:
    folder = copy_of(tiny_llama_folder, tmp_path / "quantised")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=what):
        open_weights(folder)


@pytest.mark.skipif(missing_reason() is not None, reason="no native module to guard the map")
def test_a_file_that_is_cut_while_it_is_read_is_an_error(
    tiny_llama_folder: Path, reads_after_truncation: Callable[[Path], dict[str, list[int]]]
) -> None:
    """Nothing is handed out once the file is shorter, and the process lives."""
    found = reads_after_truncation(tiny_llama_folder)
    assert len(found) == 3
    for left, (refused, given, tries) in found.items():
        assert (refused, given) == (tries, 0) and tries > 20, left
