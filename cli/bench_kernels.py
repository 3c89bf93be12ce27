"""`twofold bench --kernels`: every Linear, the verifier's product against the roofline, attention by KV type, and what
passes are made of, which is kept for the plans of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.cli.launch import Launched
    from twofold.engine.bench.kv_types import AttentionTime
    from twofold.engine.bench.report import BenchOptions
    from twofold.engine.bench.timings import Measured
    from twofold.engine.bench.verifier import VerifierTimes, WorkingSet
    from twofold.engine.checkpoint import Checkpoint
    from twofold.planner.timed.trees import TreeCost

CACHE_FACTOR = 8  # a set of this many times the caches comes from memory, but for an eighth


def bench_kernels(
    launched: Launched, options: BenchOptions, output: str, tiers: str | None, working_set_mib: int
) -> None:
    """Time the kernels on the chosen instruction sets of this machine.

    Raises:
        EngineUnavailable: without the native kernels. EngineFailed: results are wrong. InvalidOption: an option.
    """
    from twofold.cli.bench import document_head, stages
    from twofold.cli.bench_facts import provenance
    from twofold.cli.bench_view import show_attention, show_kernels, show_parts, show_trees, show_verifier
    from twofold.cli.output import err, out, print_json
    from twofold.engine.bench.kernels import time_kernels
    from twofold.engine.bench.verifier import ROWS, working_set
    from twofold.kernels.cpu import missing_reason
    from twofold.probes.bandwidth import measure_ram
    from twofold.probes.cpu import read_cpu
    from twofold.probes.memory import read_memory
    from twofold.profiles.errors import EngineUnavailable

    if (reason := missing_reason()) is not None:
        raise EngineUnavailable(f"there are no native kernels to time: {reason}", hint="twofold doctor")

    names, threads, total = chosen_tiers(tiers), launched.plan.threads, set_bytes(working_set_mib)
    checkpoint = launched.engine.checkpoint
    err().prose(expectation(checkpoint, len(names), options.repeats))
    with stages() as tell:
        ram = measure_ram(read_memory(), read_cpu(), lambda what: tell(what, 0))
        bandwidth = ram.read_gb_s_one_thread if threads == 1 else ram.read_gb_s_all_cores
        times, check = time_kernels(checkpoint, names, threads, options.widths, options.repeats, tell)
        tell("making the working set", 0)
        linears = working_set(checkpoint.config, total, max(ROWS))
        products, attention = _time_tiers(checkpoint, linears, names, threads, options.repeats, tell)
        parts = _time_parts(launched, names, options.repeats, tell)
    trees = [] if parts is None else _trees(launched, parts)
    about, cached = document_head(launched), may_be_cached(linears.nbytes)
    if output == "json":
        print_json(
            about
            | {
                "read_gb_s": bandwidth.to_json(),
                "kernels": [one.to_json() for one in times],
                "verifier": _verifier_json(linears, products, cached),
                "attention": [one.to_json() for one in attention],
                "self_check": check.to_json(),
                "parts": None if parts is None else parts.to_json(),
                "trees": [one.to_json() for one in trees],
            }
        )
        return
    plan = launched.plan
    show_kernels(times, bandwidth, f"{plan.model}: {plan.residual_bits}-bit residual, {plan.activations} activations")
    outputs, inputs = linears.shape
    size = f"{len(linears.weights)} Linears of {outputs} x {inputs}, {linears.nbytes / MIB:.0f} MiB"
    show_verifier(products, f"{size}, {linears.weights[0].residual_bits}-bit residual")
    if cached:
        out().prose("the working set may lie in the caches: no figure of memory")
    show_attention(attention)
    if parts is not None:
        show_parts(parts.timings, parts.agreement)
        show_trees(trees)
    out().prose(provenance(about["machine"], about["commit"]))


def expectation(checkpoint: Checkpoint, n_tiers: int, repeats: int | None) -> str:
    """Roughly how long it takes, in words: the sum of the sweeps' limits, or the share of them that `repeats` is."""
    from twofold.engine.bench.kernels import SAMPLE_SECONDS, TIER_SECONDS, n_shapes
    from twofold.engine.bench.timings import Grid

    grid = Grid()
    sweeps = 2 + sum(bits != checkpoint.config.residual_bits for bits in grid.widths)
    seconds = n_tiers * (n_shapes(checkpoint) * SAMPLE_SECONDS + 2 * TIER_SECONDS) + sweeps * grid.seconds
    seconds *= 1 if repeats is None else repeats / grid.rounds
    rounds = "1 round" if repeats == 1 else f"{repeats} rounds"
    how = "a small --repeats bounds it" if repeats is None else f"{rounds} of each sweep"
    much = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{max(10, round(seconds, -1)):.0f} s"
    return f"timing the kernels takes roughly {much}, more for a large model ({how})"


def chosen_tiers(names: str | None) -> list[str]:
    """The tiers to time: those named, the one that TWOFOLD_CPU_ISA forces, or all that the machine has.

    Raises:
        InvalidOption: a name that is no tier here, or another one than is forced.
    """
    from twofold.kernels.cpu import native
    from twofold.profiles.errors import InvalidOption

    forced = os.environ.get("TWOFOLD_CPU_ISA")
    possible = [str(native().active_tier())] if forced else list(native().available_tiers())
    if names is None:
        return possible
    chosen = list(dict.fromkeys(part.strip() for part in names.split(",")))
    if not set(chosen) <= set(possible):
        raise InvalidOption(
            "--tiers names an instruction set that cannot be used here",
            found=names,
            needed=", ".join(possible) + (" (TWOFOLD_CPU_ISA forces it)" if forced else ""),
            hint=f"--tiers {possible[-1]}",
        )
    return chosen


def set_bytes(asked_mib: int) -> int:
    """Bytes of the working set: what is asked for, and at most a tenth of the available memory.

    Raises:
        InvalidOption: less than 1 MiB.
    """
    from twofold.probes.memory import read_memory
    from twofold.profiles.errors import InvalidOption

    if asked_mib < 1:
        raise InvalidOption("--working-set-mib is too small", found=str(asked_mib), needed="at least 1", hint="1024")
    available = read_memory().available_mib
    return min(asked_mib, int(available.number) // 10 if available.is_number else asked_mib) * MIB


def cache_bytes() -> int:
    """All last-level caches; 0 where none is known."""
    from twofold.probes.cpu import read_cpu
    from twofold.probes.topology import last_level

    return sum(cache.size_bytes * cache.instances for cache in last_level(read_cpu().caches))


def may_be_cached(total_bytes: int) -> bool:
    """Whether more than an eighth of a set could lie in the caches, or they are not known."""
    return total_bytes < CACHE_FACTOR * (cache_bytes() or total_bytes)


def _time_tiers(
    checkpoint: Checkpoint,
    linears: WorkingSet,
    tiers: list[str],
    threads: int,
    repeats: int | None,
    tell: Callable[[str, float], None],
) -> tuple[list[VerifierTimes], list[AttentionTime]]:
    from twofold.engine.backend import choose_backend
    from twofold.engine.bench.kernels import TIER_SECONDS, kernel_rule
    from twofold.engine.bench.kv_types import time_attention
    from twofold.engine.bench.limits import read_rate
    from twofold.engine.bench.verifier import ROWS, time_verifier
    from twofold.probes.bandwidth import reading_cpus
    from twofold.probes.cpu import read_cpu

    read_bytes = min(linears.nbytes, max(256 * MIB, CACHE_FACTOR * cache_bytes()))
    read = read_rate(read_bytes, reading_cpus(read_cpu()), threads)
    rule = kernel_rule(repeats, TIER_SECONDS)
    products: list[VerifierTimes] = []
    attention: list[AttentionTime] = []
    for tier in tiers:
        backend = choose_backend("cpu", threads, tier)
        tell(f"verifier product on {tier}", 0)
        products.append(time_verifier(linears, tier, threads, ROWS, read, rule))
        tell(f"attention on {tier}", 0)
        attention += time_attention(checkpoint.spec, backend.ops, tier, threads, linears.nbytes, rule)
    return products, attention


def _time_parts(
    launched: Launched, tiers: list[str], repeats: int | None, tell: Callable[[str, float], None]
) -> Measured | None:
    """What passes are made of, with the plan's own kernels, kept for later plans; None where another tier was named."""
    from dataclasses import replace

    from twofold.cli.output import err
    from twofold.cli.rounding import is_slow_here
    from twofold.engine.backend import choose_backend
    from twofold.engine.bench.timings import Grid, TimingBench
    from twofold.kernels.cpu import native
    from twofold.profiles.kernel_store import save_timings

    planned = launched.plan.cpu_isa
    plan = launched.plan.model_copy(update={"cpu_isa": planned if planned in native().available_tiers() else "auto"})
    backend = choose_backend("cpu", plan.threads, plan.cpu_isa)
    isa = str(native().active_tier())
    if isa not in tiers:
        return None
    grid = Grid() if repeats is None else replace(Grid(), rounds=repeats, least_rounds=1)
    least = CACHE_FACTOR * cache_bytes()
    found = TimingBench(launched.engine.checkpoint, backend, plan, least or 1 << 40, grid, tell).run(isa)
    if is_slow_here("int8", launched.engine.checkpoint.config):  # whatever the plan says, drafts read one plane
        err().warning("the kernels' times are not kept: they are of a base that one plane multiplies the slow way")
    elif not save_timings(found.timings):
        err().warning("the kernels' times could not be kept in the state folder: plans go on without them")
    return found


def _trees(launched: Launched, parts: Measured) -> list[TreeCost]:
    """What drafts of every size cost here and are expected to give, under the plan's cache."""
    from twofold.cli.launch import known_statistics
    from twofold.planner.knobs import Knobs
    from twofold.planner.timed.passes import timed_passes
    from twofold.planner.timed.source import KernelSource
    from twofold.planner.timed.speed import CHOICE_CONTEXT
    from twofold.planner.timed.trees import tree_costs

    source, plan = KernelSource(parts.timings, is_own=True), launched.plan
    kernels = source.kernels(parts.timings[0].isa, plan.threads, plan.activations)
    passes = timed_passes(launched.spec, Knobs.of(plan), kernels)
    if passes is None or kernels is None:
        return []
    context = min(CHOICE_CONTEXT, plan.context_tokens // 2)
    return tree_costs(passes, known_statistics(launched.engine.checkpoint), context, source.words(kernels))


def _verifier_json(linears: WorkingSet, times: list[VerifierTimes], cached: bool) -> dict[str, Any]:
    return {
        "working_set_bytes": linears.nbytes,
        "may_be_cached": cached,
        "linears": len(linears.weights),
        "shape": list(linears.shape),
        "residual_bits": linears.weights[0].residual_bits,
        "products": [one.to_json() for tier in times for one in tier.products],
        "peaks": [one.to_json() for tier in times for one in tier.peaks],
        "read_gb_s": {tier.peaks[0].isa: tier.read_gb_s.to_json() for tier in times},
    }
