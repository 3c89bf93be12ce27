"""Specs of models on this disk: a GGUF file, a Hugging Face folder, an own checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.errors import CorruptFile, UnsupportedModel
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config

if TYPE_CHECKING:
    from twofold.profiles.readers.gguf_header import GgufHeader

MAX_CONFIG_BYTES = 16 << 20
# Factors of scaled RoPE and the like; a missing projection is far more.
WEIGHT_COUNT_TOLERANCE = 0.001


def read_json_object(path: Path, *, most_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """A JSON object from a file of at most `most_bytes`.

    Raises:
        CorruptFile: too large, not UTF-8, not JSON, or not an object.
    """
    size = path.stat().st_size
    if size > most_bytes:
        raise CorruptFile(
            f"{path.name} is too large",
            found=f"{size} bytes",
            needed=f"at most {most_bytes} bytes",
            hint="get the file again",
        )
    return parse_json_object(path.read_bytes(), path.name)


def parse_json_object(data: bytes, name: str) -> dict[str, Any]:
    """Like `read_json_object`, from bytes."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{name} is not JSON: {error}", hint="get the file again") from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{name} is not a JSON object", found=type(value).__name__, hint="get the file again")
    return value


def read_config(path: Path) -> dict[str, Any]:
    """The Hugging Face configuration of a model folder or a GGUF file (translated from its header)."""
    if path.is_file():
        from twofold.profiles.readers.gguf_config import config_from_gguf
        from twofold.profiles.readers.gguf_header import read_gguf_header

        return config_from_gguf(read_gguf_header(path))
    return read_json_object(path / "config.json")


def read_gguf_spec(path: Path, *, name: str | None = None) -> ModelSpec:
    """The spec of a GGUF file from its header."""
    from twofold.profiles.readers.gguf_header import read_gguf_header

    header = read_gguf_header(path)
    return spec_of_gguf_header(header, name=name or path.stem, facts_source=f"GGUF header of {path.name}")


def spec_of_gguf_header(header: GgufHeader, *, name: str, facts_source: str) -> ModelSpec:
    """The spec of a parsed header, checked against the number of weights that the header lists.

    Raises:
        UnsupportedModel: the architecture is not understood, or the file holds other weights than it should.
    """
    from twofold.profiles.readers.gguf_config import config_from_gguf

    spec = spec_from_config(
        config_from_gguf(header), name=name, facts_source=facts_source, weights_bytes=header.file_bytes
    )
    listed = sum(info.n_values for info in header.tensors.values())
    # A draft head may come with an embedding of its own.
    with_head = spec.n_parameters + spec.draft_head_weights
    expected = (spec.n_parameters, with_head, with_head + spec.vocab_size * spec.hidden_size)
    if min(abs(listed - n) / n for n in expected) > WEIGHT_COUNT_TOLERANCE:
        raise UnsupportedModel(
            f"cannot estimate {name}: the file's tensors are not those of a known {spec.architecture} model",
            found=f"{listed / 1e9:.3f} billion weights",
            needed=f"{spec.n_parameters / 1e9:.3f} billion by its metadata",
        )
    return spec


def read_folder_spec(path: Path, *, name: str | None = None) -> ModelSpec:
    """The spec of a Hugging Face folder or of an own checkpoint from its `config.json`."""
    config = read_json_object(path / "config.json")
    own = is_own_checkpoint(config)
    sizes = [file.stat().st_size for file in path.glob("*.safetensors")]
    return spec_from_config(
        config,
        name=name or path.name,
        facts_source=f"config.json of {'the twofold checkpoint' if own else 'the folder'} {path.name}",
        weights_bytes=sum(sizes) if sizes else None,
    )


def check_shards(path: Path) -> None:
    """Read the header of every safetensors file of a folder, and look for those that its index names.

    Raises:
        CorruptFile: a file that is missing, truncated or damaged.
    """
    from twofold.profiles.readers.safetensors_header import read_safetensors_header

    files = {file.name: file for file in sorted(path.glob("*.safetensors"))}
    index = path / "model.safetensors.index.json"
    if index.is_file():
        weight_map = read_json_object(index).get("weight_map")
        named = set(weight_map.values()) if isinstance(weight_map, dict) else set()
        if not named or not all(isinstance(name, str) for name in named):
            raise CorruptFile(f"{index.name} has no usable weight_map", hint="get the file again")
        missing = sorted(named - set(files))
        if missing:
            raise CorruptFile(
                f"{path.name} lacks weights",
                found=f"no {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
                needed=f"the {len(named)} files of {index.name}",
                hint="get the model again",
            )
    for file in files.values():
        read_safetensors_header(file)


def is_own_checkpoint(config: dict[str, Any]) -> bool:
    quantization = config.get("quantization_config")
    return isinstance(quantization, dict) and quantization.get("quant_method") == "twofold"
