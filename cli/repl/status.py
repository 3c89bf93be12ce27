"""The lines around a conversation: what was opened, what an answer took, how far the prompt is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from twofold.cli.output import err, is_plain
from twofold.profiles.activations import activation_words
from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.engine.session import AnswerStats, Session
    from twofold.planner.plan import Plan

LONG_PROMPT_TOKENS = 256
_ENDINGS = {
    "interrupted": "stopped",
    "length": "cut at --max-tokens",
    "context": "the context is full",
}


def header(plan: Plan, base_bits: int = 2) -> str:
    """What was opened, in one line."""
    threads = f"{plan.threads} thread" + ("s" if plan.threads != 1 else "")
    where = plan.cpu_isa if plan.device == "cpu" else plan.device
    return (
        f"{plan.model} · {base_bits}-bit base + {plan.residual_bits}-bit residual · context {plan.context_tokens}"
        f"{activation_words(plan.activations, ' · ')} · {threads} · {where}{' · tuned' if plan.tuned else ''}"
    )


def memory_line(plan: Plan) -> str:
    """Resident memory of this process (measured) against the plan's expectation (reasoned)."""
    import psutil

    resident = psutil.Process().memory_info().rss / MIB
    return f"RAM {resident:.0f} of {plan.expected_ram_mib:.0f} MiB planned"


def resident_line() -> str:
    """Resident memory of this process by kind; what is mapped, the weights above all, the kernel may take back."""
    import psutil

    memory = psutil.Process().memory_info()
    mapped = getattr(memory, "shared", 0)
    own = (memory.rss - mapped) / MIB
    return f"resident: {memory.rss / MIB:.0f} MiB, {mapped / MIB:.0f} of it mapped files, {own:.0f} the process's own"


def answer_line(stats: AnswerStats, plan: Plan) -> str:
    """What an answer took, all of it measured; what was not measured is left out."""
    parts = [f"{stats.tokens} token" + ("s" if stats.tokens != 1 else "")]
    if stats.tokens_per_second is not None:
        parts.append(f"{stats.tokens_per_second:.1f} tok/s")
    if stats.tokens_per_check is not None:
        parts.append(f"{stats.tokens_per_check:.2f} tokens per check")
    if stats.first_token_seconds is not None:
        parts.append(f"first token {stats.first_token_seconds:.2f} s")
    parts.append(memory_line(plan))
    if stats.finish in _ENDINGS:
        parts.append(_ENDINGS[stats.finish])
    return " · ".join(parts)


def reread_line(session: Session) -> str:
    """What steps that read weights from disk again mean."""
    steps = session.engine.reread_steps
    return (
        f"{steps} step{'s' if steps != 1 else ''} read weights from disk again, which is slow: memory is short "
        f"({memory_line(session.engine.plan)}); close other programs, or choose a smaller model or context"
    )


def warn_of_rereads(session: Session) -> None:
    """Say once in a conversation that memory is short."""
    if session.engine.reread_steps and not session.warned_of_rereads:
        session.warned_of_rereads = True
        err().warning(reread_line(session))


def stats_lines(session: Session) -> list[str]:
    """What `/stats` shows: the last answer, the conversation, and what the engine holds."""
    engine, plan = session.engine, session.engine.plan
    lines = [answer_line(session.last, plan)] if session.last is not None else ["no answer yet"]
    if session.last is not None:
        last = session.last
        lines.append(f"prompt {last.prompt_tokens} tokens, {last.reused_tokens} of them from the cache")
    lines.append(f"conversation {session.prompt_tokens} of {engine.context_tokens} tokens")
    held = ", ".join(f"{name.replace('_', ' ')} {size / MIB:.1f} MiB" for name, size in engine.memory_report().items())
    lines += [f"engine: {held}", resident_line()]
    return [*lines, reread_line(session)] if engine.reread_steps else lines


class PrefillProgress:
    """How far a long prompt is, in one line of a terminal that is wiped afterwards."""

    def __init__(self) -> None:
        self._enabled = not is_plain(sys.stderr)
        self._width = 0

    def __call__(self, done: int, total: int) -> None:
        if not self._enabled or total < LONG_PROMPT_TOKENS:
            return
        if done >= total:
            self.clear()
            return
        text = err().text(f"reading the prompt: {100 * done // total} % of {total} tokens")
        self._width = max(self._width, len(text))
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()

    def clear(self) -> None:
        """Wipe the line."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
        self._width = 0
