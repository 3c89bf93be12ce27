"""`ModelRef`: what a person meant by MODEL, before anything is read or fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["hub", "folder", "gguf", "checkpoint"]


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A resolved MODEL.

    `name` is a slug that can name a folder and that no other model has. `path` is the local folder or file (None for
    `hub`, and for an alias, whose place is the cache). `repo` and `revision` name a Hub model, `file` one GGUF file in
    it. `alias` is set where the text was an alias.
    """

    kind: Kind
    text: str
    name: str
    path: Path | None = None
    repo: str | None = None
    revision: str | None = None
    alias: str | None = None
    file: str | None = None


def local_name(kind: Kind, path: Path) -> str:
    """What a local model is called: its folder, or its file without the suffix."""
    return path.stem if kind == "gguf" else path.resolve().name


def slug(text: str) -> str:
    """A name for a folder: letters, digits, dots, dashes, underscores; never empty, hidden or longer than 96."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return cleaned[:96] or "model"
