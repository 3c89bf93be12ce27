"""Which fused Linears keep their residual in VRAM.

A residual in RAM costs its bytes at RAM speed plus one hand-off (transfer and synchronisation). With the bytes that
fit given, the time saved per byte is highest for the Linears with the most hand-off per byte, so these go first; a
Linear is never split.
"""

from __future__ import annotations

from twofold.planner import codecs
from twofold.planner.per_spec import per_spec
from twofold.profiles.model_spec import LinearGroup, ModelSpec

# Only the ratio of the two matters for the order: time of one hand-off against time of a byte from RAM or over the
# link.
_HANDOFF_S = 30e-6
_RAM_BYTES_PER_S = 40e9
_LINK_BYTES_PER_S = 12e9
_ROWS = 17


def _saved_per_byte(group: LinearGroup, n_bytes: int) -> float:
    link = _ROWS * group.used_copies * (2 * group.in_features + 4 * group.out_features) / _LINK_BYTES_PER_S
    return (n_bytes * group.share_read(_ROWS) / _RAM_BYTES_PER_S + link + _HANDOFF_S) / n_bytes


@per_spec
def _order(spec: ModelSpec, bits: int) -> list[tuple[int, str, int]]:
    """(index, name, residual bytes) of the fused Linears, those that save most per byte first."""
    sized = [(group, codecs.residual_bytes(group, bits)) for group in spec.groups]
    order = sorted(range(len(sized)), key=lambda i: (-_saved_per_byte(*sized[i]), i))
    return [(i, sized[i][0].name, sized[i][1]) for i in order]


def place(spec: ModelSpec, bits: int, budget_bytes: int) -> tuple[str, ...]:
    """Names of the resident fused Linears, in execution order, whose residuals fit `budget_bytes` together."""
    chosen: list[tuple[int, str]] = []
    left = budget_bytes
    for index, name, n_bytes in _order(spec, bits):
        if n_bytes <= left:
            chosen.append((index, name))
            left -= n_bytes
    return tuple(name for _, name in sorted(chosen))
