"""Budgets: nothing borrowed, nothing added up, what is missing stays unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.machine import MachineBudget, card_problem, from_card, from_profile, with_host, with_vram
from twofold.profiles.cards import find_card
from twofold.profiles.errors import InvalidOption
from twofold.profiles.hardware import HardwareProfile


def test_a_card_alone_has_no_host() -> None:
    machine = from_card(find_card("RTX 4090"))
    assert machine.host is None
    assert machine.cards[0].free_mib.source == "reported"
    assert any("taken as free" in note for note in machine.notes)


def test_stated_vram_replaces_the_cards(card_alone: Callable[[str], MachineBudget]) -> None:
    machine = from_card(find_card("RTX 4090"), vram_mib=20000)
    assert machine.cards[0].free_mib.number == 20000
    assert not any("taken as free" in note for note in machine.notes)
    assert with_vram(card_alone("RTX 4090"), 1000).cards[0].free_mib.by == "--vram"


def test_what_is_not_stated_of_a_host_stays_unknown() -> None:
    machine = with_host(from_card(find_card("RTX 4090")), ram_mib=65536, ram_gb_s=None, isa=None)
    assert machine.host is not None
    assert machine.host.available_mib.number == 65536
    assert not machine.host.ram_read_gb_s.is_known
    assert machine.host.isa_tier is None


def test_unknown_instruction_set() -> None:
    with pytest.raises(InvalidOption, match="instruction set"):
        with_host(from_card(find_card("RTX 4090")), ram_mib=None, ram_gb_s=None, isa="sse9")


@pytest.mark.parametrize("quota, cores", [(None, 8), (3.5, 3), (0.5, 1), (64, 8)])
def test_cores_within_the_quota(machine: Callable[..., MachineBudget], quota: float | None, cores: int) -> None:
    host = machine(quota=quota).host
    assert host is not None
    assert host.threads == cores
    assert host.isa_tier == "avx512"


def test_two_cards_stay_two(machine: Callable[..., MachineBudget]) -> None:
    two = machine((("NVIDIA GeForce RTX 3060", 11000, False), ("NVIDIA GeForce RTX 4090", 24000, False)))
    assert [card.free_mib.number for card in two.cards] == [11000, 24000]
    assert any("never added up" in note for note in two.notes)


def test_an_unlisted_card_has_no_bandwidth(machine: Callable[..., MachineBudget]) -> None:
    card = machine((("Frobnicator 9000", 24000, False),)).cards[0]
    assert not card.bandwidth_gb_s.is_known
    assert card.engine_reason is not None


@pytest.mark.parametrize(
    "free, unified, words", [(None, False, "unknown"), (0, False, "no usable"), (9000, True, "shares")]
)
def test_cards_about_which_nothing_can_be_said(
    machine: Callable[..., MachineBudget], free: float | None, unified: bool, words: str
) -> None:
    problem = card_problem(machine((("NVIDIA GeForce RTX 4090", free, unified),)).cards[0])
    assert problem is not None and words in problem


def test_someone_elses_profile_is_advice(profile: Callable[..., HardwareProfile]) -> None:
    machine = from_profile(profile(), label="profile x.json", is_this_machine=False)
    assert any("advice" in note for note in machine.notes)
