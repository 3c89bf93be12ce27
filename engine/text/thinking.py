"""Splits the stream of an answer into thinking and answer.

A thinking block counts only at the very beginning: a text that mentions `<think>` later on is an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twofold.engine.text.chat_template import THINK_CLOSE, THINK_OPEN

Kind = Literal["thinking", "answer"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an answer's text."""

    kind: Kind
    text: str


class ThinkingSplitter:
    """Feed text with `push`, end with `flush`. The tags and the blank lines around the block belong to neither text."""

    def __init__(self, *, opened: bool = False) -> None:
        """`opened`: the prompt already opened the block."""
        self._state: Literal["start", "thinking", "gap", "answer"] = "thinking" if opened else "start"
        self._held = ""
        self._begun = False

    def push(self, text: str) -> list[Part]:
        self._held += text
        parts: list[Part] = []
        while self._advance(parts):
            pass
        return parts

    def flush(self) -> list[Part]:
        """What is held, when no more text comes."""
        held, self._held = self._held, ""
        if not held or self._state == "gap":
            return []
        if self._state == "thinking":
            held = held.rstrip("\n") if self._begun else held.strip("\n")
            return [Part("thinking", held)] if held else []
        return [Part("answer", held)]

    def _advance(self, parts: list[Part]) -> bool:
        """One transition; False when more text is needed."""
        if self._state == "start":
            return self._open()
        if self._state == "thinking":
            return self._think(parts)
        if self._state == "gap":
            self._held = self._held.lstrip("\n")
            if not self._held:
                return False
            self._state = "answer"
        if self._held:
            parts.append(Part("answer", self._held))
            self._held = ""
        return False

    def _open(self) -> bool:
        text = self._held.lstrip()
        if text.startswith(THINK_OPEN):
            self._held, self._state = text[len(THINK_OPEN) :], "thinking"
            return True
        if THINK_OPEN.startswith(text):
            return False
        self._state = "answer"
        return True

    def _think(self, parts: list[Part]) -> bool:
        if not self._begun:
            self._held = self._held.lstrip("\n")
        inside, closed, after = self._held.partition(THINK_CLOSE)
        if closed:
            inside = inside.rstrip("\n")
            self._held, self._state = after, "gap"
        else:
            keep = _open_end(inside)
            inside, self._held = inside[: len(inside) - keep], inside[len(inside) - keep :]
        if inside:
            self._begun = True
            parts.append(Part("thinking", inside))
        return bool(closed)


def _open_end(text: str) -> int:
    """How much of the end must be held: blank lines that may precede the closing tag, and a part of the tag."""
    tag = next((n for n in range(len(THINK_CLOSE) - 1, 0, -1) if text.endswith(THINK_CLOSE[:n])), 0)
    body = text[: len(text) - tag]
    return tag + len(body) - len(body.rstrip("\n"))
