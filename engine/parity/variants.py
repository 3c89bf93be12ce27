"""The speed knobs that must not show: each alone, combinations drawn at random, or all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from twofold.planner.plan import Plan

SHAPES = {
    "none": (0, 0, 0),
    "chain of 4": (4, 4, 0),
    "tree of 8": (8, 3, 0),
    "tree of 16": (16, 5, 0),
    "tree of 32": (32, 6, 0),
    "8 looked up": (0, 0, 8),
    "tree of 8 or 16 looked up": (8, 3, 16),
}
"""Draft nodes and passes, and the longest chain that is looked up in the text (wherever it stood before)."""
THREADS = (1, 2, 3)
CHUNKS = (32, 256)
N_RANDOM = 10


@dataclass(frozen=True, slots=True)
class Variant:
    """One setting of all speed knobs; `drafts` is a key of `SHAPES`."""

    drafts: str
    threads: int
    cpu_isa: str
    prefill_chunk: int

    def plan(self, plan: Plan) -> Plan:
        """`plan` with these knobs."""
        nodes, depth, looked_up = SHAPES[self.drafts]
        changes = {
            "draft_nodes": nodes,
            "draft_depth": depth,
            "lookup_nodes": looked_up,
            "lookup_least": 0.0,
            "threads": self.threads,
            "cpu_isa": self.cpu_isa,
            "prefill_chunk": self.prefill_chunk,
        }
        return plan.model_copy(update=changes)

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"drafts: {self.drafts}, {threads}, {self.cpu_isa}, prompt chunks of {self.prefill_chunk}"


def plain(tiers: Sequence[str]) -> Variant:
    """What all others are compared with: no drafts, one thread, the best tier, short chunks."""
    return Variant("none", THREADS[0], tiers[-1], CHUNKS[0])


def all_variants(tiers: Sequence[str]) -> list[Variant]:
    """The whole product, the plain one first."""
    first = plain(tiers)
    product = [Variant(*knobs) for knobs in itertools.product(SHAPES, THREADS, tiers, CHUNKS)]
    return [first, *(variant for variant in product if variant != first)]


def some_variants(tiers: Sequence[str], n_random: int = N_RANDOM, seed: int = 0) -> list[Variant]:
    """The plain one, each knob changed alone, and `n_random` other combinations drawn with `seed`."""
    first = plain(tiers)
    alone = [
        *(replace(first, drafts=drafts) for drafts in SHAPES),
        *(replace(first, threads=threads) for threads in THREADS),
        *(replace(first, cpu_isa=tier) for tier in tiers),
        *(replace(first, prefill_chunk=chunk) for chunk in CHUNKS),
    ]
    chosen = list(dict.fromkeys([first, *alone]))
    others = [variant for variant in all_variants(tiers) if variant not in chosen]
    return chosen + random.Random(seed).sample(others, min(n_random, len(others)))
