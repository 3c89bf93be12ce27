"""Mixtures of experts: memory holds all of them, a pass reads those that its tokens choose."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.planner.codecs import base_bytes, residual_bytes
from twofold.planner.knobs import Knobs
from twofold.planner.latency import SpeedModel, estimate_speed
from twofold.planner.llama_cpp import llama_weights
from twofold.planner.machine import MachineBudget
from twofold.planner.passes import Work
from twofold.planner.request import Request
from twofold.planner.verdict import fit
from twofold.profiles.model_spec import LinearGroup, LinearSpec, ModelSpec

Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]
CPU = Knobs("cpu", 8192, 6, "f16", "f16", (), 0, 0, 64, 8, "avx512")


@pytest.mark.parametrize(
    ("repo", "billions"),
    # "A3B" and "A4B" count the embedding or not; a gpt-oss-20b token uses 3.6 billion parameters, embeddings included.
    [("Qwen/Qwen3.5-35B-A3B", 2.9), ("google/gemma-4-26B-A4B-it", 3.8), ("openai/gpt-oss-20b", 3.6)],
)
def test_the_weights_that_a_token_uses_are_those_in_the_name(shipped: Shipped, repo: str, billions: float) -> None:
    assert shipped(repo).n_used_weights / 1e9 == pytest.approx(billions, rel=0.1)


def test_a_dense_model_uses_all_of_its_weights(shipped: Shipped) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    assert spec.n_used_weights == spec.n_decoder_weights + spec.head.members[0].n_weights


def test_expected_share_of_experts() -> None:
    expert = LinearSpec("w", 64, 64, copies=256, used_copies=8)
    assert expert.share_read(1) == pytest.approx(8 / 256)
    # Two tokens with 8 of 256 each: 16 less the expected overlap of 8 · 8 / 256.
    assert expert.share_read(2) == pytest.approx((16 - 0.25) / 256)
    assert 0.999 < expert.share_read(512) < 1
    assert replace(expert, used_copies=None).share_read(1) == replace(expert, used_copies=256).share_read(1) == 1


def test_one_row_reads_the_used_experts_and_a_prompt_reads_nearly_all(shipped: Shipped) -> None:
    spec = shipped("Qwen/Qwen3.5-35B-A3B")
    work = Work.of(spec, CPU, 1024)
    base = sum(base_bytes(group) for group in spec.groups)
    experts = sum(base_bytes(group) for group in spec.groups if ".experts." in group.name)
    assert work.base_read(1) == pytest.approx(base - experts * (1 - 8 / 256))
    everything = base + sum(residual_bytes(group, 6) for group in spec.groups)
    assert work.base_read(2048) + work.residual_read(2048) == pytest.approx(everything, rel=1e-6)
    assert work.used_weights == pytest.approx(spec.n_used_weights, rel=1e-6)


def test_speed_is_that_of_the_used_weights(shipped: Shipped, machine: Machines) -> None:
    """A 35B of which a token uses 3B decodes about as fast as a dense 3B, and ten times as fast as if it read all."""
    spec, host = shipped("Qwen/Qwen3.5-35B-A3B"), machine().host
    known = SpeedModel(spec, CPU, None, host).likely_tok_s()

    def forget(group: LinearGroup) -> LinearGroup:
        return replace(group, members=tuple(replace(member, used_copies=None) for member in group.members))

    layers = tuple(replace(one, groups=tuple(map(forget, one.groups))) for one in spec.layers)
    unknown = SpeedModel(replace(spec, layers=layers), CPU, None, host).likely_tok_s()
    assert known is not None and unknown is not None
    assert 7 < known / unknown < 13


def test_a_tree_reads_more_experts_than_a_token(shipped: Shipped, card_and_host: Machines) -> None:
    spec, machine = shipped("Qwen/Qwen3.5-35B-A3B"), card_and_host("RTX 4090")
    knobs = CPU.with_(device="cuda", prefill_chunk=512)
    one = estimate_speed(spec, knobs, machine.cards[0], machine.host).host_ms.number
    sixteen = estimate_speed(spec, knobs.with_(draft_nodes=15, draft_depth=5), machine.cards[0], machine.host)
    assert 3 < sixteen.host_ms.number / one < 16


def test_llama_cpp_reads_the_used_experts_too(shipped: Shipped, card_alone: Machines) -> None:
    spec = shipped("Qwen/Qwen3.5-35B-A3B")
    weights = llama_weights(spec, "Q4_K_M")
    read = (weights.card - weights.idle) * 8
    assert 3.5 < read / spec.n_used_weights < 6.6  # bits
    report = fit(spec, card_alone("RTX 5090"), Request())
    q4 = next(one for one in report.alternatives if one.quant == "Q4_K_M")
    assert q4.fits_card and q4.tok_s.number > 200
    note = next(note for note in report.notes if "experts" in note)
    assert "all 256 experts" in note and "uses 8 of them" in note


def test_all_experts_take_memory(shipped: Shipped) -> None:
    """An estimator that counted the active ones said 33 GB where 70 to 75 were right."""
    for repo in ("Qwen/Qwen3.5-35B-A3B", "google/gemma-4-26B-A4B-it", "openai/gpt-oss-20b"):
        spec = shipped(repo)
        assert llama_weights(spec, "Q8_0").card > spec.n_decoder_weights * 34 / 32


def test_llama_cpp_leaves_experts_in_ram_before_layers(shipped: Shipped, card_and_host: Machines) -> None:
    """What people do with a mixture that the card does not hold: a token hardly reads what is in RAM then."""
    spec, machine = shipped("Qwen/Qwen3.5-35B-A3B"), card_and_host("RTX 4090", gb_s=50)
    q8 = next(one for one in fit(spec, machine, Request()).alternatives if one.quant == "Q8_0")
    assert q8.fits_card is False and q8.layers_on_card == spec.n_layers
    found = re.search(r" -ngl 99 --n-cpu-moe (\d+)$", q8.command)
    assert found is not None and 10 < int(found[1]) < 25
    assert f"{40 - int(found[1])} of 40 layers' experts in VRAM" in q8.note
    assert q8.tok_s.number > 45
    small = fit(spec, card_and_host("RTX 4090", gb_s=50), Request())
    assert all("--n-cpu-moe" not in one.command for one in small.alternatives if one.fits_card)
    dense = fit(shipped("Qwen/Qwen3-32B"), machine, Request()).alternatives
    assert all("--n-cpu-moe" not in one.command for one in dense)
