"""Verdicts on one file with llama.cpp, against what public runs did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.llama_fit import LlamaFile, LlamaFit, fit_llama
from twofold.planner.llama_run import LlamaRun
from twofold.planner.machine import from_card
from twofold.profiles.cards import find_card
from twofold.profiles.errors import InvalidOption
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.observations import shipped_observations

Shipped = Callable[[str], ModelSpec]


@pytest.fixture
def judge(shipped: Shipped) -> Callable[..., LlamaFit]:
    def _judge(
        name: str | None, run: LlamaRun, card: str, vram_mib: float | None = None, weights_mib: float | None = None
    ) -> LlamaFit:
        machine = from_card(find_card(card), vram_mib=vram_mib)
        spec, file = shipped("Qwen/Qwen3.8-27B"), LlamaFile(name, weights_mib)
        return fit_llama(spec, file, run, machine, shipped_observations(), None)

    return _judge


def test_runs_that_ran_are_not_refused_and_those_that_did_not_do_not_fit(judge: Callable[..., LlamaFit]) -> None:
    xyz = "Qwen3.8-27B XYZ Q4-v2"
    assert judge(xyz, LlamaRun(32768, "q4_0"), "RTX 5060 Ti 16GB", 15840).verdict == "fits"
    assert judge(xyz, LlamaRun(32768, "q4_0", 2), "RTX 5060 Ti 16GB", 15840).verdict == "fits"
    assert judge(xyz, LlamaRun(32768, "q4_0", 6), "RTX 5060 Ti 16GB", 15840).verdict == "does_not_fit"
    assert judge("Qwen3.8-27B IQ4_NL", LlamaRun(32768, "q4_0"), "RTX 5060 Ti 16GB", 15840).verdict == "does_not_fit"


def test_a_run_that_spilled_is_never_called_fitting(judge: Callable[..., LlamaFit]) -> None:
    file = "Qwen3.8-27B UD-IQ2_XXS"
    assert judge(file, LlamaRun(65536, "q4_0"), "RTX 3080 10GB").verdict in ("fits", "tight")  # the last resident one
    assert judge(file, LlamaRun(72 * 1024, "q4_0"), "RTX 3080 10GB").verdict in ("tight", "does_not_fit")
    assert judge(file, LlamaRun(32768, "q8_0", 2), "RTX 3080 10GB").verdict == "does_not_fit"


def test_the_answer_has_terms_provenance_and_what_fits_instead(judge: Callable[..., LlamaFit]) -> None:
    found = judge("Qwen3.8-27B XYZ Q4-v2", LlamaRun(32768, "q4_0", 6), "RTX 5060 Ti 16GB", 15840)
    document = found.to_json()
    memory = document["memory"]
    assert isinstance(memory, dict)
    assert memory["vram"]["total_mib"]["value"] == pytest.approx(16003, abs=20)
    assert isinstance(document["calibration"], dict) and document["calibration"]["observation"] == "A21"
    assert found.nearest and found.nearest[0].run.draft_mtp == 0
    assert found.exit_code == 4


def test_known_weights_take_the_range_of_constants(judge: Callable[..., LlamaFit]) -> None:
    found = judge(None, LlamaRun(131072, "q4_0"), "RTX 3060 12GB", weights_mib=7.61 * 1024)
    assert found.device.memory.total / 2**20 == pytest.approx(11.3 * 1024, abs=0.17 * 1024)
    assert found.device.memory.low / 2**20 <= 11.3 * 1024 <= found.device.memory.high / 2**20 + 1
    assert found.calibration is None


def test_the_second_seeds_peaks(judge: Callable[..., LlamaFit]) -> None:
    """11.1 GiB (Mirai S, 74K, q8_0) and 10.4 GiB (ternary file with its draft head, 128K, q4_0)."""
    mirai = judge(None, LlamaRun(75776, "q8_0"), "RTX 3060 12GB", weights_mib=7.61 * 1024)
    assert mirai.device.memory.total / 2**30 == pytest.approx(11.1, abs=0.17)
    bonsai = judge(None, LlamaRun(131072, "q4_0", 1), "RTX 3060 12GB", weights_mib=(5.27 + 0.99) * 1024)
    assert bonsai.device.memory.total / 2**30 == pytest.approx(10.39, abs=0.17)
    longer = judge(None, LlamaRun(196608, "q4_0", 1), "RTX 3060 12GB", weights_mib=(5.27 + 0.99) * 1024)
    assert longer.verdict == "does_not_fit"


def test_what_cannot_be_answered_is_refused(judge: Callable[..., LlamaFit], shipped: Shipped) -> None:
    with pytest.raises(InvalidOption, match="nothing is known"):
        judge("Qwen3.8-27B IQ9", LlamaRun(8192, "f16"), "RTX 4090")
    with pytest.raises(InvalidOption, match="longer than"):
        judge("Qwen3.8-27B Q6_K", LlamaRun(1 << 27, "f16"), "RTX 4090")
    machine = from_card(find_card("RTX 4090"))
    with pytest.raises(InvalidOption, match="no draft head"):
        fit_llama(shipped("Qwen/Qwen3-8B"), LlamaFile("Q8_0"), LlamaRun(8192, "f16", 2), machine, (), None)


def test_k_and_v_may_have_their_own_types(judge: Callable[..., LlamaFit]) -> None:
    both = judge(None, LlamaRun(65536, "q8_0", v_type="q4_0"), "RTX 4090", weights_mib=10000)
    kv = both.device.memory.find("kv")
    assert kv is not None and kv.bytes == 65536 * (34816 + 18432) // 2
    assert "-ctk q8_0 -ctv q4_0" in both.command
    plain = judge(None, LlamaRun(65536, "f16"), "RTX 4090", weights_mib=10000)
    quantised = judge(None, LlamaRun(65536, "f16", v_type="q8_0"), "RTX 4090", weights_mib=10000)
    assert plain.device.memory.find("dequantised_kv") is None
    assert quantised.device.memory.find("dequantised_kv") is not None


def test_slots_multiply_state_and_windows(judge: Callable[..., LlamaFit], shipped: Shipped) -> None:
    """Four default slots warn of 450 MB: three more states of 157 MB; and a window for each of them."""
    one, four = (judge(None, LlamaRun(8192, "f16", slots=n), "RTX 4090", weights_mib=9000) for n in (1, 4))
    assert four.device.memory.total - one.device.memory.total == 3 * 156_893_184
    machine = from_card(find_card("RTX 4090"))
    windows = []
    for slots in (1, 4):
        run = LlamaRun(8192, "f16", slots=slots)
        found = fit_llama(shipped("google/gemma-4-12B-it"), LlamaFile(None, 9000), run, machine, (), None)
        term = found.device.memory.find("kv_sliding")
        assert term is not None
        windows.append(term.bytes)
    assert windows[1] == 4 * windows[0]


def test_a_vision_projector_is_counted_when_it_is_there(shipped: Shipped) -> None:
    machine = from_card(find_card("RTX 3090"))
    spec, run = shipped("Qwen/Qwen3.8-27B"), LlamaRun(8192, "f16")
    with_it, without = (
        fit_llama(spec, LlamaFile("Q4_K_M", mmproj_mib=mib), run, machine, (), None) for mib in (928.0, None)
    )
    assert with_it.device.memory.low - without.device.memory.low == 928 << 20
    assert with_it.device.memory.high - without.device.memory.high > (928 + 561) << 20
    assert "--mmproj " in with_it.command and "--mmproj " not in without.command
    assert any("--mmproj-mib" in note for note in without.notes)
    assert not any("--mmproj-mib" in note for note in with_it.notes)
