"""What the host must have when only a card was named: RAM, and the RAM speed that a wanted number of tokens per
second takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twofold.planner.evaluate import Evaluation
from twofold.planner.latency import SpeedModel, estimate_speed
from twofold.planner.machine import CardBudget, HostBudget
from twofold.planner.propose import NOMINAL_HOST
from twofold.planner.rates import rates
from twofold.profiles.figures import Figure, reasoned, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

TARGETS_TOK_S = (5.0, 10.0, 20.0)
EXAMPLE_GB_S = (35.0, 60.0, 100.0)
MOST_GB_S = 1000.0


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """RAM with margin, GB/s per target speed, the speed at example bandwidths, and the instruction set."""

    ram_mib: Figure
    ram_gb_s: tuple[tuple[float, Figure], ...]
    tok_s_at: tuple[tuple[float, Figure], ...]
    isa: str

    def to_json(self) -> dict[str, object]:
        return {
            "ram_mib": self.ram_mib.to_json(),
            "ram_gb_s_for_tok_s": {f"{target:g}": figure.to_json() for target, figure in self.ram_gb_s},
            "tok_s_at_ram_gb_s": {f"{gb_s:g}": figure.to_json() for gb_s, figure in self.tok_s_at},
            "isa": self.isa,
        }


def _host_at(gb_s: float) -> HostBudget:
    return replace(NOMINAL_HOST, ram_read_gb_s=reasoned(gb_s, "GB/s", "assumed"))


def _needed(spec: ModelSpec, evaluation: Evaluation, card: CardBudget, target: float) -> Figure:
    """The RAM speed at which `target` tokens per second are likely, by bisection."""

    model = SpeedModel(spec, evaluation.knobs, card, NOMINAL_HOST)

    def likely(gb_s: float) -> float:
        return model.likely_tok_s(rates(card, _host_at(gb_s))[1]) or 0.0

    if likely(MOST_GB_S) < target:
        why = f"{target:g} tok/s is likely not reached with any RAM: card, hand-offs or arithmetic are slower"
        return unknown("GB/s", why)
    low, high = 1.0, MOST_GB_S
    for _ in range(12):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if likely(middle) >= target else (middle, high)
    return reasoned(round(high, 1), "GB/s", f"RAM speed at which {target:g} tok/s is likely (8 cores, AVX-512)")


def _example(spec: ModelSpec, evaluation: Evaluation, card: CardBudget, gb_s: float) -> Figure:
    return estimate_speed(spec, evaluation.knobs, card, _host_at(gb_s)).decode_tok_s


def host_needs(spec: ModelSpec, evaluation: Evaluation, card: CardBudget, margin_mib: float) -> HostNeeds:
    """What a host must bring to run `evaluation`'s plan with this card."""
    ram = evaluation.ram
    figure = reasoned(
        round(ram.total / MIB + margin_mib, 1),
        "MiB",
        f"RAM terms + {margin_mib:g} MiB, free for this",
        low=round(ram.low / MIB + margin_mib, 1),
        high=round(ram.high / MIB + margin_mib, 1),
    )
    in_ram = len(evaluation.knobs.resident) < len(spec.groups)
    isa = (
        "AVX2 at least; AVX-512 to check a tree at memory speed"
        if in_ram
        else "any: no residual is computed on the CPU"
    )
    return HostNeeds(
        figure,
        tuple((target, _needed(spec, evaluation, card, target)) for target in TARGETS_TOK_S) if in_ram else (),
        tuple((gb_s, _example(spec, evaluation, card, gb_s)) for gb_s in EXAMPLE_GB_S) if in_ram else (),
        isa,
    )
