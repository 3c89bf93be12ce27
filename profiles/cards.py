"""What is published about graphics cards, for planning on a card that is not in this machine.

The table is `data/cards.json`. It is a fallback: where the card is present, the driver is asked (boards of one name
exist with different memory). Every figure in it is `reported`.
"""

from __future__ import annotations

import functools
import os.path
from dataclasses import dataclass
from typing import Any, Literal

from twofold.profiles.figures import Figure, reasoned, reported, unknown

Vendor = Literal["nvidia", "amd", "intel"]

TARGETS = ("8.0", "8.6", "8.9", "9.0", "12.0")
"""CUDA compute capabilities that the engine's GPU kernels are built for."""

_TABLE = os.path.join(os.path.dirname(__file__), "data", "cards.json")

DRIVER_TOTAL = "total that the NVIDIA driver reports for this card"

# GB/s per lane and direction after line coding (8b/10b up to generation 2, 128b/130b from 3).
_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


@dataclass(frozen=True, slots=True)
class CardFacts:
    """One card, or one memory variant of it.

    `vram_mib` is what the driver reports where that is known (`vram_mib.by` says so), else the board's GB × 1024, of
    which a driver shows up to 4 % less. `engine_supported` says whether the engine's GPU kernels target the card, and
    `engine_reason` why not (None when they do); planning in bytes works for every card.
    """

    name: str
    vendor: Vendor
    kind: str
    architecture: str
    vram_gb: int
    vram_mib: Figure
    bandwidth_gb_s: Figure
    pcie_generation: Figure
    pcie_lanes: Figure
    compute_capability: Figure
    engine_supported: bool
    engine_reason: str | None
    note: str | None
    aliases: tuple[str, ...]
    optional_words: tuple[str, ...]

    @property
    def pcie_gb_s(self) -> Figure:
        """Host to device in one direction: lanes × raw rate × 0.85, the share that large copies reach."""
        raw = _LANE_GB_S[int(self.pcie_generation.number)] * self.pcie_lanes.number
        return reasoned(
            round(0.85 * raw, 2), "GB/s", "pcie_practical_rate", low=round(0.7 * raw, 2), high=round(0.92 * raw, 2)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "vendor": self.vendor,
            "kind": self.kind,
            "architecture": self.architecture,
            "vram_gb": self.vram_gb,
            "vram_mib": self.vram_mib.to_json(),
            "bandwidth_gb_s": self.bandwidth_gb_s.to_json(),
            "pcie_generation": self.pcie_generation.to_json(),
            "pcie_lanes": self.pcie_lanes.to_json(),
            "pcie_gb_s": self.pcie_gb_s.to_json(),
            "compute_capability": self.compute_capability.to_json(),
            "engine_supported": self.engine_supported,
            "engine_reason": self.engine_reason,
            "note": self.note,
        }


@functools.cache
def all_cards() -> tuple[CardFacts, ...]:
    """The whole table, in its own order (vendor, then newest first)."""
    import json

    with open(_TABLE, encoding="utf-8") as file:
        table = json.load(file)
    return tuple(_card(row, table["sources"]) for row in table["cards"])


def _card(row: dict[str, Any], sources: dict[str, str]) -> CardFacts:
    source = sources[row["source"]]
    capability = row["compute_capability"]
    reason = _engine_reason(row["vendor"], capability)
    generation, lanes = row["pcie"]
    return CardFacts(
        name=row["name"],
        vendor=row["vendor"],
        kind=row["kind"],
        architecture=row["architecture"],
        vram_gb=row["vram_gb"],
        vram_mib=_vram(row["vram_gb"], row["vram_driver_mib"], source),
        bandwidth_gb_s=reported(row["bandwidth_gb_s"], "GB/s", source),
        pcie_generation=reported(generation, "generation", source),
        pcie_lanes=reported(lanes, "lanes", source),
        compute_capability=(
            reported(capability, "", "NVIDIA CUDA GPU table") if capability else unknown("", "not a CUDA card")
        ),
        engine_supported=reason is None,
        engine_reason=reason,
        note=row.get("note"),
        aliases=tuple(row.get("aliases", ())),
        optional_words=tuple(row.get("optional", ())),
    )


def _vram(board_gb: int, driver_mib: int | None, source: str) -> Figure:
    if driver_mib is not None:
        return reported(driver_mib, "MiB", DRIVER_TOTAL)
    return reported(
        board_gb * 1024, "MiB", f"{source}: {board_gb} GB as board memory; the driver may show up to 4 % less"
    )


def _engine_reason(vendor: str, capability: str | None) -> str | None:
    if vendor != "nvidia" or capability is None:
        return "the engine's GPU kernels are for NVIDIA CUDA cards; this card is for planning only"
    if capability not in TARGETS:
        return f"the engine's GPU kernels target compute capability {', '.join(TARGETS)}; this card has {capability}"
    return None


def find_card(text: str) -> CardFacts:
    """The card that `text` names, loosely (`4090`, `rtx 3060 12gb`, `4060ti 16`, a driver's full name).

    Raises:
        InvalidOption: when no card has that name (the nearest are suggested) or several do (they are listed).
    """
    from twofold.profiles.card_names import find

    return find(text)


def match_driver(name: str, vram_mib: float | None) -> CardFacts | None:
    """The card behind a driver's name, told apart by its memory where variants share the name; None when unclear."""
    from twofold.profiles.card_names import candidates

    found = candidates(name)
    if len(found) > 1 and vram_mib is not None:
        found = [card for card in found if 0.9 <= vram_mib / card.vram_mib.number <= 1.1]
    return found[0] if len(found) == 1 else None
