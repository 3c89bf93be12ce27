"""Cache and state bytes against published figures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.kv import cache_bytes, row_bytes
from twofold.planner.plan import KvType
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.shipped import shipped_ids

GIB = 1 << 30


@pytest.mark.parametrize("repo", ["Qwen/Qwen3.8-27B", "Qwen/Qwen3.5-27B"])
@pytest.mark.parametrize("kv, per_token, gib", [("f16", 65536, 8.0), ("q8_0", 34816, 4.25), ("q4_0", 18432, 2.25)])
def test_hybrid_27b(shipped: Callable[[str], ModelSpec], repo: str, kv: KvType, per_token: int, gib: float) -> None:
    cache = cache_bytes(shipped(repo), 131072, kv, kv)
    assert cache.growing_per_token == per_token
    assert cache.growing == gib * GIB
    assert cache.state_per_copy == cache.recurrent == 156_893_184
    assert cache.sliding == 0


def test_hybrid_state_grows_with_live_copies_and_not_with_context(shipped: Callable[[str], ModelSpec]) -> None:
    spec = shipped("Qwen/Qwen3.5-27B")
    assert cache_bytes(spec, 1024, live_copies=3).recurrent == 3 * 156_893_184
    assert cache_bytes(spec, 262144).recurrent == 156_893_184


def test_mixture_of_experts_hybrid(shipped: Callable[[str], ModelSpec]) -> None:
    spec = shipped("Qwen/Qwen3.5-35B-A3B")
    cache = cache_bytes(spec, 65536)
    assert cache.growing_per_token == 20480
    assert cache.growing == 1280 << 20
    assert cache.recurrent / (1 << 20) == 62.8125


# Numbers per token of the growing layers, and MiB of a full window in 16 bits.
PUBLISHED = {
    "Qwen/Qwen3.8-27B": (32768, 0),
    "Qwen/Qwen3.5-27B": (32768, 0),
    "Qwen/Qwen3.5-9B": (16384, 0),
    "Qwen/Qwen3.5-4B": (16384, 0),
    "Qwen/Qwen3.5-35B-A3B": (10240, 0),
    "google/gemma-3-270m": (2 * 3 * 1 * 256, 7.5),
    "google/gemma-4-31B-it": (40960, 800),
    "google/gemma-4-12B-it": (8192, 320),
    "google/gemma-4-26B-A4B-it": (10240, 200),
    "google/gemma-4-E4B-it": (8192, 20),
    "meta-llama/Llama-3.1-8B": (2 * 32 * 8 * 128, 0),
    "Qwen/Qwen3-8B": (2 * 36 * 8 * 128, 0),
    "Qwen/Qwen3-32B": (2 * 64 * 8 * 128, 0),
    "openai/gpt-oss-20b": (2 * 12 * 8 * 64, 3),
    "HuggingFaceTB/SmolLM2-135M": (2 * 30 * 3 * 64, 0),
}


@pytest.mark.parametrize("context", [8192, 32768])
def test_every_shipped_model_at_two_contexts(shipped: Callable[[str], ModelSpec], context: int) -> None:
    assert set(shipped_ids()) == set(PUBLISHED)
    for repo, (numbers, window_mib) in PUBLISHED.items():
        cache = cache_bytes(shipped(repo), context)
        assert cache.growing == numbers * 2 * context, repo
        assert cache.sliding == int(window_mib * 2**20), repo
        q8 = cache_bytes(shipped(repo), context, "q8_0", "q4_0")
        assert q8.growing * 32 * 2 == numbers * context * (34 + 18), repo


def test_a_window_is_capped_by_the_context_and_widened_by_the_largest_pass(odd_model: ModelSpec) -> None:
    per_token = 2 * 2 * 40 * 2
    assert cache_bytes(odd_model, 50, largest_pass=16).sliding == 50 * per_token
    assert cache_bytes(odd_model, 110, largest_pass=16).sliding == 110 * per_token
    assert cache_bytes(odd_model, 4096, largest_pass=16).sliding == 116 * per_token


def test_shared_layers_cost_nothing_and_latent_ones_one_vector(odd_model: ModelSpec) -> None:
    cache = cache_bytes(odd_model, 10)
    assert cache.growing == 10 * (2 * 2 * 40 * 2 + 72 * 2)
    assert cache.recurrent == 12345


def test_blocks_are_padded_per_head() -> None:
    assert row_bytes(40, "q8_0") == 2 * 34
    assert row_bytes(64, "q4_0") == 2 * 18
    assert row_bytes(40, "f16") == 80
