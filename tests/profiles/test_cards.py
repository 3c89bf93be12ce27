"""The card table: its figures, and finding a card by the names that people and drivers use."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.profiles.cards import all_cards, find_card, match_driver
from twofold.profiles.errors import InvalidOption


def test_the_table_is_large_and_its_names_are_unique() -> None:
    names = [card.name for card in all_cards()]
    assert len(names) >= 60
    assert len(set(names)) == len(names)
    assert {card.vendor for card in all_cards()} == {"nvidia", "amd", "intel"}


@pytest.mark.parametrize("card", all_cards(), ids=lambda card: card.name)
def test_every_figure_is_reported_and_plausible(card: object) -> None:
    from twofold.profiles.cards import CardFacts

    assert isinstance(card, CardFacts)
    for figure in (card.vram_mib, card.bandwidth_gb_s, card.pcie_generation, card.pcie_lanes):
        assert figure.source == "reported"
        assert figure.by
    assert 0.93 <= card.vram_mib.number / (card.vram_gb * 1024) <= 1.01
    assert 100 <= card.bandwidth_gb_s.number <= 10_000
    assert card.pcie_gb_s.low is not None and card.pcie_gb_s.low < card.pcie_gb_s.number
    assert card.engine_supported == (card.engine_reason is None)
    if card.vendor != "nvidia":
        assert not card.engine_supported
    assert find_card(card.name) is card


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("RTX-4090", "NVIDIA GeForce RTX 4090"),
        ("rtx 3060 12gb", "NVIDIA GeForce RTX 3060 12GB"),
        ("3060 12g", "NVIDIA GeForce RTX 3060 12GB"),
        ("A10G", "NVIDIA A10G"),
        ("A10 24GB", "NVIDIA A10"),
        ("3060 12 GB", "NVIDIA GeForce RTX 3060 12GB"),
        ("4060ti 16", "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("3090ti", "NVIDIA GeForce RTX 3090 Ti"),
        ("4070 ti super", "NVIDIA GeForce RTX 4070 Ti Super"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 Laptop"),
        ("4090 mobile", "NVIDIA GeForce RTX 4090 Laptop"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("Tesla V100-SXM2-32GB", "NVIDIA Tesla V100 32GB"),
        ("T4", "NVIDIA Tesla T4"),
        ("a4000", "NVIDIA RTX A4000"),
        ("rtx 4000 ada", "NVIDIA RTX 4000 Ada Generation"),
        ("rtx pro 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ("7900xt", "AMD Radeon RX 7900 XT"),
        ("rx 7900 xtx 24gb", "AMD Radeon RX 7900 XTX"),
        ("r9700", "AMD Radeon AI PRO R9700"),
        ("Intel(R) Arc(TM) B580 Graphics", "Intel Arc B580"),
        ("titan rtx", "NVIDIA TITAN RTX"),
        ("l40", "NVIDIA L40"),
        ("l40s", "NVIDIA L40S"),
    ],
)
def test_loose_names(text: str, name: str) -> None:
    assert find_card(text).name == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3060", "RTX 3060 8GB"), ("4060 ti", "RTX 4060 Ti 16GB"), ("A100", "A100 40GB PCIe"), ("h100", "H100 NVL")],
)
def test_an_ambiguous_name_lists_the_candidates(text: str, expected: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        find_card(text)
    assert refused.value.exit_code == 2
    assert refused.value.found is not None and expected in refused.value.found


@pytest.mark.parametrize("text", ["rtx 4091", "RTX 40900", "4090x", "gtx 4090", "amd 4090"])
def test_an_unknown_name_suggests_the_nearest(text: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        find_card(text)
    assert refused.value.hint is not None and "RTX 4090" in refused.value.hint


@pytest.mark.parametrize("text", ["", "   ", "gpu", "\x1b[31m", "ünïcödé", "x" * 100_000, "日本"])
def test_nonsense_is_refused_and_safe_to_show(text: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        find_card(text)
    assert "\x1b" not in refused.value.what
    assert len(refused.value.what) < 200


@given(st.text(max_size=40))
def test_any_text_finds_one_card_or_is_refused(text: str) -> None:
    try:
        assert find_card(text) in all_cards()
    except InvalidOption as refused:
        assert refused.hint


def test_a_driver_name_is_told_apart_by_memory() -> None:
    small = match_driver("NVIDIA GeForce RTX 3060", 8192)
    large = match_driver("NVIDIA GeForce RTX 3060", 12288)
    assert small is not None and small.vram_gb == 8
    assert large is not None and large.vram_gb == 12
    assert match_driver("NVIDIA GeForce RTX 3060", None) is None
    assert match_driver("Matrox G200", 16) is None


def test_known_totals_are_the_drivers() -> None:
    totals = {"4090": 24564, "5090": 32607, "5080": 16303, "rtx 3060 12gb": 12288, "rtx pro 6000": 97887}
    assert {text: find_card(text).vram_mib.number for text in totals} == totals


def test_the_import_is_light() -> None:
    code = (
        "import sys; import twofold.profiles.cards; "
        "print([m for m in ('pydantic', 'numpy', 'torch', 'json') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
