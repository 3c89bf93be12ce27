"""`benchmarks/tokens_per_check.py` on a small model: answers end where the model ends them, and counts are theirs."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROMPTS = [[5, 9, 17, 33], [40, 2, 7]]


@pytest.fixture(scope="module")
def bench(benchmarks_folder: Path) -> ModuleType:
    return importlib.import_module("tokens_per_check")


@pytest.fixture
def launched(tmp_path: Path) -> Any:
    path = ROOT / "tests" / "cli" / "repl" / "tiny_model.py"
    spec = importlib.util.spec_from_file_location("tiny_model_of_tokens_per_check", path)
    assert spec is not None and spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tiny
    spec.loader.exec_module(tiny)
    return tiny.open_model(tiny.write_model(tmp_path / "tiny"))


def test_shapes(bench: ModuleType) -> None:
    assert bench.shapes("4x4,16x8") == [(4, 4), (16, 8)]
    row = bench.row((4, 4), [([1, 2, 3, 4], 2), ([5, 6], 2)])
    assert (row["tokens"], row["checks"], row["tokens_per_check"], row["bar"]) == (6, 4, 1.5, 3.1)
    assert row["least_and_most_of_an_answer"] == [1.0, 2.0]


def test_an_answer_ends_where_the_model_ends_it(bench: ModuleType, launched: Any) -> None:
    engine = launched.engine
    whole = bench.answers(engine, PROMPTS, frozenset(), 20)
    assert [len(tokens) for tokens, _ in whole] == [20, 20]
    end = whole[0][0][7]
    first = whole[0][0].index(end)
    (tokens, checks), _ = bench.answers(engine, PROMPTS, frozenset({end}), 20)
    assert tokens == whole[0][0][: first + 1], "the token that ends it counts, nothing behind it does"
    assert checks == first + 1  # without drafts


@pytest.mark.parametrize("lookup", [False, True])
def test_every_tree_answers_alike(bench: ModuleType, launched: Any, lookup: bool) -> None:
    options = argparse.Namespace(lookup=lookup, max_tokens=16)
    plain = bench.count(launched, (0, 0), PROMPTS, argparse.Namespace(lookup=False, max_tokens=16))
    tree = bench.count(launched, (4, 4), PROMPTS, options)
    assert [tokens for tokens, _ in tree] == [tokens for tokens, _ in plain]
    assert all(one[1] <= other[1] for one, other in zip(tree, plain, strict=True))
