"""The files beside a tokenizer.json: reading, writing and copying them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.profiles.errors import CorruptFile
from twofold.profiles.files import write_atomically
from twofold.profiles.readers.local import read_json_object

COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
MAX_CONFIG_BYTES = 64 << 20
MAX_TEMPLATE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TextFiles:
    """`end_ids`: the end tokens that generation_config.json or, without it, config.json declare."""

    tokenizer_config: dict[str, Any]
    generation_config: dict[str, Any]
    chat_template: str | None
    end_ids: Sequence[int] = ()


def read_folder(folder: Path) -> TextFiles:
    """What `folder` says; missing files are empty.

    Raises:
        CorruptFile: a file that is there and cannot be parsed.
    """
    config = _read_object(folder / "tokenizer_config.json")
    names = _read_object(folder / "special_tokens_map.json")
    generation = _read_object(folder / "generation_config.json")
    declared = generation if "eos_token_id" in generation else _read_object(folder / "config.json")
    return TextFiles(
        tokenizer_config={**names, **config},
        generation_config=generation,
        chat_template=_template(folder, config),
        end_ids=_ids(declared.get("eos_token_id")),
    )


def write_folder(folder: Path, *, tokenizer_json: str, files: TextFiles) -> None:
    """Write the files of a tokenizer into `folder`."""
    write_atomically(folder / "tokenizer.json", tokenizer_json)
    config = {key: value for key, value in files.tokenizer_config.items() if key != "chat_template"}
    write_atomically(folder / "tokenizer_config.json", _dump(config))
    generation = {key: value for key, value in files.generation_config.items() if value is not None}
    write_atomically(folder / "generation_config.json", _dump(generation))
    if files.chat_template is not None:
        write_atomically(folder / "chat_template.jinja", files.chat_template)


def copy_folder(source: Path, folder: Path) -> None:
    """Copy the text files that `source` has into `folder`, byte for byte."""
    for name in COPIED:
        if (source / name).is_file():
            write_atomically(folder / name, (source / name).read_bytes())
    files = read_folder(source)
    if files.chat_template is not None and not (source / "chat_template.jinja").is_file():
        write_atomically(folder / "chat_template.jinja", files.chat_template)


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _read_object(file: Path) -> dict[str, Any]:
    return read_json_object(file, most_bytes=MAX_CONFIG_BYTES) if file.is_file() else {}


def _ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    """The chat template: its own file first, then tokenizer_config.json, where several may be named."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        if file.stat().st_size > MAX_TEMPLATE_BYTES:
            raise CorruptFile(f"{file} is too large for a chat template", found=f"{file.stat().st_size} bytes")
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CorruptFile(f"{file} is not UTF-8 text", hint="get the file again") from error
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None
