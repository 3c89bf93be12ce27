"""The comparison as a person runs it, and llama.cpp itself on the file that is made for it.

What needs llama.cpp is skipped without the extra `bench`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from versus.llama_side import LlamaSide, missing_reason
from versus.model import context_for
from versus.quality import first_texts, measure_quality
from versus.workers import Worker

from twofold.profiles.errors import InvalidOption, TwofoldError

_reason = missing_reason()
needs_llama_cpp = pytest.mark.skipif(_reason is not None, reason=f"needs the extra [bench]: {_reason}")


def _run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "against_llama_cpp.py"), *options],
        capture_output=True, text=True, env=os.environ | variables, timeout=900, check=False,
    )  # fmt: skip


def test_without_llama_cpp_it_says_how_to_get_it(benchmarks_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "llama_cpp"  # stands in front of a real one
    broken.mkdir()
    (broken / "__init__.py").write_text("raise OSError('libllama.so: cannot open shared object file')\n")
    done = _run(benchmarks_folder, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "llama-cpp-python cannot be used: OSError: libllama.so" in done.stderr
    assert "hint: pip install '.[bench]'" in done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [("--tokens", "0"), ("--rounds", "-1"), ("--format", "xml"), ("--nonsense",)])
def test_wrong_usage_is_refused(benchmarks_folder: Path, options: tuple[str, ...]) -> None:
    assert _run(benchmarks_folder, *options).returncode == 2


def test_a_context_that_is_too_short_is_named(smollm2_gguf: Path) -> None:
    from twofold.profiles.sources import read_spec, resolve

    spec = read_spec(resolve(str(smollm2_gguf)))
    assert context_for(spec, longest_chat=100, tokens=64, prompt_tokens=512, longest_text=700) == 768
    assert context_for(spec, longest_chat=100, tokens=64, prompt_tokens=8191, longest_text=0) == 8192
    with pytest.raises(InvalidOption, match="too short") as caught:
        context_for(spec, longest_chat=100, tokens=8192, prompt_tokens=512, longest_text=0)
    assert (caught.value.found, caught.value.needed) == ("8192 tokens", "8292 tokens")


def test_few_tokens_come_from_few_texts() -> None:
    texts = [tuple(range(i, i + 400)) for i in range(5)]
    assert first_texts(texts, None, 300) == [text[:300] for text in texts]
    assert first_texts(texts, 40, 300) == [texts[0][:40]]
    cut = first_texts(texts, 300, 350)
    assert [len(text) for text in cut] == [150, 150]
    assert sum(map(len, first_texts(texts, 100_000, 350))) == 5 * 350


@pytest.fixture(scope="module")
def llama(one_layer_q8_0: Path) -> Iterator[Worker]:
    worker = Worker("llama.cpp", LlamaSide, path=one_layer_q8_0, threads=1, context_tokens=256)
    yield worker
    worker.close()


@needs_llama_cpp
@pytest.mark.slow
def test_llama_cpp_computes_the_source_from_the_q8_0_file(llama: Worker, one_layer_gguf: Path) -> None:
    from twofold.engine.text import Tokenizer
    from twofold.profiles.sources import read_spec, resolve

    tokenizer = Tokenizer.from_gguf(one_layer_gguf)
    texts = [tokenizer.encode("The capital of France is Paris, and the river is the Seine. " * 12)[:150], [5, 6, 7]]
    found = measure_quality(
        read_spec(resolve(str(one_layer_gguf))),
        one_layer_gguf,
        texts,
        {"llama.cpp": lambda text: llama.ask("logits", text)},
    )
    kl = found.kl["llama.cpp"]
    assert kl.n == 153
    assert 0 < kl.number < 0.01  # Q8_0 against its own source: another layout, a lost row or bias would be far off


@needs_llama_cpp
@pytest.mark.slow
def test_llama_cpp_answers_what_its_logits_say(llama: Worker) -> None:
    tokens = llama.ask("tokenize", "<|im_start|>user\nHello<|im_end|>\n")
    assert tokens[0] == 1 and 2 in tokens
    answer = llama.ask("decode", tokens, 6)
    assert len(answer.tokens) == 6 and answer.seconds > 0
    logits = llama.ask("logits", [*tokens, *answer.tokens])
    expected = logits[len(tokens) - 1 : -1].argmax(axis=1)
    assert np.array_equal(answer.tokens, expected)
    again = llama.ask("decode", tokens, 6)
    assert again.tokens == answer.tokens  # nothing is left of the text before
    assert llama.ask("prefill", tokens) > 0
    about = llama.ask("about")
    assert "llama-cpp-python" in about["version"] and "CPU" in about["features"]
    assert sum(about["buffers_mib"].values()) > 20


@needs_llama_cpp
def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "no.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(TwofoldError, match=r"llama.cpp cannot load no.gguf"):
        Worker("llama.cpp", LlamaSide, path=path, threads=1, context_tokens=64)


@needs_llama_cpp
@pytest.mark.slow
def test_the_whole_comparison(benchmarks_folder: Path, one_layer_gguf: Path) -> None:
    few = ("--tokens", "6", "--prompt-tokens", "40", "--rounds", "2", "--prefill-rounds", "2", "--kl-tokens", "96",
           "--threads", "1", "--yes")  # fmt: skip
    done = _run(
        benchmarks_folder, "--model", str(one_layer_gguf), "--draft-nodes", "2", "--format", "json", "--no-judge", *few
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ratio = found["ratios"]["llama_cpp_q8_0"]
    assert set(ratio) == {"decode", "plain", "prefill"}
    assert all(one["source"] == "measured" and one["n"] == 2 and one["value"] > 0 for one in ratio.values())
    assert found["checks"]["kernels"]["equal_bits"] is True
    assert found["checks"]["answers_with_equal_text"] > 0
    assert found["checks"]["prompts_with_equal_tokens"] == 16
    quality = found["quality"]
    assert {"twofold", "llama_cpp_q8_0", "llama_cpp_source"} <= set(quality)
    assert all(quality[name]["kl"]["n"] == 96 for name in ("twofold", "llama_cpp_q8_0", "llama_cpp_source"))
    assert found["source"]["types"] == "Q8_0/Q4_1"
    assert found["bars"] == [] and found["llama_cpp"]["features"]
