"""The checkpoint format: round trips through the writer, and every way in which a folder can be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from twofold.engine.checkpoint import Checkpoint, CheckpointConfig
from twofold.engine.checkpoint.mapped import MappedTensors
from twofold.engine.checkpoint.writer import finish, layer_is_written, update_measured
from twofold.profiles.errors import CorruptFile, ModelNotFound, TwofoldError, UnsupportedModel

Make = Callable[..., Path]


def edit_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "config.json"
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize("bits", [4, 5, 6, 7, 8])
def test_what_was_written_is_read(make_checkpoint: Make, bits: int) -> None:
    folder = make_checkpoint(residual_bits=bits, quantization={"overrides": {"lm_head": 8}})
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.config.residual_bits == bits
    weights = checkpoint.weights()
    assert list(weights) == [group.name for group in checkpoint.spec.groups]
    assert weights["lm_head"].residual_bits == 8 and weights["lm_head"].output_signs is None
    qkv = weights["model.layers.1.self_attn.qkv"]
    assert qkv.member_rows == (72, 24, 24) and qkv.residual_bits == bits
    assert qkv.mix_in is not None and qkv.mix_in.shape == (9, 9)
    stored = load_file(folder / "residual-00002-of-00003.safetensors")
    assert np.array_equal(qkv.residual_codes, stored["model.layers.1.self_attn.qkv.residual_codes"])
    assert checkpoint.dense("model.embed_tokens.weight").dtype == np.float16
    assert checkpoint.mapped_bytes == sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def test_tensors_are_views_of_the_file(make_checkpoint: Make) -> None:
    weights = Checkpoint.open(make_checkpoint()).group("model.layers.0.mlp.down")
    for array in (weights.base_codes, weights.residual_codes, weights.residual_scales):
        assert not array.flags.owndata and not array.flags.writeable and array.flags.aligned


def test_biases_and_head_norms_are_kept(make_checkpoint: Make) -> None:
    biased = Checkpoint.open(make_checkpoint(name="qwen2", model_type="qwen2"))
    assert biased.group("model.layers.0.self_attn.qkv").bias is not None
    assert biased.group("model.layers.0.self_attn.o").bias is None
    normed = Checkpoint.open(make_checkpoint(name="qwen3", model_type="qwen3"))
    assert normed.dense("model.layers.0.self_attn.q_norm.weight").shape == (12,)


def test_the_index_names_every_tensor(make_checkpoint: Make) -> None:
    folder = make_checkpoint()
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for name, file in index["weight_map"].items():
        assert name in MappedTensors(folder / file).entries
    total = sum(load_file(path)[name].nbytes for path in folder.glob("*.safetensors") for name in load_file(path))
    assert index["metadata"]["total_size"] == total


def test_config_round_trip() -> None:
    config = CheckpointConfig(
        residual_bits=5,
        group_size=64,
        base_levels=(-100, -30, 31, 99),
        base_planes=1,
        overrides={"lm_head": 8},
        exchange_dtype="float16",
        seed=7,
        source={"name": "x"},
        calibration={"id": "shipped"},
        tokenizer_sha256="ab",
        measured={"kl": 0.1},
    )
    assert CheckpointConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert config.bits_of("lm_head") == 8 and config.bits_of("model.layers.0.mlp.down") == 5


BAD_CONFIGS: dict[str, Callable[[dict[str, Any]], None]] = {
    "unknown field": lambda q: q.update(surprise=1),
    "missing field": lambda q: q.pop("group_size"),
    "bits": lambda q: q["residual"].update(bits=9),
    "boolean": lambda q: q["residual"].update(planes=True),
    "override": lambda q: q["residual"].update(overrides={"lm_head": 3}),
    "levels": lambda q: q["base"].update(levels=[-127, -38, 38]),
    "level order": lambda q: q["base"].update(levels=[38, -38, 127, -127]),
    "level size": lambda q: q["base"].update(levels=[-128, -38, 38, 127]),
    "group size": lambda q: q.update(group_size=24),
    "large groups": lambda q: q.update(group_size=512),
    "exchange": lambda q: q.update(exchange_dtype="int8"),
    "base": lambda q: q.update(base=[]),
    "seed": lambda q: q.update(seed=-1),
    "measured": lambda q: q.update(measured=3),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_a_config_that_breaks_the_format_is_refused(case: str) -> None:
    data = CheckpointConfig(residual_bits=6).to_json()
    BAD_CONFIGS[case](data)
    with pytest.raises(CorruptFile):
        CheckpointConfig.from_json(data)


def test_another_version_or_method_is_named(make_checkpoint: Make) -> None:
    folder = make_checkpoint()
    edit_config(folder, lambda whole: whole["quantization_config"].update(version=2))
    with pytest.raises(UnsupportedModel) as error:
        Checkpoint.open(folder)
    assert (error.value.found, error.value.needed) == ("2", "1") and error.value.hint
    edit_config(folder, lambda whole: whole["quantization_config"].update(quant_method="gptq"))
    with pytest.raises(UnsupportedModel) as error:
        Checkpoint.open(folder)
    assert error.value.found == "'gptq'"


def test_folders_that_are_no_checkpoints(tmp_path: Path, make_checkpoint: Make) -> None:
    with pytest.raises(ModelNotFound):
        Checkpoint.open(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorruptFile, match="not a twofold checkpoint"):
        Checkpoint.open(tmp_path / "empty")
    folder = make_checkpoint()
    edit_config(folder, lambda whole: whole.pop("quantization_config"))
    with pytest.raises(UnsupportedModel, match="not a twofold checkpoint"):
        Checkpoint.open(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CorruptFile, match="unfinished") as error:
        Checkpoint.open(folder)
    assert error.value.hint is not None and "twofold quantize" in error.value.hint
    (folder / "config.json").write_text("{not json")
    with pytest.raises(CorruptFile):
        Checkpoint.open(folder)


def test_an_architecture_without_a_graph_is_refused(make_checkpoint: Make) -> None:
    folder = make_checkpoint()
    edit_config(folder, lambda whole: whole.update(hidden_act="gelu"))
    with pytest.raises(UnsupportedModel, match="gelu"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("file", ["residual-00001-of-00003.safetensors", "dense.safetensors"])
@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_shard_is_named_with_its_size(make_checkpoint: Make, file: str, kept: int) -> None:
    folder = make_checkpoint()
    path = folder / file
    size = path.stat().st_size
    os.truncate(path, kept if kept >= 0 else size - 1)
    with pytest.raises(CorruptFile, match="truncated") as error:
        Checkpoint.open(folder)
    assert path.name in str(error.value) and error.value.found and "bytes" in error.value.found
    if kept == -1:
        assert (error.value.found, error.value.needed) == (f"{size - 1} bytes", f"{size} bytes")


def _rewrite(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    tensors = dict(load_file(path))
    change(tensors)
    save_file(tensors, path)


def test_missing_or_misshapen_tensors_are_named(make_checkpoint: Make) -> None:
    folder = make_checkpoint()
    path, name = folder / "base-00001-of-00003.safetensors", "model.layers.0.mlp.down.base_scales"
    good = path.read_bytes()
    _rewrite(path, lambda tensors: tensors.pop(name))
    with pytest.raises(CorruptFile, match=f"lacks the tensor {name}"):
        Checkpoint.open(folder)
    path.write_bytes(good)
    _rewrite(path, lambda tensors: tensors.update({name: tensors[name].astype(np.float32)}))
    with pytest.raises(CorruptFile) as error:
        Checkpoint.open(folder)
    assert error.value.found is not None and error.value.found.startswith("F32")
    path.unlink()
    with pytest.raises(CorruptFile, match="lacks base-00001"):
        Checkpoint.open(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[]",
        b'{"a": 3}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-8, -4]}}',
    ],
)
def test_damaged_headers(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(CorruptFile):
        MappedTensors(path)


def test_a_huge_header_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(CorruptFile, match="not a safetensors file"):
        MappedTensors(path)


def test_only_a_finished_layer_counts(make_checkpoint: Make) -> None:
    folder = make_checkpoint()
    assert layer_is_written(folder, 2, 3)
    (folder / "residual-00003-of-00003.safetensors").unlink()
    assert not layer_is_written(folder, 2, 3)


def test_measurements_can_be_added_later(make_checkpoint: Make) -> None:
    folder = make_checkpoint()
    update_measured(folder, {"kl": 0.25})
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.config.measured == {"kl": 0.25}


def test_an_interrupted_finish_leaves_an_unfinished_checkpoint(
    make_checkpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint()
    (folder / "config.json").unlink()

    def interrupt(source: Any, target: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        finish(folder, {}, CheckpointConfig(residual_bits=6))
    assert not [path for path in folder.iterdir() if path.name.endswith(".part")]
    with pytest.raises(TwofoldError, match="unfinished"):
        Checkpoint.open(folder)
