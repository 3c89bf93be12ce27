"""Saved conversations: one JSON file, readable by its owner only, written whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twofold.engine.sampling import SamplingParams
from twofold.engine.session.history import History, Turn
from twofold.profiles.errors import CorruptFile
from twofold.profiles.files import write_atomically
from twofold.profiles.problems import problem_words

SCHEMA_VERSION: Literal[1] = 1
MAX_FILE_BYTES = 64 << 20


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SavedTurn(_Strict):
    role: Literal["user", "assistant"]
    content: str
    thinking: str = ""


class SavedParams(_Strict):
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int


class SavedSession(_Strict):
    """`first_in_prompt`: turns before it had left the prompt."""

    schema_version: Literal[1] = SCHEMA_VERSION
    model: str
    system: str | None
    params: SavedParams
    first_in_prompt: Annotated[int, Field(ge=0)]
    turns: list[SavedTurn]

    def history(self) -> History:
        return History(self.system, [Turn(t.role, t.content, t.thinking) for t in self.turns], self.first_in_prompt)

    def sampling(self) -> SamplingParams:
        return SamplingParams(**self.params.model_dump())


def write_session(path: Path, model: str, history: History, params: SamplingParams) -> None:
    """Save a conversation with permissions 0600."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": model,
        "system": history.system,
        "params": asdict(params),
        "first_in_prompt": history.first,
        "turns": [asdict(turn) for turn in history.turns],
    }
    write_atomically(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n", mode=0o600)


def read_session(path: Path) -> SavedSession:
    """Load a conversation.

    Raises:
        CorruptFile: not a saved conversation of this schema.
        OSError: the file is not there or cannot be read.
    """
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise CorruptFile(f"{path} is too large for a conversation", found=f"{size} bytes", needed=f"{MAX_FILE_BYTES}")
    try:
        saved = SavedSession.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CorruptFile(
            f"{path} is not a saved conversation: {where}: {problem_words(first)}", hint="/save FILE writes one"
        ) from error
    roles = [turn.role for turn in saved.turns]
    if roles != [("user", "assistant")[i % 2] for i in range(len(roles))] or len(roles) % 2:
        raise CorruptFile(f"{path} is not a saved conversation: questions and answers do not alternate")
    if saved.first_in_prompt > len(roles) or saved.first_in_prompt % 2:
        raise CorruptFile(f"{path} is not a saved conversation: first_in_prompt is {saved.first_in_prompt}")
    saved.sampling()
    return saved
