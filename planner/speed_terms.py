"""What speeds are made of, term by term: rates, bytes read, and the milliseconds of a check and of a draft pass.

The terms named `check: …` add up to the milliseconds of a check in each case, those named `draft: …` to a draft pass;
where two are alternatives (memory or arithmetic) the longer one counts, and its formula says so.
"""

from __future__ import annotations

from collections.abc import Callable

from twofold.planner.acceptance import DEFAULT_STATISTICS, RankStatistics
from twofold.planner.knobs import Knobs
from twofold.planner.latency import FRESH_TOKENS, SpeedModel
from twofold.planner.machine import CardBudget, HostBudget
from twofold.planner.passes import Work
from twofold.planner.rates import (
    CPU_PASS_EFFICIENCY,
    GPU_EFFICIENCY,
    LINK_EFFICIENCY,
    PREFILL_FLOP_PER_BYTE,
    RESIDUAL_EFFICIENCY,
    Cases,
    Rates,
    Triple,
    case_figure,
)
from twofold.planner.timed import names
from twofold.planner.timed.curve import Estimate
from twofold.planner.timed.passes import UNEVEN
from twofold.planner.timed.speed import TimedSpeed
from twofold.profiles.figures import Figure, reasoned
from twofold.profiles.model_spec import ModelSpec

SpeedTerm = tuple[str, Figure]


def _milliseconds(by: str, seconds: Callable[[Rates], float | None], cases: Cases) -> Figure | None:
    return case_figure([seconds(rate) for rate in cases], "ms", by, scale=1e3)


def _share(efficiency: Triple) -> str:
    return f"{efficiency[0]:g} to {efficiency[2]:g}, likely {efficiency[1]:g}"


def _rates(cases: Cases, device: str) -> list[tuple[str, Figure | None]]:
    def of(name: str, unit: str, scale: float, by: str) -> tuple[str, Figure | None]:
        values = [getattr(rate, name) for rate in cases]
        return f"rate: {name}", case_figure(values, unit, by, scale=scale, digits=3)

    layer = of("layer_s", "µs", 1e6, "norms, rotations, start-up of attention and launches of one layer")
    arithmetic = of("cpu_macs_s", "G multiply-adds/s", 1e-9, "per core of this instruction set × cores")
    if device == "cpu":
        by = f"RAM bandwidth × {_share(CPU_PASS_EFFICIENCY)}"
        return [of("cpu_bytes_s", "GB/s", 1e-9, by), arithmetic, layer]
    return [
        of("gpu_bytes_s", "GB/s", 1e-9, f"the card's bandwidth × {_share(GPU_EFFICIENCY)}: reported 2-bit kernels"),
        of("ram_bytes_s", "GB/s", 1e-9, f"RAM bandwidth × {_share(RESIDUAL_EFFICIENCY)}"),
        arithmetic,
        of("link_bytes_s", "GB/s", 1e-9, f"practical rate of the link × {_share(LINK_EFFICIENCY)}"),
        of("prefill_flops", "TFLOP/s", 1e-12, f"{_share(PREFILL_FLOP_PER_BYTE)} FLOP per byte of bandwidth: reported"),
        of("handoff_s", "µs", 1e6, "one hand-off between card and host: flag, wait, wake"),
        layer,
    ]


def _bytes(work: Work, rows: int) -> list[tuple[str, Figure | None]]:
    def mib(n: float, by: str) -> Figure:
        return reasoned(round(n / (1 << 20), 4), "MiB", by)

    read = [
        ("read: base", mib(work.base_read(rows), f"2-bit base that a check of {rows} rows reads")),
        ("read: residual", mib(work.residual_read(rows), "all residuals, wherever they are")),
        ("read: cache", mib(work.kv_fresh, f"K and V of {FRESH_TOKENS} tokens, or of the context where that is less")),
        ("read: full cache", mib(work.kv_full, f"K and V of {work.knobs.context_tokens} tokens")),
    ]
    if work.knobs.device == "cuda":
        read.insert(2, ("read: residual in RAM", mib(work.residual_read(rows, in_ram_only=True), "by the CPU")))
    return [(name, figure) for name, figure in read]


def _card_passes(work: Work, cases: Cases) -> list[tuple[str, Figure | None]]:
    rows, layers = work.knobs.tree_rows, work.n_layers

    def gpu(n_bytes: float) -> Callable[[Rates], float | None]:
        return lambda rate: None if rate.gpu_bytes_s is None else n_bytes / rate.gpu_bytes_s

    def split(rate: Rates) -> float | None:
        total = 0.0
        for one, n in work.linears:
            if one.in_ram:
                host = one.host_seconds(rows, work.knobs.planes[1], rate)
                if host is None or rate.gpu_bytes_s is None:
                    return None
                total += n * max(one.base * one.share(rows) / rate.gpu_bytes_s, host)
        return total

    on_card = sum((one.base + one.residual) * one.share(rows) * n for one, n in work.linears if not one.in_ram)
    n_split = sum(n for one, n in work.linears if one.in_ram)
    n_card = sum(n for one, n in work.linears if not one.in_ram)
    found: list[tuple[str, str, Callable[[Rates], float | None]]] = [
        ("check: cache", "cache bytes / card", gpu(work.kv_fresh)),
        ("check: Linears in VRAM", f"base and residual of {n_card} fused Linears / card", gpu(on_card)),
        (
            "check: split Linears",
            f"{n_split} fused Linears: max(base on the card, residual on the CPU + transfer)",
            split,
        ),
        ("check: hand-offs", f"{n_split} × one hand-off", lambda rate: n_split * rate.handoff_s),
        ("check: layers", f"{layers} × what a layer takes beside reading", lambda rate: layers * rate.layer_s),
    ]
    if work.knobs.draft_nodes:
        found += [
            ("draft: base and cache", "bytes / card", gpu(work.base_read(1) + work.kv_fresh)),
            ("draft: layers", f"{layers} × what a layer takes beside reading", lambda rate: layers * rate.layer_s),
        ]
    return [(name, _milliseconds(by, seconds, cases)) for name, by, seconds in found]


def _cpu_passes(work: Work, cases: Cases) -> list[tuple[str, Figure | None]]:
    rows, layers, products = work.knobs.tree_rows, work.n_layers, work.products
    n_bytes = work.base_read(rows) + work.residual_read(rows) + work.kv_fresh

    def memory(rate: Rates) -> float | None:
        return None if rate.cpu_bytes_s is None else n_bytes / rate.cpu_bytes_s

    def arithmetic(rate: Rates) -> float:
        return work.used_weights * products * rows / rate.cpu_macs_s

    def longer(rate: Rates) -> float | None:
        bound = memory(rate)
        return None if bound is None else max(bound, arithmetic(rate))

    return [
        ("bound: memory", _milliseconds("base, residual and cache bytes / RAM", memory, cases)),
        (
            "bound: arithmetic",
            _milliseconds(f"weights × {products:.3g} products × rows / multiply-adds", arithmetic, cases),
        ),
        ("check: weights and cache", _milliseconds("the longer of memory and arithmetic", longer, cases)),
        ("check: layers", _milliseconds(f"{layers} × beside reading", lambda rate: layers * rate.layer_s, cases)),
    ]


def _timed_terms(spec: ModelSpec, timed: TimedSpeed) -> list[SpeedTerm]:
    """A check from timed kernels: the parts of `TimedPasses.verify`, each widened as their sum is."""
    passes = timed.passes
    knobs, kernels = passes.knobs, passes.kernels
    rows, context = timed.shape.nodes + 1, min(FRESH_TOKENS, knobs.context_tokens)
    layers = passes.chunk(rows, context)
    whole = passes.verify(rows, context)
    step = kernels.by_values(names.STEP, names.FIXED, names.FLOAT_BITS, 1).widened(UNEVEN)
    found: list[SpeedTerm] = []
    linears: Estimate | None = None
    for group, n in passes.census.groups:
        one = kernels.linear(names.LINEAR, group, knobs.residual_bits, rows).times(n).widened(UNEVEN)
        linears = one if linears is None else linears + one
        shape = names.linear_shape(group)
        found.append((f"check: {n} Linears {shape}", _estimate(one, f"{n} × the timed kernel, {rows} rows", timed)))
    assert linears is not None, "a timed model has Linears"
    rest = _less(layers, linears)
    head = _less(_less(whole, layers), step)
    return [
        *found,
        ("check: attention and rows", _estimate(rest, f"attention behind {context} tokens, norms, rotations", timed)),
        ("check: head", _estimate(head, f"{spec.vocab_size} logits × {rows} rows", timed)),
        ("check: choice and commit", _estimate(step, "what a step takes beside its passes", timed)),
    ]


def _less(whole: Estimate, part: Estimate) -> Estimate:
    return Estimate(
        max(0.0, whole.low - part.low), max(0.0, whole.likely - part.likely), max(0.0, whole.high - part.high)
    )


def _estimate(one: Estimate, what: str, timed: TimedSpeed) -> Figure:
    low, likely, high = (round(part * 1e3, 4) for part in (one.low, one.likely, one.high))
    return reasoned(likely, "ms", f"{what}; {timed.source}", low=low, high=high)


def speed_terms(
    spec: ModelSpec,
    knobs: Knobs,
    card: CardBudget | None,
    host: HostBudget | None,
    statistics: RankStatistics = DEFAULT_STATISTICS,
) -> tuple[SpeedTerm, ...]:
    """All terms that are known; what a missing bandwidth hides is left out."""
    model = SpeedModel(spec, knobs, card, host, statistics)
    reads = _bytes(model.work, knobs.tree_rows)
    if model.timed is not None:
        return (*((name, figure) for name, figure in reads if figure), *_timed_terms(spec, model.timed))
    passes = _cpu_passes if knobs.device == "cpu" else _card_passes
    every = [*_rates(model.cases, knobs.device), *reads, *passes(model.work, model.cases)]
    return tuple((name, figure) for name, figure in every if figure is not None)
