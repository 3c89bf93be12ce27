"""Specs of models on this disk: a GGUF file, a Hugging Face folder, an own checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twofold.profiles.errors import CorruptFile
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config

MAX_CONFIG_BYTES = 16 << 20


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a small file.

    Raises:
        CorruptFile: too large, not UTF-8, not JSON, or not an object.
    """
    size = path.stat().st_size
    if size > MAX_CONFIG_BYTES:
        raise CorruptFile(f"{path.name} is too large", found=f"{size} bytes", needed=f"at most {MAX_CONFIG_BYTES}")
    return parse_json_object(path.read_bytes(), path.name)


def parse_json_object(data: bytes, name: str) -> dict[str, Any]:
    """Like `read_json_object`, from bytes."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{name} is not JSON: {error}", hint="get the file again") from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{name} is not a JSON object", found=type(value).__name__)
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
    from twofold.profiles.readers.gguf_config import config_from_gguf
    from twofold.profiles.readers.gguf_header import read_gguf_header

    header = read_gguf_header(path)
    return spec_from_config(
        config_from_gguf(header),
        name=name or path.stem,
        facts_source=f"GGUF header of {path.name}",
        weights_bytes=header.file_bytes,
    )


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


def is_own_checkpoint(config: dict[str, Any]) -> bool:
    quantization = config.get("quantization_config")
    return isinstance(quantization, dict) and quantization.get("quant_method") == "twofold"
