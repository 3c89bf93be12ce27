"""A conversation with a loaded model: questions in, pieces of the answer out.

The prompt is rendered anew for every question; the engine computes only what differs from what it has, so that a
template may drop earlier thinking and a long conversation may drop its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from twofold.engine.engine import Engine, Finish, Progress
from twofold.engine.generate import Generation, generate
from twofold.engine.sampling import SamplingParams
from twofold.engine.session.history import History, Turn
from twofold.engine.session.saved import read_session, write_session
from twofold.engine.session.tally import Tally
from twofold.engine.text.chat_template import ChatTemplate
from twofold.engine.text.detokenize import Detokenizer
from twofold.engine.text.thinking import Part, ThinkingSplitter
from twofold.engine.text.tokenizer import Tokenizer

MAX_RESERVE_TOKENS = 512
Ending = Finish | Literal["interrupted"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer, or a notice about the conversation."""

    kind: Literal["thinking", "answer", "notice"]
    text: str


@dataclass(frozen=True, slots=True)
class AnswerStats:
    """What one answer took; None where nothing was generated. `checks` are verify passes."""

    prompt_tokens: int
    reused_tokens: int
    tokens: int
    checks: int
    first_token_seconds: float | None
    tokens_per_second: float | None
    tokens_per_check: float | None
    finish: Ending


class Interrupted(Exception):
    """Raised inside of a prefill to leave it."""


class Session:
    """One conversation.

    Attributes:
        history: what was said.
        params: how tokens are chosen; may be replaced between questions.
        last: the statistics of the last answer, or None.
        tally: what all answers took, those of conversations that were reset included.
        warned_of_rereads: whether the person was told that weights are read from disk again.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        params: SamplingParams | None = None,
        *,
        model: str = "",
        system: str | None = None,
        max_tokens: int | None = None,
        stop_strings: Sequence[str] = (),
        template_variables: dict[str, Any] | None = None,
        raw: bool = False,
    ) -> None:
        """`raw`: a question is a text to continue, without template, system prompt or earlier turns."""
        self.engine, self.tokenizer, self.template = engine, tokenizer, template
        self.params = params or SamplingParams.from_generation_config(tokenizer.generation_config)
        self.model = model or engine.plan.model
        self.history = History(system or None)
        self.max_tokens = max_tokens
        self.stop_strings = (*template.stop_strings, *stop_strings)
        self.last: AnswerStats | None = None
        self.tally = Tally()
        self.warned_of_rereads = False
        self._variables = template_variables or {}
        self._raw = raw
        self._stopping = False

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the conversation as the engine holds it."""
        return len(self.engine.tokens)

    def system(self, text: str | None) -> None:
        """Set the system prompt for what follows; None or an empty text removes it."""
        self.history.system = text or None

    def reset(self) -> None:
        """Forget the conversation, keep the system prompt."""
        self.history.clear()
        self.engine.reset()
        self.last = None

    def save(self, path: Path) -> None:
        """Write the conversation to `path` (permissions 0600)."""
        write_session(path, self.model, self.history, self.params)

    def load(self, path: Path) -> str | None:
        """Replace the conversation by a saved one; returns a notice when another model wrote it.

        Raises:
            CorruptFile: not a saved conversation; the present one stays.
        """
        saved = read_session(path)
        self.history, self.params, self.last = saved.history(), saved.sampling(), None
        return None if saved.model == self.model else f"this conversation was with {saved.model}"

    def stop(self) -> None:
        """End the running answer after the step (or the prompt's chunk) in progress; safe in a signal handler."""
        self._stopping = True

    def ask(self, text: str, on_prefill: Progress | None = None) -> Iterator[Piece]:
        """Answer `text`. However the answer ends, what was shown of it becomes part of the conversation.

        `on_prefill(done, total)` reports the tokens of the prompt that are computed.

        Raises (while iterating):
            ContextFull: the message does not fit; it is forgotten.
            TwofoldError: the template refuses the conversation; the message is forgotten.
        """
        self._stopping = False
        turns = self.history.turns
        turns.append(Turn("user", text))
        try:
            tokens, dropped = self._prompt()
            opened = not self._raw and self._opens_thinking()
        except BaseException:
            turns.pop()
            raise
        if dropped:
            yield Piece("notice", _dropped(dropped))
        yield from self._answer(tokens, ThinkingSplitter(opened=opened), on_prefill)

    def _prompt(self) -> tuple[list[int], int]:
        context = self.engine.context_tokens
        reserve = min(self.max_tokens or MAX_RESERVE_TOKENS, MAX_RESERVE_TOKENS, context // 4)

        def encode(messages: Sequence[dict[str, str]]) -> list[int]:
            if self._raw:
                return [*self.tokenizer.prefix_ids, *self.tokenizer.encode(messages[-1]["content"])]
            return self.template.encode(self.tokenizer, messages, **self._variables)

        return self.history.make_room(encode, self.template, context, max(reserve, 1))

    def _opens_thinking(self) -> bool:
        return self.template.opens_thinking(self.history.messages(self.template), **self._variables)

    def _answer(self, tokens: list[int], splitter: ThinkingSplitter, on_prefill: Progress | None) -> Iterator[Piece]:
        generation = generate(
            self.engine,
            tokens,
            self.params,
            stop_tokens=self.tokenizer.eos_ids,
            max_tokens=self.max_tokens,
            on_progress=self._watched(on_prefill),
        )
        said = {"thinking": "", "answer": ""}
        finish: Ending = "interrupted"
        finished = False

        def noted(parts: list[Part]) -> Iterator[Piece]:
            for part in parts:
                said[part.kind] += part.text
                yield Piece(part.kind, part.text)

        try:
            detokenizer = Detokenizer(self.tokenizer, self.stop_strings)
            for ended, text in self._texts(generation, detokenizer):
                finish = ended
                yield from noted(splitter.push(text))
            yield from noted(splitter.flush())
            finished = True
        finally:
            if not finished:
                finish = "interrupted"
            self._conclude(generation, said, finish)

    def _texts(self, generation: Generation, detokenizer: Detokenizer) -> Iterator[tuple[Ending, str]]:
        """Text as it becomes final, with how the answer would have ended there."""
        try:
            for result in generation:
                finish: Ending = result.finish or "interrupted"
                text = ""
                for count, token in enumerate(result.tokens, 1):
                    text += detokenizer.push(token)
                    if detokenizer.stopped is not None:
                        generation.end_at(count)
                        yield "stop", text
                        return
                yield finish, text
                if self._stopping:
                    break
        except Interrupted:
            pass
        rest = detokenizer.flush()
        stopped = detokenizer.stopped is not None
        yield ("stop" if stopped else generation.stats.finish or "interrupted"), rest

    def _watched(self, on_prefill: Progress | None) -> Progress:
        def report(done: int, total: int) -> None:
            if self._stopping:
                raise Interrupted
            if on_prefill is not None:
                on_prefill(done, total)

        return report

    def _conclude(self, generation: Generation, said: dict[str, str], finish: Ending) -> None:
        """Keep the answer, as far as it came; a question without any answer is forgotten."""
        stats, turns = generation.stats, self.history.turns
        if said["answer"] or said["thinking"] or finish != "interrupted":
            turns.append(Turn("assistant", said["answer"], said["thinking"]))
        else:
            turns.pop()
        self.tally.add(stats, len(self.engine.tokens))
        self.last = AnswerStats(
            prompt_tokens=stats.prompt_tokens,
            reused_tokens=stats.reused_tokens,
            tokens=stats.generated_tokens,
            checks=stats.steps,
            first_token_seconds=stats.first_token_seconds if stats.steps else None,
            tokens_per_second=stats.decode_tokens_per_second,
            tokens_per_check=stats.tokens_per_check,
            finish=finish,
        )


def _dropped(exchanges: int) -> str:
    what = "the oldest exchange is" if exchanges == 1 else f"the {exchanges} oldest exchanges are"
    return f"the context is full: {what} no longer part of the prompt"
