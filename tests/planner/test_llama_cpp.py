"""llama.cpp's needs against publicly reported peaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from twofold.planner.llama_cpp import QUANTS, alternatives, as_it_is, file_weights, llama_weights
from twofold.planner.machine import MachineBudget
from twofold.planner.memory import CUDA_CONTEXT_MIB
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.gguf_header import read_gguf_header
from twofold.profiles.readers.local import read_gguf_spec

Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]


@pytest.mark.parametrize("row, quant", [("A01", "Q4_K_M"), ("A05", "Q4_K_M"), ("A09", "Q4_K_M"), ("A16", "Q6_K")])
def test_reported_peaks_lie_in_the_range(shipped: Shipped, card_alone: Machines, row: str, quant: str) -> None:
    lines = files("twofold.profiles").joinpath("data/reported_peaks.jsonl").read_text("utf-8").splitlines()
    peak = next(found for found in map(json.loads, lines) if found["id"] == row)
    card = card_alone("RTX 5090").cards[0]
    found = alternatives(shipped("Qwen/Qwen3.8-27B"), peak["ctx"], peak["kv"], card, None, 512)
    vram = next(one.vram_mib for one in found if one.quant == quant)
    assert vram.low is not None and vram.high is not None
    assert vram.low <= peak["measured_mib"] <= vram.high
    assert vram.number == pytest.approx(peak["measured_mib"], rel=0.035)


def test_better_quants_are_larger(shipped: Shipped) -> None:
    for repo in ("Qwen/Qwen3-8B", "HuggingFaceTB/SmolLM2-135M", "google/gemma-4-31B-it"):
        sizes = [llama_weights(shipped(repo), quant).card for quant in QUANTS]
        assert sizes == sorted(sizes, reverse=True)


def test_q8_0_is_34_bytes_per_32_weights(shipped: Shipped) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    linears = spec.n_decoder_weights + spec.vocab_size * spec.hidden_size
    weights = llama_weights(spec, "Q8_0")
    assert weights.card == pytest.approx(linears * 34 / 32, rel=1e-3)
    assert weights.host == spec.vocab_size * spec.hidden_size * 34 // 32


def test_what_does_not_fit_is_offloaded_by_layers(shipped: Shipped, card_and_host: Machines) -> None:
    machine = card_and_host("RTX 4090")
    found = alternatives(shipped("google/gemma-4-31B-it"), 32768, "f16", machine.cards[0], machine.host, 512)
    assert [one.quant for one in found] == ["Q4_K_M", "Q8_0", "Q6_K"]
    q8 = found[1]
    assert q8.fits_card is False
    assert q8.layers_on_card is not None and 20 < q8.layers_on_card < 60
    assert f"-ngl {q8.layers_on_card}" in q8.command
    assert q8.tok_s.number < found[0].tok_s.number / 5
    assert "-c 32768 -ctk f16 -ctv f16" in q8.command


def test_without_a_card_it_runs_on_the_cpu(shipped: Shipped, machine: Machines) -> None:
    host = machine(available_mib=12000.0).host
    found = alternatives(shipped("Qwen/Qwen3-8B"), 8192, "f16", None, host, 512)
    assert all(one.fits_card is None for one in found)
    assert [one.fits_ram for one in found] == [True, True, True]
    host = machine(available_mib=8000.0).host
    found = alternatives(shipped("Qwen/Qwen3-8B"), 8192, "f16", None, host, 512)
    assert [one.fits_ram for one in found] == [False, False, True]


def test_a_file_as_it_is_takes_its_own_size(shipped: Shipped, card_alone: Machines) -> None:
    card = card_alone("RTX 4090").cards[0]
    one = as_it_is(shipped("HuggingFaceTB/SmolLM2-135M"), 98_362_432, "-m my.gguf", 8192, "f16", card, None, 512)
    assert one.fits_card
    assert one.command.startswith("llama-server -m my.gguf -c 8192")
    assert one.vram_mib.number == pytest.approx(98_362_432 / 2**20 + 180 + 8 + CUDA_CONTEXT_MIB[1], abs=1)


def test_a_gguf_is_counted_by_its_tensors(smollm2_gguf: Path, card_alone: Machines) -> None:
    header = read_gguf_header(smollm2_gguf)
    spec = read_gguf_spec(smollm2_gguf)
    tensors = {name: info.n_bytes for name, info in header.tensors.items() if info.n_bytes is not None}
    found = file_weights(spec, tensors)
    table = tensors["token_embd.weight"]
    assert "output.weight" not in tensors, "tied: on the host for look-ups, on the card as the head"
    assert found.host == table
    assert found.card == sum(tensors.values())
    assert len(found.per_layer) == spec.n_layers and sum(found.per_layer) + table < found.card
    untied = file_weights(spec, {**tensors, "output.weight": 1000, "blk.30.nextn.weight": 5000})
    assert untied.card == found.card - table + 1000, "a block behind the last layer is a draft head: not loaded"
    card = card_alone("RTX 4090").cards[0]
    facts = (spec, header.file_bytes, "-m x.gguf", 8192, "f16", card, None, 512)
    exact, by_size = as_it_is(*facts, tensors), as_it_is(*facts)
    assert exact.vram_mib.low is not None and exact.vram_mib.high is not None
    assert exact.vram_mib.high - exact.vram_mib.low == pytest.approx(CUDA_CONTEXT_MIB[2] - CUDA_CONTEXT_MIB[0], abs=0.2)
    assert exact.vram_mib.number == pytest.approx(by_size.vram_mib.number, rel=0.01)
