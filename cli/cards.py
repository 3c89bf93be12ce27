"""`twofold cards`: the card database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.format_option import FormatOption
from twofold.cli.output import err, out, print_json

if TYPE_CHECKING:
    from twofold.profiles.cards import CardFacts

COLUMNS = ("card", "VRAM", "by", "bandwidth", "PCIe", "compute", "engine")


def cards(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Only cards that this name can mean, such as 4090.")
    ] = None,
    output_format: FormatOption = "human",
) -> None:
    """List the known graphics cards: memory, bandwidth, PCIe, each with its source."""
    from twofold.profiles.card_names import candidates
    from twofold.profiles.cards import all_cards, find_card

    found = list(all_cards()) if text is None else candidates(text) or [find_card(text)]
    if output_format == "json":
        print_json({"schema_version": 1, "cards": [card.to_json() for card in found]})
        return
    out().table("", COLUMNS, [_row(card) for card in found])
    for card in found if len(found) <= 12 else ():
        if card.note:
            out().line(f"{card.name}: {card.note}")
        if card.engine_reason:
            out().line(f"{card.name}: {card.engine_reason}")
    sources = dict.fromkeys(card.bandwidth_gb_s.by for card in found)
    out().line(f"All figures are reported. Bandwidth and PCIe from: {'; '.join(sources)}.")
    if text is None:
        err().line("hint: twofold fit MODEL --card NAME")


def _row(card: CardFacts) -> tuple[str, ...]:
    from twofold.profiles.cards import DRIVER_TOTAL

    capability = card.compute_capability.value
    return (
        card.name,
        f"{card.vram_mib.number:.0f} MiB",
        "driver" if card.vram_mib.by == DRIVER_TOTAL else "board",
        f"{card.bandwidth_gb_s.number:g} GB/s",
        f"{card.pcie_generation.number:g} x{card.pcie_lanes.number:g}",
        "" if capability is None else str(capability),
        "targeted" if card.engine_supported else "planning only",
    )
