"""Calibration text: what ships, files good and bad, and the model's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twofold.engine.quantize import calibration
from twofold.engine.quantize.calibration import HELD_OUT_ROWS, MAX_TEXT_TOKENS, shipped_rows, take, take_evenly
from twofold.engine.quantize.cost import Rates
from twofold.engine.quantize.request import choose
from twofold.engine.quantize.self_calibration import prompts, written_by_model
from twofold.engine.text.tokenizer import Tokenizer
from twofold.engine.weights import open_weights
from twofold.profiles.errors import InvalidCalibration, InvalidOption
from twofold.profiles.figures import measured
from twofold.profiles.readers.local import read_folder_spec

WORDS = "All happy families are alike; every unhappy family is unhappy in its own way. " * 20


@pytest.fixture
def tokenizer(quantizable_folder: Path) -> Tokenizer:
    return Tokenizer.load(quantizable_folder)


def _rates(gflops: float) -> Rates:
    return Rates(measured(gflops, "GFLOP/s", "test"), 1e-5, 1e-9)


def test_shipped_text_leaves_out_the_held_out_rows(tokenizer: Tokenizer) -> None:
    held = {tuple(ids) for ids, _ in calibration.held_out(tokenizer)}
    assert len(held) == HELD_OUT_ROWS
    everything = calibration.shipped(tokenizer, 1 << 20, in_distribution=True)
    whole_rows = [calibration.tokens_of(row, tokenizer, _template(tokenizer)) for row in shipped_rows()]
    assert everything.n_tokens == sum(len(ids) for ids in whole_rows[HELD_OUT_ROWS:])
    assert not held & set(everything.texts)
    assert everything.warning is None
    assert calibration.shipped(tokenizer, 500, in_distribution=False).warning is not None


def _template(tokenizer: Tokenizer):
    from twofold.engine.text.chat_template import ChatTemplate

    return ChatTemplate.from_tokenizer(tokenizer)


@pytest.mark.parametrize("n_tokens", [1, 10, 2500, 5000])
def test_take_cuts_and_splits(n_tokens: int) -> None:
    texts = [[1] * 4, [2] * (MAX_TEXT_TOKENS + 5), [3] * 10]
    taken = take(texts, n_tokens)
    assert sum(map(len, taken)) == min(n_tokens, sum(map(len, texts)))
    assert max(map(len, taken)) <= MAX_TEXT_TOKENS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", WORDS),
        ("a.jsonl", json.dumps({"text": WORDS}) + "\n\n"),
        ("b.jsonl", json.dumps({"prompt": "Hello", "answer": WORDS})),
        ("c.jsonl", json.dumps({"messages": [{"role": "user", "content": WORDS}]})),
        ("d.txt", "\ufeff" + WORDS + "ümläut 漢字"),
    ],
)
def test_usable_files(tmp_path: Path, tokenizer: Tokenizer, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    found = calibration.from_file(path, tokenizer, 400)
    assert found.n_tokens == 400
    assert found.id == f"file:{name}"
    assert len(found.sha256) == 64


@pytest.mark.parametrize(
    ("name", "content", "message", "found"),
    [
        ("a.txt", b"", "empty", None),
        ("a.txt", b" \n\t ", "empty", None),
        ("a.txt", WORDS.encode() + b"\n\0\1", "binary", "line 2"),
        ("a.txt", b"caf\xe9\n" + WORDS.encode(), "not UTF-8", "0xe9 in line 1"),
        ("a.txt", b"short", "too short", "5 tokens"),
        ("a.jsonl", b'{"text": "fine"}\n{"text": 3}\n', "line 2", '{"text": 3}'),
        ("a.jsonl", b'{"text": "fine"}\n\nnot json\n', "line 3", "not json"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}\n', "line 1", None),
        ("a.jsonl", b"[" * 100_000, "line 1", None),
    ],
)
def test_unusable_files(
    tmp_path: Path, tokenizer: Tokenizer, name: str, content: bytes, message: str, found: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidCalibration, match=message) as caught:
        calibration.from_file(path, tokenizer, 400)
    if found is not None:
        assert found in str(caught.value.found)


@pytest.mark.parametrize(("n_tokens", "lengths"), [(3, [1, 1, 1]), (12, [3, 5, 4]), (18, [3, 8, 7]), (99, [3, 8, 20])])
def test_take_evenly_shares_between_texts(n_tokens: int, lengths: list[int]) -> None:
    texts = [[1] * 3, [2] * 8, [3] * 20]
    assert [len(text) for text in take_evenly(texts, n_tokens)] == lengths
    assert take_evenly([], 5) == ()


def test_missing_file_and_folder(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidCalibration, match="does not exist"):
        calibration.from_file(tmp_path / "none.txt", tokenizer, 400)
    with pytest.raises(InvalidCalibration, match="is a folder"):
        calibration.from_file(tmp_path, tokenizer, 400)


def test_the_model_writes_the_same_text_under_one_seed(
    quantizable_folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.engine.quantize.self_calibration.BATCH", 3)
    monkeypatch.setattr("twofold.engine.quantize.self_calibration.MAX_ANSWER_TOKENS", 40)
    spec = read_folder_spec(quantizable_folder, name="tiny")
    with open_weights(quantizable_folder) as source:
        one = written_by_model(source, spec, tokenizer, 300, 1)
        again = written_by_model(source, spec, tokenizer, 300, 1)
        other = written_by_model(source, spec, tokenizer, 300, 2)
    assert one == again
    assert one.n_tokens == 300
    assert other.texts != one.texts
    assert len(prompts()) > 30


def test_cached_sampling_sees_the_whole_context(quantizable_folder: Path, tokenizer: Tokenizer) -> None:
    """Logits of the KV-cached loop equal those of the whole text at once."""
    import torch

    from twofold.engine.graph.registry import graph_of
    from twofold.engine.quantize.self_calibration import _Cache, _CachedOps
    from twofold.engine.torch_ops import run_model

    spec = read_folder_spec(quantizable_folder, name="tiny")
    texts = torch.randint(0, spec.vocab_size, (2, 9), generator=torch.Generator().manual_seed(0))
    lanes = torch.arange(2)
    with open_weights(quantizable_folder) as source, torch.no_grad():
        cache = _Cache(2, 9)
        for position in range(9):
            logits = graph_of(spec).forward(_CachedOps(spec, source.tensor, texts[:, position], cache, lanes), spec)
            cache.lengths += 1
        for lane in range(2):
            expected = run_model(spec, texts[lane], source.tensor)[-1]
            torch.testing.assert_close(logits[lane], expected, rtol=1e-4, atol=1e-4)


def test_choice_of_text(quantizable_folder: Path, tmp_path: Path) -> None:
    spec = read_folder_spec(quantizable_folder, name="someone/model")
    own = read_folder_spec(quantizable_folder, name="HuggingFaceTB/SmolLM2-135M-Instruct")
    assert choose(None, own, 8192, _rates(50), None).kind == "shipped"
    assert choose(None, spec, 8192, _rates(50), None).kind == "self"
    assert choose(None, spec, 8192, _rates(1e-6), None).kind == "shipped"
    assert choose(None, spec, 8192, _rates(50), 1).kind == "shipped"
    assert choose("self", own, 8192, _rates(50), None).time is not None
    (tmp_path / "x.txt").write_text(WORDS)
    assert choose(str(tmp_path / "x.txt"), spec, 8192, _rates(50), None).path == tmp_path / "x.txt"
    with pytest.raises(InvalidCalibration, match="does not exist"):
        choose(str(tmp_path / "none.txt"), spec, 8192, _rates(50), None)
    for bad in (0, -1, 10**9):
        with pytest.raises(InvalidOption, match="calibrate with"):
            choose(None, spec, bad, _rates(50), None)
