"""PCI Express links: generations from transfer rates, and what is known before anything was copied."""

from __future__ import annotations

import re

from twofold.profiles.figures import Figure, unknown
from twofold.profiles.hardware import Pcie

# Rates do not grow by a factor per generation (2.5 and 5 code 8b/10b), so this is a table and not arithmetic.
_GENERATION_OF_GT_S = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def generation_of(gt_s: float) -> int | None:
    """The PCIe generation whose lanes run at `gt_s` gigatransfers per second, or None for a rate of no generation."""
    return _GENERATION_OF_GT_S.get(gt_s)


def parse_link_speed(text: str | None) -> int | None:
    """The generation in sysfs' `16.0 GT/s PCIe`; None for `Unknown` or anything else."""
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text or "")
    return generation_of(float(match.group(1))) if match else None


def idle_link(generation_max: Figure, width_max: Figure, generation_now: Figure, width_now: Figure, why: str) -> Pcie:
    """A link as read without load; `why` says why nothing was measured under load."""
    return Pcie(
        generation_max=generation_max,
        width_max=width_max,
        generation_now=generation_now,
        width_now=width_now,
        generation_load=unknown("", why),
        width_load=unknown("lanes", why),
        h2d_gb_s=unknown("GB/s", why),
        d2h_gb_s=unknown("GB/s", why),
    )
