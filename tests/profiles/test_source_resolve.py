"""What MODEL may be: aliases, paths, Hub ids; and what everything else is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twofold.profiles.errors import (
    CorruptFile,
    InvalidOption,
    ModelNotFound,
    TwofoldError,
    UnsafeFile,
    UnsupportedModel,
)
from twofold.profiles.settings import checkpoints_dir
from twofold.profiles.sources import download_bytes, fetch, read_spec, resolve

TWOFOLD = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
           "num_attention_heads": 2, "quantization_config": {"quant_method": "twofold", "version": 1}}  # fmt: skip


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(TWOFOLD))
    (folder / "dense.safetensors").write_bytes(bytes(100))
    return folder


@pytest.mark.parametrize("text", ["smollm2", "SmolLM2", " smollm2 "])
def test_alias(text: str) -> None:
    ref = resolve(text)
    assert (ref.kind, ref.name, ref.alias, ref.path) == ("gguf", "smollm2", "smollm2", None)
    assert read_spec(ref).n_parameters == 134_515_008


@pytest.mark.parametrize(
    ("text", "repo", "revision", "file"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", None, None),
        ("org/name@v1.0", "org/name", "v1.0", None),
        ("org/name@refs/pr/3", "org/name", "refs/pr/3", None),
        ("org/name-GGUF/name-Q8_0.gguf", "org/name-GGUF", None, "name-Q8_0.gguf"),
        ("https://huggingface.co/org/name", "org/name", None, None),
    ],
)
def test_hub_ids(text: str, repo: str, revision: str | None, file: str | None) -> None:
    ref = resolve(text)
    assert (ref.kind, ref.repo, ref.revision, ref.file, ref.path) == ("hub", repo, revision, file, None)


def test_folder_gguf_and_checkpoint(tiny_llama_folder: Path, smollm2_gguf: Path, tmp_path: Path) -> None:
    own = checkpoint(tmp_path / "mine")
    kinds = [resolve(str(path)).kind for path in (tiny_llama_folder, smollm2_gguf, own)]
    assert kinds == ["folder", "gguf", "checkpoint"]
    ref = resolve(str(tiny_llama_folder))
    assert (fetch(ref), download_bytes(ref).value) == (tiny_llama_folder, 0)
    spec = read_spec(resolve(str(own)))
    assert "twofold checkpoint" in spec.facts_source
    assert spec.weights_bytes == 100


def test_models_of_one_name_in_two_places_keep_apart(tmp_path: Path) -> None:
    names = set()
    for place in ("a", "b"):
        folder = tmp_path / place / "model"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(TWOFOLD | {"quantization_config": None}))
        ref = resolve(str(folder))
        assert read_spec(ref).name == "model" and ref.name.startswith("model-")
        assert resolve(f"{folder}/").name == ref.name
        names.add(ref.name)
    assert len(names | {resolve("org1/model").name, resolve("org2/model").name}) == 4


def test_a_checkpoint_by_its_name_in_the_list() -> None:
    folder = checkpoint(checkpoints_dir() / "tiny-6bit")
    ref = resolve("tiny-6bit")
    assert (ref.kind, ref.path, ref.name) == ("checkpoint", folder, "tiny-6bit")


def test_a_folder_with_one_gguf_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "mmproj-model.gguf").write_bytes(b"GGUF")
    assert resolve(str(tmp_path)).path == tmp_path / "model.gguf"
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match="2 GGUF files"):
        resolve(str(tmp_path))


def test_a_local_folder_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name").kind == "checkpoint"
    assert resolve("org/name").name == "name"


def test_every_tiny_folder_is_runnable_and_counts_its_weights(tiny_folder: Path) -> None:
    from safetensors.numpy import load_file

    spec = read_spec(resolve(str(tiny_folder)))
    stored = sum(values.size for values in load_file(tiny_folder / "model.safetensors").values())
    assert spec.runnable_reason is None
    assert spec.n_parameters == stored


@pytest.mark.parametrize("text", ["", "   ", "a\x00b", "smol\nlm", "x" * 5000, "a\x1b[31m"])
def test_unusable_names(text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        resolve(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["../../etc", "org/../name", "../org/name", "org/name@../x", "/no/such/folder", "./nothing", "~/nothing-here",
     "org/..", "a/b/c", "org/", "/", "nosuch.gguf", "dir/model.bin", "org/na--me", "-x/y", "org/name@", "org/na me"],
)  # fmt: skip
def test_not_a_model(text: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        resolve(text)
    assert isinstance(caught.value, ModelNotFound | CorruptFile | UnsupportedModel)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("text", "meant"),
    [("smolm2", "smollm2"), ("gemma-4-31b-it", "google/gemma-4-31B-it"), ("Qwen3.5-9", "Qwen/Qwen3.5-9B")],
)
def test_the_nearest_names_are_suggested(text: str, meant: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve(text)
    assert meant in str(caught.value.hint)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "weights.ckpt"])
def test_pickles(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TWOFOLD | {"quantization_config": None}))
    (tmp_path / name).write_bytes(b"\x80\x02")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(UnsafeFile) as caught:
            resolve(str(path))
        assert "safetensors" in str(caught.value.hint)


def test_a_folder_of_something_else_says_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve(str(tmp_path))
    assert caught.value.found == "an empty folder"
    for index in range(9):
        (tmp_path / f"photo{index}.jpg").write_bytes(b"")
    with pytest.raises(ModelNotFound, match="not a model folder") as caught:
        resolve(str(tmp_path))
    assert "photo0.jpg" in str(caught.value.found) and "and 3 more" in str(caught.value.found)
    assert "config.json" in str(caught.value.needed)


def test_an_unfinished_quantisation_is_named(tmp_path: Path) -> None:
    (tmp_path / "base-00001-of-00031.safetensors").write_bytes(b"")
    with pytest.raises(CorruptFile, match="unfinished quantisation") as caught:
        resolve(str(tmp_path))
    assert "prune" in str(caught.value.hint)


def test_files_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(CorruptFile, match="not a model"):
        resolve(str(tmp_path / "a.txt"))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UnsupportedModel) as caught:
        resolve(str(tmp_path / "model.safetensors"))
    assert str(tmp_path) in str(caught.value.hint)


@pytest.mark.parametrize(
    "config",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"model_type": 3}', b"{}", b'{"model_type": "llama"}', b"[" * 100_000,
     json.dumps({**TWOFOLD, "num_hidden_layers": 10**9}).encode(), json.dumps({**TWOFOLD, "hidden_size": -1}).encode(),
     json.dumps({**TWOFOLD, "vocab_size": "many"}).encode(), json.dumps({**TWOFOLD, "rms_norm_eps": 0}).encode(),
     json.dumps({**TWOFOLD, "num_key_value_heads": 3}).encode(), json.dumps({**TWOFOLD, "rope_scaling": 3}).encode(),
     b'{"model_type": "llama", "hidden_size": NaN}', b'{"model_type": "llama", "hidden_size": 1e400}'],
)  # fmt: skip
def test_damaged_configurations(tmp_path: Path, config: bytes) -> None:
    (tmp_path / "config.json").write_bytes(config)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CorruptFile) as caught:
        read_spec(resolve(str(tmp_path)))
    assert "config" in caught.value.what


def test_unknown_architectures_cannot_be_estimated(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "rwkv7"}))
    with pytest.raises(UnsupportedModel, match=r"cannot estimate .*rwkv7"):
        read_spec(resolve(str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"partial_rotary_factor": 0.5}, "whole heads"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, None),
        ({"model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": 4096}, None),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "mistral", "sliding_window": 512, "max_position_embeddings": 4096}, None),
        ({"model_type": "mistral", "max_position_embeddings": 8192}, None),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": False}, None),
    ],
)
def test_what_the_engine_cannot_run_says_why(tmp_path: Path, changes: dict[str, object], reason: str | None) -> None:
    config = {**TWOFOLD, "quantization_config": None, **changes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    found = read_spec(resolve(str(tmp_path))).runnable_reason
    assert (found is None) if reason is None else (found is not None and reason in found)
