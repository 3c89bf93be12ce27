"""`evaluate`: what one set of knobs needs and does on one machine. The search asks nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twofold.planner.acceptance import DEFAULT_STATISTICS, RankStatistics
from twofold.planner.knobs import Knobs
from twofold.planner.latency import Speed, estimate_speed
from twofold.planner.machine import CardBudget, HostBudget, card_problem
from twofold.planner.memory import DeviceMemory, cpu_memory, host_memory, vram_memory
from twofold.planner.own_runs import Observed, observed
from twofold.profiles.figures import Figure, reasoned
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]
SEVERITY: dict[Verdict, int] = {"fits": 0, "tight": 1, "unknown": 2, "does_not_fit": 3}


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """One device: what is needed against what is free.

    `fits`: the upper estimate leaves the margin. `tight`: the likely one fits. `shortfall_mib` is what is missing for
    `fits` at the upper estimate (0 where it fits), and unknown where the verdict is.
    """

    device: Literal["vram", "ram"]
    name: str
    verdict: Verdict
    memory: DeviceMemory
    free_mib: Figure | None
    margin_mib: float
    reason: str

    @property
    def shortfall_mib(self) -> Figure | None:
        if self.verdict == "unknown" or self.free_mib is None or not self.free_mib.is_known:
            return None
        free = self.free_mib.number
        upper = max(0.0, self.memory.high / MIB - (free - self.margin_mib))
        likely = min(upper, max(0.0, self.memory.total / MIB - free))
        by = f"needed at most + margin of {self.margin_mib:g} MiB − free"
        return reasoned(round(upper, 2), "MiB", by, low=round(likely, 2), high=round(upper, 2))

    def to_json(self) -> dict[str, object]:
        """One entry of `devices` in the documents of `fit`."""
        return {
            "device": self.device,
            "name": self.name,
            "verdict": self.verdict,
            "reason": self.reason,
            "free_mib": self.free_mib.to_json() if self.free_mib else None,
            "margin_mib": self.margin_mib,
            "shortfall_mib": self.shortfall_mib.to_json() if self.shortfall_mib else None,
        }


def worst(verdicts: list[Verdict]) -> Verdict:
    return max(verdicts, key=lambda verdict: SEVERITY[verdict]) if verdicts else "unknown"


def judge(
    memory: DeviceMemory, name: str, free_mib: Figure | None, margin_mib: float, problem: str | None = None
) -> DeviceVerdict:
    """Compare a device's need with what is free on it."""
    if problem is None and (free_mib is None or not free_mib.is_known):
        problem = free_mib.by if free_mib is not None else "nothing is known about it"
    if problem is not None or free_mib is None:
        return DeviceVerdict(memory.device, name, "unknown", memory, free_mib, margin_mib, problem or "unknown")
    free = free_mib.number
    verdict: Verdict = "does_not_fit"
    reason = f"{memory.total / MIB:,.0f} MiB needed, {free:,.0f} MiB free"
    if memory.high / MIB <= free - margin_mib:
        verdict = "fits"
        reason = f"at most {memory.high / MIB:,.0f} MiB needed, {free:,.0f} MiB free, {margin_mib:,.0f} MiB kept back"
    elif memory.total / MIB <= free:
        verdict = "tight"
        reason = (
            f"{memory.total / MIB:,.0f} MiB likely and at most {memory.high / MIB:,.0f} MiB needed, "
            f"{free:,.0f} MiB free, {margin_mib:,.0f} MiB should be kept back"
        )
    return DeviceVerdict(memory.device, name, verdict, memory, free_mib, margin_mib, reason)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Knobs with the memory of each device, the verdict on each, and the expected speed.

    `devices` holds only what was judged: with a card alone the host is not, and `verdict` is about the card.
    `observed` is what own sessions (or identical hardware) reached.
    """

    knobs: Knobs
    vram: DeviceMemory | None
    ram: DeviceMemory
    devices: tuple[DeviceVerdict, ...]
    speed: Speed
    observed: Observed | None = None

    @property
    def verdict(self) -> Verdict:
        return worst([device.verdict for device in self.devices])

    @property
    def severity(self) -> int:
        return SEVERITY[self.verdict]

    @property
    def ram_mib(self) -> float:
        return self.ram.total / MIB

    @property
    def vram_mib(self) -> float:
        return self.vram.total / MIB if self.vram else 0.0


@dataclass(frozen=True, slots=True)
class Needs:
    """Memory and verdicts of knobs, without the speed: what a search over contexts asks many times."""

    vram: DeviceMemory | None
    ram: DeviceMemory
    devices: tuple[DeviceVerdict, ...]

    @property
    def verdict(self) -> Verdict:
        return worst([device.verdict for device in self.devices])

    @property
    def severity(self) -> int:
        return SEVERITY[self.verdict]


def needs(spec: ModelSpec, knobs: Knobs, card: CardBudget | None, host: HostBudget | None, margin_mib: float) -> Needs:
    """Bytes and verdict of `knobs`. A card without a host is judged alone."""
    devices: list[DeviceVerdict] = []
    vram: DeviceMemory | None = None
    if knobs.device == "cpu":
        ram = cpu_memory(spec, knobs, host.own if host else None)
    else:
        vram, ram = vram_memory(spec, knobs), host_memory(spec, knobs)
        problem = card_problem(card) if card else "there is no card"
        devices.append(judge(vram, card.name if card else "card", card.free_mib if card else None, margin_mib, problem))
    if host is not None and host.judges_ram:
        devices.append(judge(ram, "RAM", host.available_mib, margin_mib))
    return Needs(vram, ram, tuple(devices))


def evaluate(
    spec: ModelSpec,
    knobs: Knobs,
    card: CardBudget | None,
    host: HostBudget | None,
    margin_mib: float,
    statistics: RankStatistics = DEFAULT_STATISTICS,
) -> Evaluation:
    """Bytes, verdict and seconds of `knobs` on one card (or none) and its host."""
    found = needs(spec, knobs, card, host, margin_mib)
    seen = observed(spec, knobs, host.own) if host else None
    speed = estimate_speed(spec, knobs, card, host, statistics)
    return Evaluation(knobs, found.vram, found.ram, found.devices, speed, seen)
