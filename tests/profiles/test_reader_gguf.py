"""The GGUF header reader: a real file, damaged and hostile ones, whole headers of planning-only architectures."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.profiles.errors import CorruptFile, TwofoldError, UnsupportedModel
from twofold.profiles.readers.byte_window import ByteWindow
from twofold.profiles.readers.gguf_header import SkippedArray, parse_gguf_header, read_gguf_header
from twofold.profiles.readers.local import read_gguf_spec
from twofold.profiles.readers.shipped import shipped_spec
from twofold.profiles.sources import read_spec, resolve

FLOAT32, UINT32, STRING, ARRAY, BOOL = 6, 4, 8, 9, 7


def test_a_file_of_another_kind_is_explained_in_plain_words(tmp_path: Path) -> None:
    for start, shown in ((b"PK\x03\x04", "bytes 50 4b 03 04"), (b"GGML", "GGML")):
        path = tmp_path / "x.gguf"
        path.write_bytes(start + bytes(32))
        with pytest.raises(CorruptFile) as caught:
            read_gguf_header(path)
        assert caught.value.found == f"it starts with {shown}"
        assert caught.value.needed == "it starts with GGUF"
        assert caught.value.hint is not None


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def field(key: str, value: Any) -> bytes:
    """One metadata entry: bool lists, numbers and strings."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, list):
        body = struct.pack("<IQ", BOOL, len(value)) + bytes(value)
        return text(key) + struct.pack("<I", ARRAY) + body
    if isinstance(value, float):
        return text(key) + struct.pack("<If", FLOAT32, value)
    return text(key) + struct.pack("<II", UINT32, value)


def header_bytes(fields: dict[str, Any], tensors: dict[str, tuple[int, ...]], type_id: int = 30) -> tuple[bytes, int]:
    """A version 3 header of 2-byte tensors (BF16), and the size of the whole file."""
    body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    body += b"".join(field(key, value) for key, value in fields.items())
    offset = 0
    for name, shape in tensors.items():
        dims = b"".join(struct.pack("<Q", n) for n in reversed(shape))
        body += text(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", type_id, offset)
        size = 2
        for n in shape:
            size *= n
        offset += -(-size // 32) * 32
    return body, -(-len(body) // 32) * 32 + offset


def sparse_file(path: Path, header: bytes, size: int) -> Path:
    """A file of `size` bytes of which only the header takes disk."""
    path.write_bytes(header)
    os.truncate(path, size)
    return path


def parse(data: bytes, size: int | None = None) -> Any:
    window = ByteWindow(lambda offset, n: data[offset : offset + n], size or len(data), "test.gguf")
    return parse_gguf_header(window)


def test_the_real_header(smollm2_gguf: Path) -> None:
    header = read_gguf_header(smollm2_gguf)
    assert (header.version, len(header.tensors), header.file_bytes) == (3, 272, 98_362_432)
    assert header.fields["llama.attention.layer_norm_rms_epsilon"] == 1e-5
    assert header.fields["tokenizer.ggml.tokens"] == SkippedArray(49_152)
    embedding = header.tensors["token_embd.weight"]
    assert (embedding.shape, embedding.type_name, embedding.n_bytes) == ((49_152, 576), "Q8_0", 49_152 * 576 * 34 // 32)
    last = max(header.tensors.values(), key=lambda info: info.offset)
    assert last.offset + (last.n_bytes or 0) == header.file_bytes


def test_arrays_are_kept_when_asked(smollm2_gguf: Path) -> None:
    tokens = read_gguf_header(smollm2_gguf, keep_arrays=True).fields["tokenizer.ggml.tokens"]
    assert len(tokens) == 49_152 and tokens[1] == "<|im_start|>"


def test_shipped_facts_and_the_header_agree(smollm2_gguf: Path) -> None:
    facts, header = read_spec(resolve("smollm2")), read_spec(resolve(str(smollm2_gguf)))
    same = ("layers", "head", "hidden_size", "vocab_size", "context_length", "tie_embeddings", "rms_eps", "activation",
            "intermediate_size", "weights_bytes", "runnable_reason", "architecture")  # fmt: skip
    assert {key: getattr(facts, key) for key in same} == {key: getattr(header, key) for key in same}
    assert header.runnable_reason is None


@pytest.mark.parametrize(
    "keep", [0, 1, 3, 4, 8, 23, 24, 100, 1000, 700_000, 1_785_000, 1_785_664, 50_000_000, 98_362_431]
)
def test_truncated_anywhere_is_corrupt(smollm2_gguf: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.gguf"
    with open(smollm2_gguf, "rb") as source:
        head = source.read(min(keep, 2_000_000))
    sparse_file(path, head, keep)
    with pytest.raises(CorruptFile) as caught:
        read_gguf_header(path)
    assert caught.value.found == f"{keep} bytes"
    assert "at least" in str(caught.value.needed)


def test_truncated_tensors_say_found_and_needed(smollm2_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    with open(smollm2_gguf, "rb") as source:
        sparse_file(path, source.read(2_000_000), 98_000_000)
    with pytest.raises(CorruptFile) as caught:
        read_gguf_header(path)
    assert caught.value.found == "98000000 bytes"
    assert str(caught.value.needed).startswith("at least 98")


def small_file() -> bytes:
    fields = {"general.architecture": "llama", "a.number": 7, "a.float": 0.5, "a.flags": [True, False, True]}
    head, size = header_bytes(fields, {"first": (8, 8), "second": (3, 2, 32)})
    return head + bytes(size - len(head))


def test_any_flipped_byte_of_a_header_gives_an_answer_or_our_error() -> None:
    good = small_file()
    assert parse(good).tensors["second"].shape == (3, 2, 32)
    refused = 0
    for place in range(len(good) - 512):
        for flip in (0x01, 0x80, 0xFF):
            data = bytearray(good)
            data[place] ^= flip
            try:
                parse(bytes(data))
            except TwofoldError:
                refused += 1
    assert refused > 300


def test_flipped_bytes_of_the_real_header(smollm2_gguf: Path) -> None:
    with open(smollm2_gguf, "rb") as source:
        head = source.read(1_785_664)
    # Counts and keys at the start, the tensor table at the end; the vocabulary between them is long and uniform.
    places = [*range(4, 24), *random.Random(0).sample(range(1_770_000, len(head)), 10)]
    refused = 0
    for place in places:
        data = bytearray(head)
        data[place] ^= 0xFF
        try:
            parse(bytes(data), 98_362_432)
        except TwofoldError:
            refused += 1
    assert refused >= 20


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=400))
def test_any_bytes_after_the_magic_are_refused_or_read(data: bytes) -> None:
    try:
        parse(b"GGUF" + struct.pack("<I", 3) + data)
    except TwofoldError as error:
        assert error.what


ONE_FIELD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a")


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"PK\x03\x04" + bytes(60), "not a GGUF"),
        (b"", "ends early"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 0), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62), "name of"),
        (ONE_FIELD + struct.pack("<IQ", STRING, 1 << 60), "ends early"),
        (ONE_FIELD + struct.pack("<IIQ", ARRAY, STRING, 1 << 60), "strings"),
        (ONE_FIELD + struct.pack("<IIQ", ARRAY, UINT32, 1 << 60), "ends early"),
        (ONE_FIELD + struct.pack("<IIQ", ARRAY, ARRAY, 2), "array of value type"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + field("a", 1) + field("a", 1), "twice"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field("general.alignment", 33), "alignment"),
        (header_bytes({}, {"t": (4, 0)})[0] + bytes(64), "shape"),
        (header_bytes({}, {"t": (1, 1, 1, 1, 1)})[0] + bytes(64), "dimensions"),
        (header_bytes({}, {"t": (4, 33)}, type_id=8)[0] + bytes(640), "whole Q8_0 blocks"),
        (header_bytes({}, {"t": (1 << 40, 1 << 40)})[0] + bytes(64), "shape"),
    ],
)  # fmt: skip
def test_hostile_headers(data: bytes, part: str) -> None:
    with pytest.raises(CorruptFile, match=part):
        parse(data)


def test_overlapping_tensors_are_refused() -> None:
    data, size = header_bytes({}, {"first": (8, 8), "second": (8, 8)})
    moved = data.replace(struct.pack("<IQ", 30, 128), struct.pack("<IQ", 30, 64))
    assert moved != data
    with pytest.raises(CorruptFile, match="overlap"):
        parse(moved + bytes(size - len(data)))


@pytest.mark.parametrize("version", [1, 4, 3 << 24])
def test_other_versions_are_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedModel):
        parse(b"GGUF" + struct.pack("<IQQ", version, 0, 0))


def test_unknown_tensor_types_have_no_size_but_the_rest_is_read() -> None:
    data, size = header_bytes({}, {"t": (4, 32)}, type_id=200)
    info = parse(data + bytes(size - len(data))).tensors["t"]
    assert (info.type_name, info.n_bytes) == ("type 200", None)


# Whole headers: tensor names and shapes come from transformers' models and the gguf package's own name table.

HYBRIDS = {
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", None),
    "gemma4": ("Gemma4TextConfig", "Gemma4ForCausalLM", "google/gemma-4-31B-it"),
    "gemma4-moe": ("Gemma4TextConfig", "Gemma4ForCausalLM", "google/gemma-4-26B-A4B-it"),
    "gemma4-shared": ("Gemma4TextConfig", "Gemma4ForCausalLM", "google/gemma-4-E4B-it"),
    "qwen35": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", "Qwen/Qwen3.5-9B"),
    "qwen35moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", "Qwen/Qwen3.5-35B-A3B"),
    "gpt-oss": ("GptOssConfig", "GptOssForCausalLM", "openai/gpt-oss-20b"),
}


def facts_of(repo: str | None) -> dict[str, Any]:
    from twofold.profiles.readers import shipped

    if repo is None:
        return {"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
                "num_key_value_heads": 1, "sliding_window": 512, "vocab_size": 262_144, "head_dim": 256}  # fmt: skip
    facts = dict(shipped._facts()[repo])
    pattern, repeats = facts["layer_types"]
    facts["layer_types"] = [kind for kind, count in pattern for _ in range(count)] * repeats
    facts.pop("rope_scaling", None)
    facts.pop("arch")
    return facts


def gguf_tensors(arch: str, config_class: str, model_class: str, facts: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    import gguf
    import torch
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, model_class)(getattr(transformers, config_class)(**facts))
    ids = {name: arch_id for arch_id, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(ids[arch], facts["num_hidden_layers"])
    tensors: dict[str, tuple[int, ...]] = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and facts.get("tie_word_embeddings", arch == "gemma3"):
            continue
        found = names.get_name(name, try_suffixes=(".weight", ".bias")) or f"other.{name}"
        tensors[found] = tuple(value.shape) or (1,)
    return tensors


def gguf_fields(arch: str, facts: dict[str, Any]) -> dict[str, Any]:
    keys = {
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.key_length": "head_dim",
        "attention.sliding_window": "sliding_window",
        "attention.shared_kv_layers": "num_kv_shared_layers",
        "embedding_length_per_layer_input": "hidden_size_per_layer_input",
        "expert_count": "num_experts",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        "ssm.conv_kernel": "linear_conv_kernel_dim",
        "ssm.state_size": "linear_key_head_dim",
        "ssm.group_count": "linear_num_key_heads",
        "ssm.time_step_rank": "linear_num_value_heads",
        "full_attention_interval": "full_attention_interval",
    }
    fields = {f"{arch}.{key}": facts[name] for key, name in keys.items() if facts.get(name) is not None}
    fields |= {"general.architecture": arch, f"{arch}.attention.layer_norm_rms_epsilon": 1e-6}
    fields.setdefault(f"{arch}.context_length", 32_768)
    if "linear_num_value_heads" in facts:
        fields[f"{arch}.ssm.inner_size"] = facts["linear_num_value_heads"] * facts["linear_value_head_dim"]
    if arch == "gpt-oss":
        fields[f"{arch}.expert_count"] = facts["num_local_experts"]
        fields[f"{arch}.expert_feed_forward_length"] = facts["intermediate_size"]
    if f"{arch}.expert_count" in fields:
        fields[f"{arch}.expert_used_count"] = facts.get("num_experts_per_tok") or facts["top_k_experts"]
    if arch == "gemma4":
        fields[f"{arch}.attention.key_length"] = facts["global_head_dim"]
        fields[f"{arch}.attention.key_length_swa"] = facts["head_dim"]
        fields[f"{arch}.attention.sliding_window_pattern"] = [k == "sliding_attention" for k in facts["layer_types"]]
    return fields


@pytest.mark.parametrize("name", HYBRIDS)
def test_headers_of_hybrids_and_sliding_models(name: str, tmp_path: Path) -> None:
    config_class, model_class, repo = HYBRIDS[name]
    arch, facts = name.split("-moe")[0].split("-shared")[0], facts_of(repo)
    tensors = gguf_tensors(arch, config_class, model_class, facts)
    head, size = header_bytes(gguf_fields(arch, facts), tensors)
    spec = read_gguf_spec(sparse_file(tmp_path / f"{name}.gguf", head, size))
    assert spec.weights_bytes == size
    assert (spec.runnable_reason is None) == (arch == "gemma3")
    if repo is None:
        assert spec.n_parameters == 999_885_952
        return
    known = shipped_spec(repo)
    assert known is not None
    assert spec.n_parameters == known.n_parameters
    cache = [(layer.kind, layer.kv_values_per_token, layer.window, layer.state_bytes) for layer in spec.layers]
    assert cache == [(layer.kind, layer.kv_values_per_token, layer.window, layer.state_bytes) for layer in known.layers]


def test_a_file_with_other_weights_than_its_metadata_says_cannot_be_estimated(tmp_path: Path) -> None:
    config_class, model_class, repo = HYBRIDS["qwen35"]
    facts = facts_of(repo)
    tensors = gguf_tensors("qwen35", config_class, model_class, facts)
    tensors["vision.weight"] = (5000, 50_000)
    head, size = header_bytes(gguf_fields("qwen35", facts), tensors)
    with pytest.raises(UnsupportedModel, match="cannot estimate"):
        read_gguf_spec(sparse_file(tmp_path / "more.gguf", head, size))


def test_unknown_architecture_cannot_be_estimated(tmp_path: Path) -> None:
    head, size = header_bytes({"general.architecture": "rwkv7"}, {"t": (4, 32)})
    with pytest.raises(UnsupportedModel, match=r"cannot estimate.*rwkv7"):
        read_gguf_spec(sparse_file(tmp_path / "rwkv.gguf", head, size))


def test_one_part_of_a_split_file_is_refused(tmp_path: Path) -> None:
    head, size = header_bytes({"general.architecture": "llama", "split.count": 3}, {"t": (4, 32)})
    with pytest.raises(UnsupportedModel, match="one of 3 parts") as caught:
        read_gguf_spec(sparse_file(tmp_path / "part.gguf", head, size))
    assert "llama-gguf-split --merge" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("type_id", "name", "row"),
    [(143, "PTQ1_0", 5120 // 128 * 28), (142, "PQ2_0", 5120 // 128 * 34), (90, "MS_V4T8", 5120 // 64 * 17),
     (91, "MS_V2T4", 5120 // 64 * 18), (92, "MS_V2T6", 5120 // 128 * 50), (93, "MS_I3", 5120 // 128 * 49)],
)  # fmt: skip
def test_types_of_forks_have_their_sizes(type_id: int, name: str, row: int) -> None:
    data, size = header_bytes({"general.architecture": "qwen35"}, {"w": (16, 5120)}, type_id)
    info = parse(data + bytes(size - len(data))).tensors["w"]
    assert (info.type_name, info.n_bytes) == (name, 16 * row)
    odd, size = header_bytes({"general.architecture": "qwen35"}, {"w": (16, 5000)}, type_id)
    with pytest.raises(CorruptFile, match="not whole"):
        parse(odd + bytes(size - len(odd)))
