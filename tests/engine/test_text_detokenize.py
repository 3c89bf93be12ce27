"""Streaming text: whole characters only, stop strings anywhere, the same text however it is cut."""

from __future__ import annotations

import itertools
import re

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.engine.text.detokenize import Detokenizer, StopStrings
from twofold.engine.text.thinking import Part, ThinkingSplitter
from twofold.engine.text.token_bytes import gpt2_alphabet, spm_bytes
from twofold.engine.text.tokenizer import Tokenizer


def byte_tokenizer() -> Tokenizer:
    """Token i is byte i; 256 is a control token."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({char: byte for char, byte in gpt2_alphabet().items()}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(["<|end|>"])
    return Tokenizer(inner)


BYTES = byte_tokenizer()


def stream(data: bytes, stops: tuple[str, ...] = ()) -> tuple[list[str], Detokenizer]:
    detokenizer = Detokenizer(BYTES, stops)
    pieces = [detokenizer.push(byte) for byte in data]
    return [*pieces, detokenizer.flush()], detokenizer


@settings(deadline=None)
@given(data=st.binary(max_size=60) | st.text(max_size=20).map(str.encode))
def test_byte_by_byte_equals_all_at_once(data: bytes) -> None:
    pieces, _ = stream(data)
    assert "".join(pieces) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("char", ["é", "漢", "🤦"])
def test_a_character_comes_whole_or_not_at_all(char: str) -> None:
    pieces, _ = stream(char.encode())
    assert pieces == [""] * (len(char.encode()) - 1) + [char, ""]


def test_an_unfinished_character_is_replaced_only_at_the_end() -> None:
    assert stream("a🤦".encode()[:-1])[0] == ["a", "", "", "", "\ufffd"]
    assert stream(b"a\xffb")[0] == ["a", "\ufffd", "b", ""]
    assert stream(b"\xe6\xbc!")[0] == ["", "", "\ufffd!", ""]


def test_control_tokens_add_nothing() -> None:
    detokenizer = Detokenizer(BYTES)
    assert [detokenizer.push(token) for token in (65, 256, 66, 10**6)] == ["A", "", "B", ""]


@pytest.mark.parametrize(
    ("text", "stops", "expected", "stopped"),
    [
        ("one STOP two", ("STOP",), "one ", "STOP"),
        ("one STO", ("STOP",), "one STO", None),
        ("one STOOP", ("STOP",), "one STOOP", None),
        ("STOP", ("STOP",), "", "STOP"),
        ("xabcx", ("abc", "b"), "xa", "b"),
        ("xabc", ("bc", "abc"), "x", "abc"),
        ("aaab", ("aab",), "a", "aab"),
        ("a\n\nb", ("\n\n",), "a", "\n\n"),
        ("漢字", ("字",), "漢", "字"),
        ("plain", ("", "zzz"), "plain", None),
    ],
)
def test_stop_strings(text: str, stops: tuple[str, ...], expected: str, stopped: str | None) -> None:
    pieces, detokenizer = stream(text.encode(), stops)
    assert "".join(pieces) == expected
    assert detokenizer.stopped == stopped


def cut_up(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(0, 40), max_size=10)


@given(text=st.text("abc", max_size=30), stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), cuts=CUTS)
def test_stop_strings_do_not_depend_on_the_pieces(text: str, stops: list[str], cuts: list[int]) -> None:
    ends = [(m.start() + len(stop), m.start()) for stop in stops for m in re.finditer(f"(?={stop})", text)]
    expected = text[: min(ends)[1]] if ends else text
    filter_ = StopStrings(stops)
    assert "".join(filter_.push(piece) for piece in cut_up(text, cuts)) + filter_.flush() == expected


def test_text_after_a_stop_string_is_dropped() -> None:
    filter_ = StopStrings(("x",))
    assert filter_.push("abxcd") == "ab"
    assert filter_.push("more") == "" and filter_.flush() == ""


@pytest.mark.parametrize(
    ("piece", "data"), [("<0x0A>", b"\n"), ("▁a▁b", b" a b"), ("<0xZZ>", b"<0xZZ>"), ("<0x0A>x", b"<0x0A>x")]
)
def test_sentencepiece_pieces(piece: str, data: bytes) -> None:
    assert spm_bytes(piece) == data


def split(text: str, cuts: list[int], *, opened: bool = False) -> tuple[str, str]:
    splitter = ThinkingSplitter(opened=opened)
    parts = [part for piece in cut_up(text, cuts) for part in splitter.push(piece)] + splitter.flush()
    assert all(part.text for part in parts)
    first_answer = next((i for i, part in enumerate(parts) if part.kind == "answer"), len(parts))
    assert all(part.kind == "answer" for part in parts[first_answer:])
    return (
        "".join(part.text for part in parts if part.kind == "thinking"),
        "".join(part.text for part in parts if part.kind == "answer"),
    )


@pytest.mark.parametrize(
    ("text", "opened", "thinking", "answer"),
    [
        ("plain answer", False, "", "plain answer"),
        ("  plain", False, "", "  plain"),
        ("<think>\nhm\n\nyes\n</think>\n\nAnswer\n", False, "hm\n\nyes", "Answer\n"),
        ("\n<think>hm</think>A", False, "hm", "A"),
        ("<think>\n\n</think>\n\nA", False, "", "A"),
        ("hm\n</think>\nA", True, "hm", "A"),
        ("<think>never closed\n", False, "never closed", ""),
        ("<thin", False, "", "<thin"),
        ("<thinking>", False, "", "<thinking>"),
        ("Use <think>x</think> tags", False, "", "Use <think>x</think> tags"),
        ("<think>a</think>b</think>c", False, "a", "b</think>c"),
        ("<think>a </thin b</think>c", False, "a </thin b", "c"),
        ("", False, "", ""),
    ],
)
@settings(max_examples=30)
@given(cuts=CUTS)
def test_thinking(text: str, opened: bool, thinking: str, answer: str, cuts: list[int]) -> None:
    assert split(text, cuts, opened=opened) == (thinking, answer)


def test_thinking_streams() -> None:
    splitter = ThinkingSplitter()
    assert splitter.push("<think>one ") == [Part("thinking", "one ")]
    assert splitter.push("two</th") == [Part("thinking", "two")]
    assert splitter.push("ink>\n") == []
    assert splitter.push("A") == [Part("answer", "A")]
