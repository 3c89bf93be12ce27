"""The command that asks for an answer, and the same command with something changed: what a person pastes next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.planner.plan import Plan
from twofold.planner.request import DEFAULT_CONTEXT
from twofold.profiles.activations import USUAL

DEFAULT_BITS = 6
"""The residual width that `chat` quantises with where nothing is said."""


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


def chat_command(model: str, plan: Plan, context_length: int) -> str:
    """`twofold chat` with the options that make it open `plan` and not its own default."""
    words = ["twofold", "chat", model]
    if plan.context_tokens != min(DEFAULT_CONTEXT, context_length):
        words += ["--ctx", str(plan.context_tokens)]
    if plan.k_type == plan.v_type != "f16":
        words += ["--kv", plan.k_type]
    elif plan.k_type != plan.v_type:
        words += ["--kv-k", plan.k_type, "--kv-v", plan.v_type]
    if plan.activations != USUAL:
        words += ["--activations", plan.activations]
    if plan.residual_bits != DEFAULT_BITS:
        words += ["--residual-bits", str(plan.residual_bits)]
    return shlex.join(words)
