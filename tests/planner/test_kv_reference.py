"""Cache and state of every shipped model, counted a second time here from the raw facts of its configuration; and the
cases in which other estimators went wrong, each with the figure that was right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from twofold.planner.kv import CacheBytes, cache_bytes
from twofold.planner.llama_run import LlamaRun, run_terms
from twofold.planner.plan import KvType
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config
from twofold.profiles.readers.shipped import shipped_ids, shipped_spec

MIB, GIB = 1 << 20, 1 << 30
BITS = {"f16": 16.0, "q8_0": 34 * 8 / 32, "q4_0": 18 * 8 / 32}
"""Bits of a cached number: a block is 32 of them with one fp16 scale."""

FACTS: dict[str, dict[str, Any]] = json.loads(
    files("twofold.profiles").joinpath("data/model_configs.json").read_text("utf-8")
)


def _kinds(facts: dict[str, Any]) -> list[str]:
    pattern, repeats = facts["layer_types"]
    return [kind for _ in range(repeats) for kind, count in pattern for _ in range(count)]


def _heads(facts: dict[str, Any], kind: str) -> int:
    """Numbers of K (and as many of V) that one token adds to one layer."""
    if kind == "full_attention" and "global_head_dim" in facts:
        # Where K and V share a projection the full layers have their own number of heads; both are cached all the same.
        n = facts["num_global_key_value_heads"] if facts["attention_k_eq_v"] else facts["num_key_value_heads"]
        return int(n * facts["global_head_dim"])
    return int(facts["num_key_value_heads"] * facts["head_dim"])


def counted(facts: dict[str, Any], context: int, k_type: str, v_type: str, extra: int) -> tuple[float, float, float]:
    """Bytes of growing layers, of sliding layers (`extra` tokens beyond the window), and of one recurrent state."""
    kinds = _kinds(facts)
    owning = kinds[: len(kinds) - facts.get("num_kv_shared_layers", 0)]
    per_number = (BITS[k_type] + BITS[v_type]) / 8
    growing = sum(_heads(facts, kind) for kind in owning if kind == "full_attention") * per_number * context
    tokens = min(context, facts.get("sliding_window", 0) + extra)
    sliding = sum(_heads(facts, kind) for kind in owning if kind == "sliding_attention") * per_number * tokens
    state = 0.0
    if "linear_attention" in kinds:
        n_k, n_v, dim = facts["linear_num_key_heads"], facts["linear_num_value_heads"], facts["linear_key_head_dim"]
        assert dim == facts["linear_value_head_dim"] == 128
        # A matrix for each value head, and the last three inputs of the convolution over q, k and v, all in fp32.
        state = 4.0 * kinds.count("linear_attention") * (n_v * dim * dim + 3 * (2 * n_k * dim + n_v * dim))
    return growing, sliding, state


@pytest.mark.parametrize("kinds", [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0")])
@pytest.mark.parametrize("context", [4096, 32768])
@pytest.mark.parametrize("repo", shipped_ids())
def test_every_model_at_two_contexts(repo: str, context: int, kinds: tuple[KvType, KvType]) -> None:
    spec = shipped_spec(repo)
    assert spec is not None
    growing, sliding, state = counted(FACTS[repo], context, *kinds, extra=512)
    found = cache_bytes(spec, context, *kinds, largest_pass=512, live_copies=2)
    assert abs(found.growing - growing) <= 0.01 * MIB
    assert abs(found.sliding - sliding) <= 0.01 * MIB
    assert abs(found.recurrent - 2 * state) <= 0.01 * MIB
    assert growing > 0


def test_gemma_4_caches_k_and_v_though_they_share_a_projection(shipped: Callable[[str], ModelSpec]) -> None:
    spec = shipped("google/gemma-4-31B-it")
    full = [layer for layer in spec.layers if layer.kind == "growing"]
    assert [len(layer.groups[0].members) for layer in full] == [2] * 10, "no V projection"
    # 10 layers × (K and V) × 4 heads × 512.
    assert cache_bytes(spec, 1).growing == 10 * 2 * 4 * 512 * 2


def _gib(cache: CacheBytes) -> float:
    return cache.total / GIB


def test_c01_the_log_of_a_35b_a3b(shipped: Callable[[str], ModelSpec]) -> None:
    """llama.cpp's log at 65,536 tokens and two drafted: KV 1280.00 MiB, RS 188.44 MiB, three copies of 62.81."""
    terms = {
        term.name: term.bytes / MIB for term in run_terms(shipped("Qwen/Qwen3.5-35B-A3B"), LlamaRun(65536, "f16", 2))
    }
    assert terms["kv"] == 1280.0
    assert terms["recurrent_state"] == pytest.approx(188.44, abs=0.005)
    assert terms["recurrent_state"] / 3 == 62.8125


def test_e01_e20_only_the_ten_attention_layers_grow(shipped: Callable[[str], ModelSpec]) -> None:
    cache = cache_bytes(shipped("Qwen/Qwen3.5-35B-A3B"), 8192)
    assert cache.growing_per_token == 20_480
    assert cache.state_per_copy == 62.8125 * MIB, "matrices, not vectors"


def test_e23_blocks_take_1_0625_and_0_5625_bytes(shipped: Callable[[str], ModelSpec]) -> None:
    spec = shipped("meta-llama/Llama-3.1-8B")
    numbers = 2 * 32 * 8 * 128
    for kind, size in (("q8_0", 1.0625), ("q4_0", 0.5625)):
        assert cache_bytes(spec, 1000, kind, kind).growing == numbers * 1000 * size  # type: ignore[arg-type]


def test_e02_a_27b_at_64k(shipped: Callable[[str], ModelSpec]) -> None:
    """Qwen3.6-27B, some Q4_K_M file, q8_0 cache, one slot: 17.6 GiB were measured; 24.83 were said."""
    from twofold.planner.llama_fit import LlamaFile, memory_of

    found, calibration = memory_of(shipped("Qwen/Qwen3.5-27B"), LlamaFile("Q4_K_M"), LlamaRun(65536, "q8_0"), (), None)
    assert calibration is None
    assert found.low / GIB <= 17.6 <= found.high / GIB
    assert found.total / GIB == pytest.approx(17.6, rel=0.02)


def test_e03_hybrid_27b_at_256k(shipped: Callable[[str], ModelSpec]) -> None:
    """53.25 GB were said; 16.00 (GiB) are right."""
    assert cache_bytes(shipped("Qwen/Qwen3.5-27B"), 262_144).growing == 16 * GIB


GEMMA_3_27B = {
    "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
    "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
    "vocab_size": 262208, "max_position_embeddings": 131072,
}  # fmt: skip


def _read(config: dict[str, Any]) -> ModelSpec:
    return spec_from_config(config, name="test", facts_source="published config")


def test_e04_e06_sliding_layers_keep_a_window() -> None:
    """Gemma 3 27B at 128K: 81.38 GB were said, 10.41 (GiB) are right. At 85K another tool said 139 GB for about 32 in
    all: an 8-bit file of its 27 billion weights is 27 GiB of that.
    """
    spec = _read(GEMMA_3_27B)
    assert _gib(cache_bytes(spec, 131_072)) == pytest.approx(10.41, abs=0.005)
    assert _gib(cache_bytes(spec, 85 * 1024)) == pytest.approx(7.05, abs=0.01)
    assert _gib(cache_bytes(spec, 85 * 1024)) + spec.n_parameters * 34 / 32 / GIB == pytest.approx(32, rel=0.1)


def test_e07_a_12b_at_128k_runs_inside_24_gb(
    shipped: Callable[[str], ModelSpec], card_alone: Callable[[str], Any]
) -> None:
    """58 GB were said for gemma-4-12b with a q8_0 cache; its Q8_0 file runs on a 24 GB card."""
    from twofold.planner.llama_cpp import alternatives

    card = card_alone("RTX 3090").cards[0]
    found = alternatives(shipped("google/gemma-4-12B-it"), 131_072, "q8_0", card, None, 512)
    assert next(one for one in found if one.quant == "Q8_0").fits_card


# config.json of the publishers, less what does not decide the cache.
_LATENT = {
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "num_attention_heads": 128, "num_hidden_layers": 61, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "context", "gib"), [("deepseek_v3", 163_840, 10.72), ("kimi_k2", 262_144, 17.16)]
)
def test_e09_latent_layers_cache_one_vector(model_type: str, context: int, gib: float) -> None:
    """DeepSeek-V3.1 and Kimi-K2.5: 2.08 and 6.67 GB were said; 61 layers × 576 numbers a token are right."""
    spec = _read(_LATENT | {"model_type": model_type, "max_position_embeddings": context})
    cache = cache_bytes(spec, context)
    assert cache.growing_per_token == 61 * 576 * 2
    assert _gib(cache) == pytest.approx(gib, abs=0.005)


def test_e09_a_draft_layer_caches_one_vector_more() -> None:
    """GLM-5: 5.73 GB were said and 17.18 (GiB) are right, for 78 layers and the one that drafts."""
    glm = _LATENT | {"model_type": "deepseek_v3", "num_hidden_layers": 78, "max_position_embeddings": 202_752}
    spec = _read(glm | {"num_nextn_predict_layers": 1})
    terms = {term.name: term.bytes for term in run_terms(spec, LlamaRun(202_752, "f16", 1))}
    assert (terms["kv"] + terms["draft_kv"]) / GIB == pytest.approx(17.18, abs=0.01)


def test_e10_explicit_head_widths() -> None:
    """Qwen3-0.6B has heads of 128, not of hidden / heads = 64: 4.38 (GiB) at 40,960 tokens, where 2.19 were said."""
    config = {
        "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 40960,
    }  # fmt: skip
    assert _gib(cache_bytes(_read(config), 40_960)) == pytest.approx(4.375, abs=0.001)


def test_e21_a_family_that_is_not_known_is_no_number() -> None:
    from twofold.profiles.errors import UnsupportedModel

    with pytest.raises(UnsupportedModel, match="rwkv7"):
        _read({"model_type": "rwkv7", "hidden_size": 1024, "num_hidden_layers": 12})


def test_e24_right_at_two_contexts(shipped: Callable[[str], ModelSpec]) -> None:
    """Errors that cancel at 8K do not at 256K: the slope is exact, and the state has none."""
    spec = shipped("Qwen/Qwen3.8-27B")
    short, long = cache_bytes(spec, 8192), cache_bytes(spec, 262_144)
    assert (long.total - short.total) / (262_144 - 8192) == 65_536
    assert short.total - 8192 * 65_536 == 156_893_184
