"""Two tables of `fit --explain`: the ways to draft, and bits per weight by scope; and the line about the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.cli.output import Sink

if TYPE_CHECKING:
    from twofold.planner.drafts import DraftComparison
    from twofold.planner.report import FitReport
    from twofold.profiles.figures import Figure

SAME = 1.02
"""Likely speeds nearer than that are one: the plan's draft is as good as the best."""


def _span(figure: Figure, digits: int = 1) -> str:
    if not figure.is_known or figure.low is None or figure.high is None:
        return "unknown"
    return f"{figure.number:,.{digits}f} ({figure.low:,.{digits}f}–{figure.high:,.{digits}f})"


def draft_line(report: FitReport) -> str | None:
    """Which way to draft is likely the fastest, where that is not the plan's."""
    found = report.drafts
    if found is None or (best := found.best) is None:
        return None
    own = found.of(report.plan.draft_nodes, report.plan.draft_depth)
    if own is None or best.tok_s.number <= SAME * own.tok_s.number:
        return f"draft: none is likely faster than the plan's, {found.host}" if own is not None else None
    also = "" if best.is_run_here else " (this version drafts with the base alone)"
    speeds = f"{_span(best.tok_s)} tok/s against {_span(own.tok_s)}"
    return f"draft: {best.name} would likely be faster, {speeds}, {found.host}{also}; --explain compares"


def show_drafts(sink: Sink, found: DraftComparison) -> None:
    """Every way to draft with its tokens, times and speed."""
    rows = [
        (
            way.name,
            _span(way.tokens, 2),
            _span(way.draft_ms),
            _span(way.check_ms),
            _span(way.tok_s),
            f"{way.host_residual_mib:,.0f}",
        )
        for way in found.ways
    ]
    columns = ("draft", "tokens per check", "draft, ms", "check, ms", "tok/s", "residual in RAM, MiB")
    sink.table(f"ways to draft, {found.host} (reasoned)", columns, rows)
    best = found.best
    if best is not None:
        also = "" if best.is_run_here else "; this version drafts with the base alone"
        sink.line(f"likely fastest: {best.name}{also}")
    sink.line(found.head)


def show_scopes(sink: Sink, report: FitReport) -> None:
    """What bits per weight are, by what is counted."""
    rows = [
        (codec, one.what, f"{one.bits:.3f}", f"{one.bytes:,}", f"{one.weights:,}")
        for codec, scopes in report.scopes
        for one in scopes
    ]
    sink.table("bits per weight by scope (exact)", ("codec", "what is counted", "bits", "bytes", "weights"), rows)
