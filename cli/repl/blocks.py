"""Cuts a stream of Markdown into blocks that are finished: paragraphs, headings, whole lists, whole code fences.

A block is shown once, when it is complete, so that nothing on the screen is ever redrawn.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(\s|$)")
_INSIDE_ITEM = re.compile(r"( {2,}|\t)\S")


class BlockSplitter:
    """Feed text with `push`; it returns the blocks that became complete. `flush` returns the rest."""

    def __init__(self) -> None:
        self._line = ""
        self._block: list[str] = []
        self._fence: str | None = None
        self._blank = False

    def push(self, text: str) -> list[str]:
        *lines, self._line = (self._line + text).split("\n")
        done: list[str] = []
        for line in lines:
            done += self._take(line)
        return done

    def flush(self) -> list[str]:
        """The last block, complete or not."""
        line, self._line = self._line, ""
        done = self._take(line) if line else []
        self._fence = None
        return done + self._close()

    def _take(self, line: str) -> list[str]:
        if self._fence is not None:
            return self._inside_fence(line)
        if not line.strip():
            self._blank = True
            return [] if self._is_list() else self._close()
        done = self._close() if self._starts_anew(line) else []
        if self._blank and self._block:
            self._block.append("")
        self._blank = False
        self._block.append(line)
        fence = _FENCE.match(line.lstrip() if self._is_list() else line)
        if fence:
            self._fence = fence[1]
        elif _HEADING.match(line):
            done += self._close()
        return done

    def _inside_fence(self, line: str) -> list[str]:
        assert self._fence is not None
        self._block.append(line)
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = None
            return [] if self._is_list() else self._close()
        return []

    def _starts_anew(self, line: str) -> bool:
        """Whether `line` cannot belong to the block that is being collected."""
        if not self._block:
            return False
        if self._is_list():
            return self._blank and not _ITEM.match(line) and not _INSIDE_ITEM.match(line)
        return bool(_FENCE.match(line) or _HEADING.match(line) or _ITEM.match(line))

    def _is_list(self) -> bool:
        return bool(self._block) and bool(_ITEM.match(self._block[0]))

    def _close(self) -> list[str]:
        block, self._block, self._blank = self._block, [], False
        return ["\n".join(block)] if block else []
