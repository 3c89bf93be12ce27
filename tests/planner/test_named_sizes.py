"""Sizes in the names of files: which contradict a model, and which are rounding, a context or another count."""

from __future__ import annotations

import pytest

from twofold.planner.llama_fit import LlamaFile, fit_llama
from twofold.planner.llama_run import LlamaRun
from twofold.planner.machine import from_card
from twofold.planner.named_sizes import contradicts, model_of, stated_sizes
from twofold.planner.observed import is_of
from twofold.profiles.cards import find_card
from twofold.profiles.errors import InvalidOption
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.observations import shipped_observations
from twofold.profiles.readers.shipped import shipped_ids, shipped_spec, shipped_specs


def shipped(name: str) -> ModelSpec:
    spec = shipped_spec(name)
    assert spec is not None
    return spec


@pytest.mark.parametrize("name", shipped_ids())
def test_a_models_own_name_is_its_size(name: str) -> None:
    assert contradicts(shipped(name), f"{name.split('/')[-1]}-Q6_K.gguf") is None


def test_every_reported_run_is_of_its_models_size() -> None:
    checked = 0
    for spec in shipped_specs():
        for one in shipped_observations():
            if is_of(spec, one):
                assert contradicts(spec, one.model) is None, one.model
                checked += 1
    assert checked > 30


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen3.8-27B Q6_K"),
        ("Qwen/Qwen3-8B", "Qwen3-0.6B Q8_0"),
        ("Qwen/Qwen3-8B", "qwen3:32b"),
        ("Qwen/Qwen3-8B", "Qwen3-30B-A3B-Q4_K_M.gguf"),
        ("Qwen/Qwen3-8B", "/models/Mixtral-8x7B-v0.1.Q4_K_M.gguf"),
        ("Qwen/Qwen3-8B", "SmolLM2-135M-Instruct.Q4_1"),
        ("HuggingFaceTB/SmolLM2-135M", "SmolLM2-360M Q8_0"),
        ("HuggingFaceTB/SmolLM2-135M", "Qwen3-1.7B Q8_0"),
    ],
)
def test_another_size_is_a_contradiction(model: str, name: str) -> None:
    assert contradicts(shipped(model), name) is not None


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "my file"),
        ("Qwen/Qwen3-8B", "Q4_K_M"),
        ("Qwen/Qwen3-8B", "Qwen3-7B Q6_K"),  # counts without the embedding
        ("Qwen/Qwen3-8B", "DeepSeek-R1-0528-Qwen3-8B-UD-Q4_K_XL"),
        ("Qwen/Qwen3-8B", "8B distilled from 70B Q4_K_M"),
        ("Qwen/Qwen3-8B", "Qwen3-1M-Q4_K_M"),  # a context
        ("Qwen/Qwen3-8B", "Qwen3 4bit 16 GB"),
        ("Qwen/Qwen3-8B", "old_v1_8B"),
        ("google/gemma-4-E4B-it", "gemma-4-E4B-it-Q8_0"),
        ("Qwen/Qwen3.5-35B-A3B", "Qwen3.5 A3B Q4_K_M"),
    ],
)
def test_what_may_be_the_model_passes(model: str, name: str) -> None:
    assert contradicts(shipped(model), name) is None


def test_experts_share_attention() -> None:
    """Mixtral 8x7B has 46.7 and 8x22B 140.6 billion parameters."""
    ((_, (low, high)),) = stated_sizes("Mixtral-8x7B-Instruct")
    assert low < 46.7e9 < high < 80e9
    ((_, (low, high)),) = stated_sizes("Mixtral-8x22B")
    assert low < 140.6e9 < high


def test_the_judge_refuses_a_file_of_another_size() -> None:
    machine = from_card(find_card("RTX 4090"))
    run, seen = LlamaRun(8192, "f16"), shipped_observations()
    with pytest.raises(InvalidOption, match="no file of Qwen/Qwen3-8B") as refused:
        fit_llama(shipped("Qwen/Qwen3-8B"), LlamaFile("Qwen3.8-27B Q6_K"), run, machine, seen, None)
    assert "27B" in str(refused.value.found)
    assert "take Qwen/Qwen3.8-27B" in str(refused.value.hint)
    with pytest.raises(InvalidOption, match="no file of Qwen/Qwen3-8B"):
        fit_llama(shipped("Qwen/Qwen3-8B"), LlamaFile("My-27B", 9000), run, machine, seen, None)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Qwen3.8-27B Q6_K", "Qwen/Qwen3.8-27B"),
        ("Mirai S 27B", "Qwen/Qwen3.8-27B"),
        ("Ternary Bonsai 2 27B + MTP", "Qwen/Qwen3.8-27B"),
        ("qwen3-8b-q4_k_m.gguf", "Qwen/Qwen3-8B"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M", "meta-llama/Llama-3.1-8B"),
        ("gemma-4-31B IQ4_XS", "google/gemma-4-31B-it"),
        ("Qwen3.6-27B Q4_K_M", None),
        ("Qwen3-80B Q4_K_M", None),
        ("my file", None),
    ],
)
def test_the_model_that_a_name_is_of(name: str, model: str | None) -> None:
    found = model_of(name, shipped_specs(), shipped_observations())
    assert (found.name if found is not None else None) == model
