"""`MachineBudget`: what a plan may spend, whoever's machine it is for.

Built from a `HardwareProfile` (this machine's or somebody's), or from a card's published figures plus what is stated
about the host. Nothing is ever borrowed from the machine that runs the command: what was not stated is unknown, and
so are the answers that need it. Several cards are several budgets, never a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from twofold.planner.own_runs import OwnRuns
from twofold.planner.timed.source import KernelSource
from twofold.profiles.bounds import ISA_TIERS
from twofold.profiles.cards import CardFacts, match_driver
from twofold.profiles.errors import InvalidOption
from twofold.profiles.figures import Figure, reasoned, reported, unknown
from twofold.profiles.hardware import Gpu, HardwareProfile

MIN_CARD_MIB = 256.0
STATED_VRAM = "--vram"
ALL_FREE = (
    "all of the card's memory is taken as free; a desktop takes up to 1,850 MiB of it (--vram MIB states what is free)"
)
Origin = Literal["this machine", "a profile", "a card", "stated"]


@dataclass(frozen=True, slots=True)
class CardBudget:
    """One card. `free_mib` is what a plan may use; `engine_reason` says why twofold's GPU kernels cannot (None = they
    can).
    """

    name: str
    total_mib: Figure
    free_mib: Figure
    bandwidth_gb_s: Figure
    link_gb_s: Figure
    engine_reason: str | None
    unified: bool = False

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "vram_total_mib": self.total_mib.to_json(),
            "vram_free_mib": self.free_mib.to_json(),
            "bandwidth_gb_s": self.bandwidth_gb_s.to_json(),
            "link_gb_s": self.link_gb_s.to_json(),
        }


@dataclass(frozen=True, slots=True)
class HostBudget:
    """RAM, processor. `isa_tier` is None where unknown; `cores` are the physical cores that this process may use;
    `own` are this machine's sessions, `kernels` the timings of its kernels, where there are any. `has_avx_vnni`: the
    AVX2 kernels multiply with AVX-VNNI; False also where that is not known.
    """

    available_mib: Figure
    ram_read_gb_s: Figure
    isa_tier: str | None
    cores: Figure
    is_partial: bool = False
    own: OwnRuns | None = None
    kernels: KernelSource | None = None
    has_avx_vnni: bool = False

    @property
    def judges_ram(self) -> bool:
        """Whether RAM is part of the verdict: not where a user stated other things about the host, but not its RAM."""
        return self.available_mib.is_known or not self.is_partial

    @property
    def threads(self) -> int:
        return max(1, int(self.cores.number)) if self.cores.is_known else 1

    def to_json(self) -> dict[str, object]:
        return {
            "ram_available_mib": self.available_mib.to_json(),
            "ram_read_gb_s": self.ram_read_gb_s.to_json(),
            "isa": self.isa_tier,
            "cores": self.cores.to_json(),
        }


@dataclass(frozen=True, slots=True)
class MachineBudget:
    """Cards and host. `host` is None when nothing is known about it (a card alone); `notes` are for
    the reader.
    """

    label: str
    origin: Origin
    cards: tuple[CardBudget, ...]
    host: HostBudget | None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "label": self.label,
            "origin": self.origin,
            "cards": [card.to_json() for card in self.cards],
            "host": self.host.to_json() if self.host else None,
        }


def best_tier(tiers: Figure) -> str | None:
    """The widest of the kernel tiers that a profile lists; None when unknown."""
    if not isinstance(tiers.value, list):
        return None
    known = [tier for tier in ISA_TIERS if tier in tiers.value]
    return known[-1] if known else "generic"


def usable_cores(profile: HardwareProfile) -> Figure:
    """Physical cores within the cpuset and the CPU quota: more threads than that only wait for each other."""
    cpu = profile.cpu
    if not cpu.physical_cores.is_known:
        return unknown("cores", cpu.physical_cores.by)
    limits = [cpu.physical_cores.number]
    limits += [figure.number for figure in (cpu.usable_cpus, cpu.quota_cpus) if figure.is_number]
    cores = max(1, int(min(limits)))
    return reasoned(cores, "cores", "min(physical cores, usable CPUs, CPU quota)")


def host_of(profile: HardwareProfile, *, label: str = "this machine", is_this_machine: bool = True) -> HostBudget:
    """The host's budget from a profile; its kernels' timings are measured here only where it is this machine's."""
    bandwidth = profile.ram.read_gb_s_all_cores
    if not bandwidth.is_known:
        bandwidth = profile.ram.read_gb_s_one_thread
    free, limit = profile.ram.available_mib, profile.ram.limit_mib
    if free.is_known and limit.is_number and limit.number < free.number:
        free = reported(limit.number, "MiB", f"the container's limit: {limit.by}")
    tier, cores = best_tier(profile.cpu.isa_tiers), usable_cores(profile)
    kernels = KernelSource(profile.kernels, is_this_machine, label) if profile.kernels else None
    flags = profile.cpu.isa_flags.value
    has_avx_vnni = isinstance(flags, list) and "avx_vnni" in flags
    return HostBudget(free, bandwidth, tier, cores, kernels=kernels, has_avx_vnni=has_avx_vnni)


def card_of(gpu: Gpu) -> CardBudget:
    """A probed card: the driver's memory, the measured link, the published bandwidth (of a slice its share)."""
    is_slice = gpu.mig.value == "slice"
    total = gpu.vram_total_mib.number if gpu.vram_total_mib.is_known and not is_slice else None
    facts = match_driver(gpu.name.split(" MIG ")[0] if is_slice else gpu.name, total)
    no_facts = f"nothing published is known about {gpu.name!r}"
    link = gpu.pcie.h2d_gb_s
    if not link.is_known and facts is not None:
        link = facts.pcie_gb_s
    unified = gpu.unified_memory.value is True
    return CardBudget(
        name=gpu.name,
        total_mib=gpu.vram_total_mib,
        free_mib=gpu.vram_free_mib,
        bandwidth_gb_s=_bandwidth(gpu, facts, is_slice) if facts else unknown("GB/s", no_facts),
        link_gb_s=link,
        engine_reason=facts.engine_reason if facts else no_facts,
        unified=unified,
    )


def _bandwidth(gpu: Gpu, facts: CardFacts, is_slice: bool) -> Figure:
    """The card's, or of a MIG slice the share that its memory has: slices are cut along memory channels."""
    whole = facts.bandwidth_gb_s
    if not is_slice:
        return whole
    if not gpu.vram_total_mib.is_known or not whole.is_known:
        return unknown("GB/s", f"a slice of {facts.name} has a part of its bandwidth, and its memory is unknown")
    share = min(1.0, gpu.vram_total_mib.number / facts.vram_mib.number)
    value = round(whole.number * share, 1)
    by = f"{whole.number:g} GB/s of {facts.name} × the slice's share of its memory"
    return reasoned(value, "GB/s", by, low=round(0.8 * value, 1), high=round(1.1 * value, 1))


def from_profile(profile: HardwareProfile, *, label: str, is_this_machine: bool) -> MachineBudget:
    """The budget of a profiled machine. Somebody else's profile is advice, and says so."""
    notes: list[str] = []
    if not is_this_machine:
        notes.append(f"planned for {label}: an imported profile is advice, nothing of it was measured here")
    if not profile.complete and not is_this_machine:
        notes.append("the profile is incomplete: some parts were skipped or failed")
    if len(profile.gpus) > 1:
        notes.append(f"{len(profile.gpus)} cards: each is judged alone, their memory is never added up")
    for gpu in profile.gpus:
        if gpu.unified_memory.value is True:
            notes.append(f"{gpu.name} shares its memory with the CPU: one pool, counted once, as RAM")
    cards = tuple(card_of(gpu) for gpu in profile.gpus)
    return MachineBudget(
        label,
        "this machine" if is_this_machine else "a profile",
        cards,
        host_of(profile, label=label, is_this_machine=is_this_machine),
        tuple(notes),
    )


def from_card(facts: CardFacts, *, vram_mib: float | None = None, is_forced: bool = False) -> MachineBudget:
    """A card by its published figures, and no host. All of its memory counts as free unless `vram_mib` says
    otherwise; with `is_forced` also where that is more than the card is known to have.
    """
    free = facts.vram_mib
    notes: tuple[str, ...] = (ALL_FREE,)
    if vram_mib is not None:
        notes = refuse_more_than(facts.name, facts.vram_mib, vram_mib, is_forced=is_forced)
        free = reported(vram_mib, "MiB", STATED_VRAM)
    card = CardBudget(facts.name, facts.vram_mib, free, facts.bandwidth_gb_s, facts.pcie_gb_s, facts.engine_reason)
    return MachineBudget(facts.name, "a card", (card,), None, notes)


def with_host(
    machine: MachineBudget, *, ram_mib: float | None, ram_gb_s: float | None, isa: str | None
) -> MachineBudget:
    """`machine` with what the user states about the host; what was not stated stays as it was, or unknown.

    Raises:
        InvalidOption: for an instruction set that is no kernel tier.
    """
    if ram_mib is None and ram_gb_s is None and isa is None:
        return machine
    if isa is not None and isa not in ISA_TIERS:
        raise InvalidOption(
            "the instruction set is not known", found=f"--cpu {isa}", needed=", ".join(ISA_TIERS), hint="--cpu avx2"
        )
    host = machine.host or HostBudget(
        unknown("MiB", "not stated (--ram)"),
        unknown("GB/s", "not stated (--ram-gb-s)"),
        None,
        unknown("cores", "not stated; 4 to 16 are assumed"),
        is_partial=True,
    )
    if ram_mib is not None:
        host = replace(host, available_mib=reported(ram_mib, "MiB", "--ram"))
    if ram_gb_s is not None:
        host = replace(host, ram_read_gb_s=reported(ram_gb_s, "GB/s", "--ram-gb-s"))
    if isa is not None:
        host = replace(host, isa_tier=isa, has_avx_vnni=False)
    if ram_gb_s is not None or isa is not None:
        host = replace(host, own=None)  # how fast sessions were here says nothing of such a host
    stated = "the host's figures are as stated on the command line"
    return replace(machine, host=host, notes=(*machine.notes, stated))


def with_vram(machine: MachineBudget, vram_mib: float, *, is_forced: bool = False) -> MachineBudget:
    """`machine` with the free memory of every card as stated, with `is_forced` also where a card has less.

    Raises:
        InvalidOption: more than a card has.
    """
    notes = machine.notes
    for card in machine.cards:
        notes += refuse_more_than(card.name, card.total_mib, vram_mib, is_forced=is_forced)
    free = reported(vram_mib, "MiB", STATED_VRAM)
    return replace(machine, cards=tuple(replace(card, free_mib=free) for card in machine.cards), notes=notes)


def refuse_more_than(name: str, total_mib: Figure, vram_mib: float, *, is_forced: bool = False) -> tuple[str, ...]:
    """Refuse free memory that the card does not have; with `is_forced` the note that says so.

    Raises:
        InvalidOption: it does not; a board with other memory than its name says is planned for by its profile.
    """
    if not total_mib.is_known or vram_mib <= total_mib.number:
        return ()
    if is_forced:
        return (
            f"--vram is more than {name} is known to have ({total_mib.number:,.0f} MiB): taken as stated (--force)",
        )
    raise InvalidOption(
        f"--vram states more free memory than {name} has",
        found=f"{vram_mib:,.0f} MiB",
        needed=f"at most {total_mib.number:,.0f} MiB ({total_mib.by})",
        hint=f"--vram {total_mib.number:.0f}; for a board with other memory, --profile of its machine, or --force",
    )


def refuse_margin(machine: MachineBudget, margin_mib: float) -> None:
    """Refuse a margin that no device could leave.

    Raises:
        InvalidOption: every card, or the RAM that was stated, is smaller than it.
    """
    free = [(card.name, card.free_mib) for card in machine.cards if not card.unified]
    if not free and machine.host is not None:
        free = [("RAM", machine.host.available_mib)]
    known = [(name, figure.number) for name, figure in free if figure.is_known]
    if known and len(known) == len(free) and all(number <= margin_mib for _, number in known):
        name, most = max(known, key=lambda one: one[1])
        raise InvalidOption(
            "--margin leaves nothing to plan with",
            found=f"{margin_mib:,.0f} MiB to leave free",
            needed=f"less than the {most:,.0f} MiB that are free ({name})",
            hint="--margin 512",
        )


def card_problem(card: CardBudget) -> str | None:
    """Why nothing can be said about this card, or None."""
    if card.unified:
        return f"{card.name} shares its memory with the CPU: one pool, which this version does not plan for"
    if not card.free_mib.is_known:
        return f"the free memory of {card.name} is unknown: {card.free_mib.by}"
    if card.free_mib.number < MIN_CARD_MIB and card.free_mib.by != STATED_VRAM:
        return f"{card.name} reports {card.free_mib.number:g} MiB free: no usable memory figure"
    return None
