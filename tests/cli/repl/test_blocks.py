"""Finished blocks of Markdown, however the text arrives."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.cli.repl.blocks import BlockSplitter

CASES = {
    "paragraphs": ("one\ntwo\n\nthree\n\n\n\nfour", ["one\ntwo", "three", "four"]),
    "heading": ("# Title\ntext\n## Next\nmore\n", ["# Title", "text", "## Next", "more"]),
    "fence": ("say:\n```py\na = 1\n\nb = 2\n```\nend", ["say:", "```py\na = 1\n\nb = 2\n```", "end"]),
    "longer fence": ("````\n```\n````\nx", ["````\n```\n````", "x"]),
    "tilde fence": ("~~~\n```\n~~~\n", ["~~~\n```\n~~~"]),
    "open fence": ("```\nnever closed\n\nhere", ["```\nnever closed\n\nhere"]),
    "list": ("- a\n- b\n\n- c\n\ntext", ["- a\n- b\n\n- c", "text"]),
    "numbers": (
        "Steps:\n1. a\n2. b\n   more\n\n   still b\n\nend",
        ["Steps:", "1. a\n2. b\n   more\n\n   still b", "end"],
    ),
    "fence in a list": (
        "- a:\n\n  ```\n  x\n\n  y\n  ```\n- b\n\nend",
        ["- a:\n\n  ```\n  x\n\n  y\n  ```\n- b", "end"],
    ),
    "table": ("| a | b |\n|---|---|\n| 1 | 2 |\n\nx", ["| a | b |\n|---|---|\n| 1 | 2 |", "x"]),
    "nothing": ("\n\n \n", []),
    "no number list": ("3.14 is pi\nand more", ["3.14 is pi\nand more"]),
}


@pytest.mark.parametrize("case", CASES)
@given(cuts=st.lists(st.integers(0, 80), max_size=8))
def test_blocks(case: str, cuts: list[int]) -> None:
    text, expected = CASES[case]
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    splitter = BlockSplitter()
    blocks = [block for a, b in itertools.pairwise(edges) for block in splitter.push(text[a:b])]
    assert blocks + splitter.flush() == expected


@given(st.text(alphabet="a #-`1.\n", max_size=60))
def test_no_line_is_lost(text: str) -> None:
    splitter = BlockSplitter()
    shown = "\n".join(splitter.push(text) + splitter.flush())
    assert [line for line in shown.split("\n") if line.strip()] == [line for line in text.split("\n") if line.strip()]


def test_a_block_comes_as_soon_as_it_is_complete() -> None:
    splitter = BlockSplitter()
    assert splitter.push("one\n") == []
    assert splitter.push("\n") == ["one"]
    assert splitter.push("```\nx\n``") == []
    assert splitter.push("`\n") == ["```\nx\n```"]
    assert splitter.flush() == []
