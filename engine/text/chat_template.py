"""Messages to the text, and the tokens, that a model was trained to continue.

Where a person's text spells a control token, a mark (a character that occurs nowhere else) is put inside of it before
the template runs, and removed from the text between the true control tokens afterwards. A template may trim, split or
join what it is given; the spelled token stays broken, and all other text is tokenised as if the mark had never been
there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twofold.engine.text.tokenizer import Tokenizer
from twofold.profiles.errors import CorruptFile, TwofoldError

Message = Mapping[str, str]

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DIALOGUE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ 'Question' if message['role'] == 'user' else 'Answer' }}: {% endif %}{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Answer:{% endif %}"
)
"""What a model can continue that was never trained on turns."""

_FIRST_MARK, _LAST_MARK = 0xFDD0, 0xFDEF
_PRIVATE_MARKS = range(0xF0000, 0xFFFFE)


class ChatTemplate:
    """A compiled template.

    Attributes:
        source: the Jinja source.
        notice: what a person should know about it (a missing template), or None.
        stop_strings: texts that end an answer where no control token does (the fallback's).
    """

    def __init__(
        self,
        source: str,
        *,
        variables: Mapping[str, Any] | None = None,
        notice: str | None = None,
        stop_strings: tuple[str, ...] = (),
        name: str = "the model",
    ) -> None:
        from jinja2 import TemplateError

        from twofold.engine.text.template_sandbox import compile_template

        self.source = source
        self.notice = notice
        self.stop_strings = stop_strings
        self.name = name
        self._variables = dict(variables or {})
        try:
            self._render = compile_template(source)
        except (TemplateError, RecursionError) as error:
            raise CorruptFile(
                f"the chat template of {name} cannot be read: {error}", hint="get the file again"
            ) from error

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> ChatTemplate:
        """The template that came with the vocabulary, or a fallback (announced in `notice`): ChatML, but a dialogue in
        plain words for Gemma, whose tuned models all come with a template.

        Raises:
            CorruptFile: when the source is not a template.
        """
        roles = ("bos_token", "eos_token", "unk_token", "pad_token")
        variables = {role: tokenizer.token_text(role) or "" for role in roles}
        if tokenizer.chat_template is not None:
            return cls(tokenizer.chat_template, variables=variables, name=tokenizer.name)
        special = tokenizer.special_contents
        if "<start_of_turn>" in special and "<|im_end|>" not in special:
            return cls(
                DIALOGUE,
                variables=variables,
                notice=f"{tokenizer.name} has no chat template, as a base model: it continues a plain dialogue",
                stop_strings=("\nQuestion:",),
                name=tokenizer.name,
            )
        return cls(
            CHATML,
            variables=variables,
            notice=f"{tokenizer.name} has no chat template: ChatML is used, answers may be poor",
            stop_strings=() if "<|im_end|>" in special else ("<|im_end|>",),
            name=tokenizer.name,
        )

    @property
    def knows_thinking(self) -> bool:
        """Whether the template itself decides what becomes of earlier thinking."""
        return THINK_CLOSE in self.source or "reasoning_content" in self.source

    @property
    def splits_thinking(self) -> bool:
        """Whether it finds thinking inside of an answer's text (else it wants it apart, as `reasoning_content`)."""
        return THINK_CLOSE in self.source

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text of a conversation.

        Raises:
            TwofoldError: when the template refuses the messages (a role that it does not know, say) or fails.
        """
        from jinja2 import TemplateError

        known: dict[str, Any] = {"tools": None, "documents": None, **self._variables, **variables}
        copies = [dict(message) for message in messages]
        try:
            return self._render(messages=copies, add_generation_prompt=add_generation_prompt, **known)
        except (TemplateError, RecursionError) as error:
            raise TwofoldError(
                f"the chat template of {self.name} refuses this conversation: {error}",
                found=f"roles {', '.join(dict.fromkeys(message['role'] for message in messages))}",
                hint="leave out the system prompt, or begin again with /reset",
            ) from error
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise CorruptFile(
                f"the chat template of {self.name} fails: {type(error).__name__}: {error}", hint="get the model again"
            ) from error

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """The tokens of a conversation; a person's text never becomes a control token in them."""
        mark = _unused_mark([self.source, *(text for message in messages for text in message.values())])
        breaker = _Breaker(tokenizer.special_contents, mark)
        broken = [breaker.message(message) for message in messages]
        text = self.render(broken, add_generation_prompt=add_generation_prompt, **variables)
        return tokenizer.encode_marked(text, mark)

    def opens_thinking(self, messages: Sequence[Message], **variables: Any) -> bool:
        """Whether the prompt itself opens a thinking block, so that the answer starts inside of it."""
        return self.render(messages, **variables).rstrip().endswith(THINK_OPEN)


def _unused_mark(texts: Iterable[str]) -> str:
    """A character in none of `texts`: a noncharacter, or where a person used them all, one for private use."""
    used = set().union(*texts)
    candidates = (*range(_FIRST_MARK, _LAST_MARK + 1), *_PRIVATE_MARKS)
    return next(chr(code) for code in candidates if chr(code) not in used)


class _Breaker:
    """Puts marks into whatever spells a control token, in any mixture of case."""

    def __init__(self, special: frozenset[str], mark: str) -> None:
        self.mark = mark
        self._patterns = {role: _lookalikes(special, role) for role in ("assistant", "")}
        self._heads = frozenset(text[:n] for text in special for n in range(1, len(text)))
        self._longest_head = max(map(len, self._heads), default=0)

    def message(self, message: Message) -> dict[str, str]:
        role = message["role"] if message["role"] == "assistant" else ""
        return {
            key: value if key == "role" else self._text(value, self._patterns[role]) for key, value in message.items()
        }

    def _text(self, text: str, lookalikes: re.Pattern[str] | None) -> str:
        if lookalikes is None:
            return text
        parts, start = [], 0
        for found in lookalikes.finditer(text):
            cut = found.start() + 1
            parts += [text[start:cut], self.mark]
            start = cut
        parts.append(text[start:])
        # What follows in the rendered text could complete a token that the end of this text begins.
        ends = any(text.endswith(text[-n:]) and text[-n:] in self._heads for n in range(1, self._longest_head + 1))
        return "".join(parts) + (self.mark if ends else "")


def _lookalikes(special: frozenset[str], role: str) -> re.Pattern[str] | None:
    """Every place, overlapping ones too, that spells a control token. A model's own thinking tags stay whole."""
    kept = {THINK_OPEN, THINK_CLOSE} if role == "assistant" else set()
    texts = sorted(special - kept, key=len, reverse=True)
    return re.compile(f"(?=({'|'.join(map(re.escape, texts))}))", re.IGNORECASE) if texts else None
