"""The command that asks for an answer, and the same command with something changed: what a person pastes next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FitCommand:
    """`twofold fit` with a model (None: the ranking) and options by name; a value of None is a flag."""

    model: str | None
    options: tuple[tuple[str, str | None], ...] = ()

    def changed(self, options: str) -> FitCommand:
        """With `options` (as one would type them, each with a value) instead of those of the same name."""
        words = shlex.split(options)
        new = dict(zip(words[::2], words[1::2], strict=True))
        kept = tuple((name, value) for name, value in self.options if name not in new)
        return FitCommand(self.model, kept + tuple(new.items()))

    def without(self, names: Sequence[str]) -> FitCommand:
        return FitCommand(self.model, tuple(pair for pair in self.options if pair[0] not in names))

    @property
    def text(self) -> str:
        words = ["twofold", "fit"]
        if self.model is not None:
            words.append(self.model)
        for name, value in self.options:
            words += [name] if value is None else [name, value]
        return shlex.join(words)
