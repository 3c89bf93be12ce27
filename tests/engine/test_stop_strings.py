"""Stop strings under drafts: a step that accepts several tokens ends where the stop string does, as one without drafts.

The tokens that the model says are given the bytes of a text that is chosen here, those of the question keep theirs; and
the drafts are right, so that steps give as many tokens as their tree is deep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from twofold.engine.engine import Engine
from twofold.engine.sampling import SamplingParams
from twofold.engine.session import Session
from twofold.engine.text import ChatTemplate, Tokenizer
from twofold.engine.text.token_bytes import gpt2_alphabet

pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")
SHAPES = {"none": (0, 0), "chain": (4, 4), "tree": (14, 4)}
SAID = "kéw ✓bжx"
"""All bytes differ: characters of one, two and three bytes."""
QUESTION = "hello"
SAMPLED = SamplingParams(temperature=1.5, seed=5)
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
)
CONTROL = ["<|im_start|>", "<|im_end|>"]


def tokenizer_of(byte_of: dict[int, int]) -> Tokenizer:
    """Tokens 0 and 1 are the control tokens, token t ≥ 2 is byte `byte_of[t]`."""
    alphabet = {byte: char for char, byte in gpt2_alphabet().items()}
    names = {name: i for i, name in enumerate(CONTROL)} | {alphabet[byte]: token for token, byte in byte_of.items()}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(names, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(CONTROL)
    return Tokenizer(inner, config={"eos_token": "<|im_end|>"})


def spelling(said: Sequence[int], text: bytes) -> dict[int, int]:
    """Token 2 + b is byte b, but for those that must change so that the tokens `said` spell `text`."""
    assert len(set(said)) == len(said) == len(set(text)) == len(text) and 0 not in said and 1 not in said
    assert not set(QUESTION.encode()) & ({token - 2 for token in said} | set(text))
    byte_of = {2 + byte: byte for byte in range(256)}
    for token, byte in zip(said, text, strict=True):
        other = next(one for one, has in byte_of.items() if has == byte)
        byte_of[token], byte_of[other] = byte, byte_of[token]
    return byte_of


class RightDrafts:
    """Guesses that hold the text to come, first in chains and second where a row has a second child."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.truth = engine, [0]
        self._place = 0 if engine.tree.ranks[:1] == engine.tree.ranks[-1:] else 1
        engine._guess = self.guess  # type: ignore[method-assign]

    def guess(self, tokens: Sequence[int], parents: Sequence[int], k: int) -> Any:
        rows = range(len(parents) - len(tokens), len(parents))
        guesses = np.tile(np.arange(k, dtype=np.int64), (len(tokens), 1))
        for out, row in zip(guesses, rows, strict=True):
            depth = 1
            while (row := parents[row]) >= 0:
                depth += 1
            at = len(self.engine.tokens) + depth - 1
            right = self.truth[at] if at < len(self.truth) else 0
            rest = [token for token in range(k + 1) if token != right]
            out[:] = [*rest[: self._place], right, *rest[self._place :]][:k]
        return guesses


@pytest.fixture
def make_session(make_checkpoint: Callable[..., Path], make_plan: Callable[..., Any]) -> Callable[..., Session]:
    """`make_session(shape, stop=…)`: a session that says `SAID` first, with drafts that are right."""
    folder = make_checkpoint(vocab_size=258, num_hidden_layers=1)

    def engine(shape: str) -> Engine:
        nodes, depth = SHAPES[shape]
        return Engine.load(folder, make_plan(draft_nodes=nodes, draft_depth=depth, context_tokens=256))

    plain = Session(engine("none"), tokenizer_of(spelling([], b"")), ChatTemplate(TEMPLATE),
                    SAMPLED, max_tokens=20)  # fmt: skip
    list(plain.ask(QUESTION))
    assert plain.last is not None
    start = plain.last.prompt_tokens
    truth = plain.engine.tokens
    tokenizer = tokenizer_of(spelling(truth[start : start + len(SAID.encode())], SAID.encode()))

    def make(shape: str, **options: Any) -> Session:
        session = Session(engine(shape), tokenizer, ChatTemplate(TEMPLATE), SAMPLED, **{"max_tokens": 20} | options)
        if shape != "none":
            RightDrafts(session.engine).truth = truth
        return session

    return make


def say(session: Session, text: str) -> str:
    return "".join(piece.text for piece in session.ask(text) if piece.kind == "answer")


def facts(session: Session) -> tuple[Any, ...]:
    """What must not depend on drafts."""
    last = session.last
    assert last is not None
    return last.tokens, last.finish, session.engine.tokens, session.prompt_tokens, session.history.turns


def test_the_text_is_spelled_and_several_tokens_are_accepted(make_session: Callable[..., Session]) -> None:
    for shape, per_check in (("none", 1.0), ("chain", 4.0), ("tree", 2.0)):
        session = make_session(shape)
        assert say(session, QUESTION).startswith(SAID)
        assert session.last is not None and session.last.tokens_per_check is not None
        assert session.last.tokens_per_check >= per_check


STOPS = [SAID[i:j] for i in range(len(SAID)) for j in range(i + 1, min(i + 3, len(SAID)) + 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_ends_before_its_stop_string(make_session: Callable[..., Session], shape: str) -> None:
    """Wherever it begins and ends in a step, in characters of several tokens too; and the next turn does not notice."""
    for stop in STOPS:
        plain, session = (make_session(one, stop_strings=[stop]) for one in ("none", shape))
        said = SAID[: SAID.index(stop)]
        assert say(plain, QUESTION) == say(session, QUESTION) == said, stop
        assert session.last is not None and session.last.finish == "stop"
        assert session.last.tokens == len((said + stop).encode())
        assert facts(session) == facts(plain), stop
        assert session.engine.cached_tokens < len(session.engine.tokens)
        assert say(session, "and?") == say(plain, "and?"), stop
        assert facts(session) == facts(plain), stop


@pytest.mark.parametrize("shape", SHAPES)
def test_of_several_stop_strings_the_first_to_end_counts(make_session: Callable[..., Session], shape: str) -> None:
    session = make_session(shape, stop_strings=["✓b", "w ✓bжx", " ✓", "never"])
    assert say(session, QUESTION) == "kéw"
    assert session.last is not None and session.last.tokens == len("kéw ✓".encode())


@pytest.mark.parametrize("shape", SHAPES)
def test_the_limit_the_context_and_an_end_token_come_first(make_session: Callable[..., Session], shape: str) -> None:
    session = make_session(shape, stop_strings=["✓b"], max_tokens=len("kéw ".encode()) + 3)
    assert say(session, QUESTION) == "kéw ✓"
    assert session.last is not None and session.last.finish == "length"
    ended = make_session(shape, stop_strings=["✓b"])
    ended.tokenizer.eos_ids = (ended.tokenizer.encode("w")[0],)
    assert say(ended, QUESTION) == "ké"
    assert ended.last is not None and ended.last.finish == "stop"
    assert ended.last.tokens == len("kéw".encode())


def test_ending_where_nothing_is_is_refused(make_session: Callable[..., Session]) -> None:
    from twofold.engine.generate import generate

    engine = make_session("chain").engine
    generation = generate(engine, [5, 6, 7], SAMPLED, max_tokens=9)
    with pytest.raises(ValueError, match="no 0 tokens"):
        generation.end_at(0)
    first = next(generation)
    with pytest.raises(ValueError, match="to end at"):
        generation.end_at(len(first.tokens) + 1)
    generation.end_at(0)
    assert engine.tokens == [5, 6, 7] and generation.stats.generated_tokens == 0
    assert list(generation) == []
