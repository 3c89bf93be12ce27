"""What a quantisation is asked for, and how it reports progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twofold.kernels.naive.packing import RESIDUAL_BITS
from twofold.planner.codecs import HEAD_BITS
from twofold.profiles.errors import InvalidOption

DEFAULT_RESIDUAL_BITS = 6
DEFAULT_CALIBRATION_TOKENS = 11264
"""Dealt out to two streams. On SmolLM2 11,264 took 108 s and 16,384 142 s on two cores without AVX-512, and the draft's
recall at 1 was no better (own KV 0.737 and 0.717, exact KV 0.823 and 0.828).
"""
MIN_CALIBRATION_TOKENS = 256

SLICE_ROWS = 8192
"""Output rows that are rounded together, and of the head and the embedding, that are in memory at once."""

MAX_REFINE_PASSES = 64

REFINE_BATCH_TOKENS = 512
"""Tokens of a training step of refining, and the most of one text: a gradient of attention keeps their square."""

REFINE_HELD_EVERY = 16
"""Every so many-th text is not trained on but tells whether training helped."""

REFINE_HEAD_LOGITS = 1 << 21
"""Logits that are compared at once, in rows of a whole vocabulary: 8 MiB, of which half a dozen are alive. Four times
as many took 0.25 GB more for SmolLM2 and 5 % less time.
"""

Progress = Callable[[int, int, str], None]
"""(weights quantised so far, weights in all, what is being done)."""


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """Options that change the result. `head_bits` overrides the residual width of the LM head; `refine_passes` is how
    often the calibration text is read in training the draft's scales, 0 for not at all.

    Raises:
        InvalidOption: for a value that no checkpoint can have.
    """

    residual_bits: int = DEFAULT_RESIDUAL_BITS
    seed: int = 0
    head_bits: int = HEAD_BITS
    refine_passes: int = 0

    def __post_init__(self) -> None:
        for name, bits in (("residual bits", self.residual_bits), ("head bits", self.head_bits)):
            if bits not in RESIDUAL_BITS:
                raise InvalidOption(f"{name} cannot be {bits}", needed="4, 5, 6, 7 or 8", hint="--residual-bits 6")
        if not 0 <= self.seed < 1 << 63:
            raise InvalidOption(
                f"the seed cannot be {self.seed}", needed="an integer from 0 to 2^63 − 1", hint="--seed 0"
            )

        if not 0 <= self.refine_passes <= MAX_REFINE_PASSES:
            raise InvalidOption(
                f"the draft cannot be refined {self.refine_passes} times over",
                needed=f"0 to {MAX_REFINE_PASSES}",
                hint="--refine 4",
            )

    def bits_of(self, group: str) -> int:
        """The residual width of a group."""
        return self.head_bits if group == "lm_head" else self.residual_bits

    @property
    def overrides(self) -> dict[str, int]:
        """The widths that differ, as the checkpoint's configuration lists them."""
        return {"lm_head": self.head_bits} if self.head_bits != self.residual_bits else {}
