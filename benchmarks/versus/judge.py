"""The bars that twofold sets itself against llama.cpp's Q8_0, and whether a run reached them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from twofold.profiles.figures import Figure

DECODE_BARS = {"smollm2": 2.0, "gemma3270m": 1.5}
"""By a part of the model's name, without its punctuation."""
PLAIN_BAR = 1.5
PREFILL_BAR = 1.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar. An unknown figure has not reached it."""

    name: str
    found: Figure
    direction: Literal["at least", "at most"]
    needed: float | None

    @property
    def is_reached(self) -> bool:
        if self.needed is None or not self.found.is_known:
            return False
        found = self.found.number
        return found >= self.needed if self.direction == "at least" else found <= self.needed

    @property
    def shown_need(self) -> str:
        return f"{self.direction} {'unknown' if self.needed is None else f'{self.needed:.6g}'}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "found": self.found.to_json(),
            "needed": self.shown_need,
            "reached": self.is_reached,
        }


def decode_bar(model: str) -> float | None:
    """The decode bar of a model by its name; None where none was set."""
    plain = "".join(c for c in model.lower() if c.isalnum())
    return next((bar for part, bar in DECODE_BARS.items() if part in plain), None)


def bars(model: str, ratios: Mapping[str, Figure], kl: Figure, llama_kl: Figure) -> list[Bar]:
    """`ratios` holds decode, plain and prefill over llama.cpp's Q8_0."""
    found = []
    needed = decode_bar(model)
    if needed is not None:
        found.append(Bar("decode / llama.cpp Q8_0", ratios["decode"], "at least", needed))
    found.append(Bar("plain decode / llama.cpp Q8_0", ratios["plain"], "at least", PLAIN_BAR))
    found.append(Bar("prefill / llama.cpp Q8_0", ratios["prefill"], "at least", PREFILL_BAR))
    needed_kl = llama_kl.number if llama_kl.is_known else None
    found.append(Bar("KL, not above llama.cpp Q8_0's", kl, "at most", needed_kl))
    return found
