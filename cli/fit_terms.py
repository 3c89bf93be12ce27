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

LEAST = 0.0005
"""Figures below that would be shown as 0.000: JSON has them."""
_NAMES = {
    "rate: gpu_bytes_s": "rate: the card's memory",
    "rate: cpu_bytes_s": "rate: RAM",
    "rate: ram_bytes_s": "rate: RAM",
    "rate: link_bytes_s": "rate: link of card and host",
    "rate: cpu_macs_s": "rate: arithmetic of the CPU",
    "rate: prefill_flops": "rate: arithmetic of the card",
    "rate: handoff_s": "time: one hand-off",
    "rate: layer_s": "time: one layer beside reading",
    "decode_tok_s": "decode, little context",
    "decode_full_tok_s": "decode, full context",
    "tokens_per_check": "tokens per check",
    "check_ms": "one check",
    "host_ms": "the CPU's part of a check",
    "draft_pass_ms": "one pass of the draft",
    "ttft_1k_s": "first token after 1K",
    "ttft_8k_s": "first token after 8K",
}


def term_name(name: str) -> str:
    """What people call a term."""
    return _NAMES.get(name, name)


def is_nothing(figure: Figure) -> bool:
    """Whether a figure would be shown as 0.000."""
    return figure.is_number and abs(figure.number) < LEAST and abs(figure.high or 0.0) < LEAST and figure.unit != "nats"


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
