"""How `bench` shows its results to a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twofold.cli.fit_view import short
from twofold.cli.output import out
from twofold.profiles.figures import Figure

if TYPE_CHECKING:
    from twofold.engine.bench.kernels import KernelTime
    from twofold.engine.bench.kv_types import AttentionTime
    from twofold.engine.bench.operations import OperationTime
    from twofold.engine.bench.report import BenchReport
    from twofold.engine.bench.verifier import VerifierTimes
    from twofold.planner.timed.trees import TreeCost
    from twofold.profiles.hardware import KernelTiming


def spread(figure: Figure, unit: float = 1.0) -> str:
    """`123 ± 4`: the median and half of the interquartile range, in units of `unit`; one sample has no spread."""
    if not figure.is_known:
        return "unknown"
    if figure.n == 1:
        return f"{figure.number / unit:.4g}"
    return f"{figure.number / unit:.4g} ± {(figure.spread or 0) / 2 / unit:.2g}"


def show_report(report: BenchReport, title: str, line: str) -> None:
    """Speeds as llama-bench names them, tokens per check, passes, and one line of provenance."""
    sink, options = out(), report.options
    names = {
        "prefill_tok_s": f"pp{options.prompt_tokens}",
        "plain_decode_tok_s": f"tg{options.tokens} (no drafts)",
        "decode_tok_s": f"tg{options.tokens} ({report.drafts})",
    }
    both, by_text = report.figures(), report.figures_by_text()
    rows = [
        [
            shown,
            spread(both[name]),
            *(spread(by_text[kind][name]) for kind in by_text),
            str(both[name].n),
        ]
        for name, shown in names.items()
        if name != "decode_tok_s" or report.decode is not report.plain
    ]
    sink.table(title, ["test", "tok/s", *(f"on {kind}" for kind in by_text), "n"], rows)
    if report.decode is report.plain:
        sink.prose("the plan drafts nothing: its speed is the plain one")
    shown = {"chosen": f"plan ({report.drafts})", "chain_4": "chain of 4", "tree_16": "tree of 16, 8 deep"}
    checks = [
        [
            shown[name],
            f"{figure.number:.3f}",
            *(f"{report.per_check_by_text[kind][name].number:.3f}" for kind in by_text),
            f"measured, {figure.n} checks",
        ]
        for name, figure in report.per_check.items()
    ]
    sink.table("tokens per check", ["drafts", "all", *(f"on {kind}" for kind in by_text), "source"], checks)
    sink.table("passes", ["rows", "verify (ms)", "draft (ms)"], _pass_rows(report))
    sink.prose(report.passes[0].latency_us.by)
    sink.prose(line)


def _pass_rows(report: BenchReport) -> list[list[str]]:
    found = {(one.rows, one.residual): spread(one.latency_us, 1000) for one in report.passes}
    return [[str(width), found[width, True], found[width, False]] for width in report.options.widths]


def show_operations(times: list[OperationTime], title: str, line: str) -> None:
    """A table for each width, slowest operation first."""
    sink = out()
    for width in dict.fromkeys(one.rows for one in times):
        rows = [
            [one.operation, str(one.calls), spread(one.time_us), f"{100 * one.share:.1f} %"]
            for one in times
            if one.rows == width
        ]
        shown = "1 row" if width == 1 else f"{width} rows"
        sink.table(f"{title}: a pass of {shown}", ["operation", "calls", "us in all", "of the pass"], rows)
    sink.prose(times[0].time_us.by)
    sink.prose(line)


def show_kernels(times: list[KernelTime], bandwidth: Figure, title: str) -> None:
    """GB/s of weights read, beside what this machine's memory gave in the same run."""
    limit = bandwidth.number if bandwidth.is_known else None
    rows: list[list[Any]] = []
    for one in times:
        share = f"{100 * one.gb_s.number / limit:.0f} %" if limit else "unknown"
        rows.append(
            [
                one.group,
                f"{one.out_features} x {one.in_features}",
                str(one.rows),
                "base + residual" if one.residual else "base",
                one.isa,
                spread(one.latency_us),
                spread(one.gb_s),
                share,
            ]
        )
    columns = ["Linear", "shape", "rows", "weights", "kernels", "us", "GB/s", "of read bandwidth"]
    out().table(title, columns, rows)
    shown = f"{spread(bandwidth)} GB/s ({bandwidth.by})" if limit else f"unknown ({bandwidth.by})"
    out().prose(f"memory read bandwidth: {shown}")


def show_verifier(times: list[VerifierTimes], about: str) -> None:
    """Products against the roofline of the same rounds, and that roofline."""
    rows = [
        [
            str(one.rows),
            one.isa,
            spread(one.latency_us),
            spread(one.prepare_us),
            spread(one.gb_s),
            spread(one.multiply_adds_s, 1e9),
            one.bound,
            f"{spread(one.roofline_share, 0.01)} %",
        ]
        for tier in times
        for one in tier.products
    ]
    columns = ["rows", "kernels", "us", "rotation (us)", "GB/s", "10⁹ MAC/s", "bound by", "of the roofline"]
    out().table(f"verifier product: {about}", columns, rows)
    for tier in times:
        for peak in tier.peaks:
            threads = "1 thread" if peak.threads == 1 else f"{peak.threads} threads"
            out().prose(f"{peak.isa}, {peak.instruction}, {threads}: {spread(peak.multiply_adds_s, 1e9)} 10⁹ MAC/s")
        out().prose(f"{tier.peaks[0].isa}: read {spread(tier.read_gb_s)} GB/s ({tier.read_gb_s.by})")


def show_attention(times: list[AttentionTime]) -> None:
    """Types of K and V beside each other; nothing where no layer sees the whole context."""
    if not times:
        return
    rows = [
        [
            one.kv_type,
            str(one.rows),
            one.isa,
            spread(one.latency_us),
            f"{one.cache_bytes / 2**20:.2f}",
            spread(one.gb_s),
            spread(one.speed_to_f16),
        ]
        for one in times
    ]
    heads, kv_heads = times[0].heads
    title = f"attention: {times[0].context} positions, {heads} heads over {kv_heads}"
    out().table(title, ["K and V", "rows", "kernels", "us", "MiB", "GB/s", "speed / f16"], rows)


def show_parts(timings: Sequence[KernelTiming], agreement: Mapping[tuple[int, bool], float]) -> None:
    """What passes are made of: each part at its narrowest and widest, and how the sums compare with whole passes."""
    found: dict[tuple[str, str, int], dict[int, Figure]] = {}
    for one in timings:
        found.setdefault((one.op, one.shape, one.bits), {})[one.rows] = one.latency_us
    rows = []
    for (op, shape, bits), by_rows in found.items():
        first, last = min(by_rows), max(by_rows)
        widest = [str(last), spread(by_rows[last])] if last > first else ["", ""]
        rows.append([op, shape, str(bits), str(first), spread(by_rows[first]), *widest])
    out().table("parts of a pass", ["part", "shape", "bits", "rows", "us", "rows", "us"], rows)
    low, high = min(agreement.values()), max(agreement.values())
    out().prose(
        f"whole passes took {low:.3f} to {high:.3f} of the sum of their parts, and the parts are scaled to them"
    )
    out().prose(f"{len(timings)} times are kept for the plans of this machine; {timings[0].latency_us.by}")


def show_trees(trees: Sequence[TreeCost]) -> None:
    """For every number of nodes the depth that is likely fastest; nothing where none could be added up."""
    best: dict[int, TreeCost] = {}
    for one in trees:
        if one.nodes not in best or one.gain > best[one.nodes].gain:
            best[one.nodes] = one
    rows = [
        [str(n), str(one.depth), short(one.tokens, 2), short(one.step_ms, 1), f"{one.gain:.2f}"]
        for n, one in best.items()
    ]
    if rows:
        columns = ["nodes", "depth", "tokens per check", "step (ms)", "tok/s over no draft's"]
        out().table("best-first trees, reasoned", columns, rows)
        out().prose(f"{trees[0].step_ms.by}; tokens: {trees[0].tokens.by}")
