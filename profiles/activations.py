"""How the verifier's products round their activations: a quality knob of a plan, like the types of its cache.

Two int8 planes carry 16-bit-class activations (`int16`), one carries `int8`. The stored weights depend on neither, and
drafts read one plane under both. What was kept before there was a choice, and does not say it, means the usual ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

Activations = Literal["int16", "int8", "int16/int8", "int8/int16"]
"""Of base and residual alike, or `base/residual`: a checkpoint may say the last two, nobody is offered them."""
USUAL: Final[Activations] = "int16"
CHOICES: Final[tuple[Activations, ...]] = ("int16", "int8")
PLANES: Final[dict[Activations, tuple[int, int]]] = {
    "int16": (2, 2),
    "int8": (1, 1),
    "int16/int8": (2, 1),
    "int8/int16": (1, 2),
}
"""int8 planes that base and residual products read."""

NEAR_LEVELS = 32
"""How far apart base levels may lie for products of one plane to add up in 16 bits, which is fastest without VNNI."""


def activation_words(activations: Activations | None, before: str) -> str:
    """`int8 activations` behind `before`; nothing at all for the usual ones, where what is not said means them."""
    return "" if activations in (None, USUAL) else f"{before}{activations} activations"


def is_slow_base(activations: Activations, levels: Sequence[int], isa: str | None, *, has_avx_vnni: bool) -> bool:
    """Whether one plane brings little with a base of these levels: where products of bytes add up in 16 bits (the AVX2
    kernels on a processor without AVX-VNNI; a tier that is not known may be that), those of wider levels overflow, and
    are widened one by one.
    """
    is_widened = isa in (None, "avx2") and not has_avx_vnni
    return is_widened and PLANES[activations][0] == 1 and max(levels) - min(levels) > NEAR_LEVELS


def of_planes(base: int, residual: int) -> Activations:
    """The inverse of `PLANES`.

    Raises:
        ValueError: other than one or two planes.
    """
    for activations, planes in PLANES.items():
        if planes == (base, residual):
            return activations
    raise ValueError(f"one or two planes, got {base} and {residual}")
