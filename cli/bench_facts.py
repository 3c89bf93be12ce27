"""What a benchmark says beside its timings: the machine, and tokens per check reasoned from rank statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twofold.planner.acceptance import RankStatistics, chain_tokens, tree_tokens
from twofold.profiles.figures import Figure, reasoned, unknown

if TYPE_CHECKING:
    from twofold.profiles.hardware import Cpu, Ram

TREE_NODES = 16
CHAIN_NODES = 4
LEAST_ERROR = 0.05
"""The reasoned range is never narrower than this part of the value."""


@dataclass(frozen=True, slots=True)
class MeasuredRanks(RankStatistics):
    """Rank frequencies measured per depth; deeper levels are taken to be like the deepest measured one."""

    by_depth: tuple[tuple[float, ...], ...] = ()

    def probability(self, depth: int, rank: int) -> float:
        table = self.by_depth[min(depth, len(self.by_depth)) - 1]
        return table[rank] if rank < len(table) else 0.0


def measured_ranks(measured: Mapping[str, Any]) -> MeasuredRanks | None:
    """The rank statistics that `twofold eval` left in a checkpoint (its report); None where it was never run."""
    try:
        found = measured["draft"]
        tables = tuple(tuple(float(p) for p in depth) for depth in found["rank_frequencies"])
        tokens = int(found["tokens"])
    except (KeyError, TypeError, ValueError):
        return None
    if not tables or not tables[0] or not all(0 <= p <= 1 for table in tables for p in table):
        return None
    return MeasuredRanks(tables[0], 1.0, f"rank statistics measured on {tokens} held-out tokens", tables)


def tree_figure(measured: Mapping[str, Any], chain_4: Figure) -> Figure:
    """Tokens per check of a best-first tree of 16 nodes, which this version cannot run yet.

    The range is how far the same formula is off for the chain that was run here.
    """
    statistics = measured_ranks(measured)
    if statistics is None:
        return unknown("tokens", "no rank statistics in the checkpoint: run `twofold eval` on it")
    value, depth = tree_tokens(statistics, TREE_NODES, TREE_NODES)
    chain = chain_tokens(statistics, CHAIN_NODES)
    off = max(abs(chain / chain_4.number - 1), LEAST_ERROR)
    by = (
        f"best-first tree of {TREE_NODES} nodes, depth {depth}, from {statistics.by}; for a chain of {CHAIN_NODES} the "
        f"same formula gives {chain:.3g} where {chain_4.number:.3g} was measured here"
    )
    most = float(TREE_NODES + 1)
    return reasoned(
        float(f"{value:.4g}"),
        "tokens",
        by,
        low=round(max(1.0, value * (1 - off)), 3),
        high=min(most, round(value * (1 + off), 3)),
    )


def machine_facts(cpu: Cpu, ram: Ram, isa: str, threads: int) -> dict[str, Any]:
    """The machine in words that identify nobody, with the kernels' tier and threads."""
    facts = {
        "cpu": cpu.model,
        "logical_cores": cpu.logical_cores,
        "physical_cores": cpu.physical_cores,
        "usable_cpus": cpu.usable_cpus,
        "quota_cpus": cpu.quota_cpus,
        "ram_total": ram.total_mib,
    }
    return {name: figure.to_json() for name, figure in facts.items()} | {"isa": isa, "threads": threads}


def provenance(machine: Mapping[str, Any], commit: str) -> str:
    """One line: what was measured on."""
    cores = machine["physical_cores"]["value"]
    cpu = machine["cpu"]["value"] or "unknown processor"
    threads = machine["threads"]
    return (
        f"measured on {cpu}, {cores if cores is not None else 'unknown'} cores; kernels {machine['isa']}, "
        f"{threads} thread{'s' if threads != 1 else ''}; commit {commit}"
    )
