"""How the products of split Linears round their activations: a quality knob of a plan, like the types of its cache.

Two int8 planes carry 16-bit-class activations (`int16`), one carries `int8`. The stored weights depend on neither. What
was kept before there was a choice, and does not say it, means the usual ones.
"""

from __future__ import annotations

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


def activation_words(activations: Activations | None, before: str) -> str:
    """`int8 activations` behind `before`; nothing at all for the usual ones, where what is not said means them."""
    return "" if activations in (None, USUAL) else f"{before}{activations} activations"


def of_planes(base: int, residual: int) -> Activations:
    """The inverse of `PLANES`.

    Raises:
        ValueError: other than one or two planes.
    """
    for activations, planes in PLANES.items():
        if planes == (base, residual):
            return activations
    raise ValueError(f"one or two planes, got {base} and {residual}")
