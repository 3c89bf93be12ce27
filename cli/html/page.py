"""What the page says, as plain data: the template lays it out, and a test can read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twofold.cli.fit_terms import is_nothing, term_name
from twofold.cli.fit_view import WORDS
from twofold.cli.fit_ways import name_of, short_place
from twofold.cli.html.charts import NARROW, WIDE, Chart, Series, line_chart, tokens_label
from twofold.cli.html.provenance import Provenance
from twofold.cli.rounding import kl_words
from twofold.planner.alternatives import ORDER, nominal_words
from twofold.planner.quality import RANK
from twofold.profiles.figures import Figure, reasoned
from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.planner.alternatives import Choice
    from twofold.planner.curves import SpeedCurve
    from twofold.planner.evaluate import DeviceVerdict
    from twofold.planner.memory import DeviceMemory, Term
    from twofold.planner.pareto import Pareto, ParetoPoint
    from twofold.planner.report import FitReport

_KINDS = (
    ("base", ("base", "head_base", "rotation", "norms", "dense")),
    ("residual", ("residual",)),
    ("embedding", ("embedding",)),
    ("cache", ("kv", "recurrent_state")),
    ("runtime", ("runtime", "process")),
)
BASE_NOTE = "2-bit base, rotations, norms"


def _kind(term: Term) -> str:
    for kind, names in _KINDS:
        if any(term.name == name or term.name.startswith(f"{name}_") for name in names):
            return kind
    return "buffers"


def _term_name(term: Term) -> str:
    return term.name.replace("_", " ")


def _bar(memory: DeviceMemory, device: DeviceVerdict | None) -> dict[str, Any]:
    """Places on a bar of 1000 units: terms, the range of their sum, what is free and what is kept back of it."""
    free = device.free_mib.number * MIB if device and device.free_mib and device.free_mib.is_number else None
    whole = max(memory.high, free or 0.0) or 1.0
    at, parts = 0.0, []
    for term in memory.terms:
        width = 1000 * term.bytes / whole
        if width > 0:
            parts.append({"x": round(at, 2), "width": round(width, 2), "kind": _kind(term), "name": _term_name(term)})
        at += width
    margin = device.margin_mib * MIB if device else 0.0
    return {
        "parts": parts,
        "low": round(1000 * memory.low / whole, 2),
        "high": round(1000 * memory.high / whole, 2),
        "free": None if free is None else round(1000 * free / whole, 2),
        "margin": None if free is None else round(1000 * max(0.0, free - margin) / whole, 2),
    }


def _device(shown: Provenance, memory: DeviceMemory, device: DeviceVerdict | None, title: str) -> dict[str, Any]:
    place = memory.device.upper()
    terms = [
        {
            "name": _term_name(term),
            "kind": _kind(term),
            "value": shown.show(f"{place}: {_term_name(term)}", term.figure),
        }
        for term in memory.terms
        if not is_nothing(term.figure)
    ]
    free = device.free_mib if device else None
    return {
        "title": title,
        "verdict": device.verdict if device else None,
        "word": WORDS[device.verdict].lower() if device else "not judged: what the host has is unknown",
        "reason": device.reason if device else None,
        "bar": _bar(memory, device),
        "terms": terms,
        "total": shown.show(f"{place}: total", memory.total_figure),
        "free": shown.show(f"{place}: free", free) if free is not None else None,
        "margin_mib": device.margin_mib if device else None,
        "shortfall": shown.show(f"{place}: missing", device.shortfall_mib)
        if device and device.shortfall_mib and device.shortfall_mib.number
        else None,
    }


def _devices(report: FitReport, shown: Provenance) -> list[dict[str, Any]]:
    judged = {device.device: device for device in report.evaluation.devices}
    found = []
    if report.evaluation.vram is not None:
        name = report.card.name if report.card else "the card"
        found.append(_device(shown, report.evaluation.vram, judged.get("vram"), f"VRAM of {name}"))
    found.append(_device(shown, report.evaluation.ram, judged.get("ram"), "RAM"))
    return found


def _key_figures(report: FitReport, shown: Provenance) -> list[dict[str, Any]]:
    speed = report.evaluation.speed
    found = [
        ("decode, little context", speed.decode_tok_s),
        (f"decode, {report.plan.context_tokens:,} tokens in the cache", speed.decode_full_tok_s),
        ("tokens per check", speed.tokens_per_check),
        ("first token after 1K", speed.ttft_1k_s),
        ("first token after 8K", speed.ttft_8k_s),
        ("largest context that fits", report.largest_context),
        ("KL against the original", report.kl),
        ("download", report.download_mib),
        ("disk", report.disk_mib),
    ]
    seen = report.evaluation.observed
    if seen is not None:
        own = (("decode", seen.decode_tok_s), ("first token", seen.first_token_s), ("peak", seen.peak_mib))
        found += [(f"seen in sessions: {name}", figure) for name, figure in own if figure is not None]
    return [
        {"name": name, "value": shown.show(name, figure), "why": None if figure.is_known else figure.by}
        for name, figure in found
    ]


def _plan_words(report: FitReport) -> list[tuple[str, str]]:
    plan = report.plan
    cache = plan.k_type if plan.k_type == plan.v_type else f"K {plan.k_type}, V {plan.v_type}"
    words = [
        ("context", f"{plan.context_tokens:,} tokens"),
        ("weights", f"2-bit base + {plan.residual_bits}-bit residual"),
        ("KV cache", cache),
        ("activations", plan.activations),
    ]
    if plan.device == "cuda":
        words.append(("residuals in VRAM", f"{len(plan.resident_linears)} fused Linears"))
    tree = f"{plan.draft_nodes} nodes, depth {plan.draft_depth}" if plan.draft_nodes else "none"
    words.append(("draft by the base", tree))
    if plan.lookup_nodes:
        words.append(("looked up in the text", f"up to {plan.lookup_nodes} tokens a step"))
    words += [("prefill", f"{plan.prefill_chunk} tokens a pass")]
    return [*words, ("CPU", f"{plan.threads} threads, {plan.cpu_isa}")] if plan.device == "cpu" else words


def _curve_name(curve: SpeedCurve) -> str:
    return "this plan" if curve.ram_gb_s is None else f"RAM at {curve.ram_gb_s:g} GB/s"


def _speed_chart(report: FitReport, shown: Provenance) -> dict[str, Any] | None:
    curves = report.curves
    if not curves:
        return None
    middle = len(curves) // 2
    series = [
        Series(_curve_name(one), tuple((float(n), figure) for n, figure in one.points), i, has_band=i == middle)
        for i, one in enumerate(curves)
    ]
    names = [_curve_name(one) for one in curves]
    picked = [curves[0].points[i][0] for i in range(0, len(curves[0].points), 4)]
    rows = [
        {
            "head": f"{n:,}",
            "cells": [
                shown.show(f"decode, {n:,} tokens, {name}", dict(one.points)[n])
                for name, one in zip(names, curves, strict=True)
            ],
        }
        for n in picked
    ]
    return {
        "charts": _sizes(series, "tokens in the cache", "tok/s"),
        "names": names,
        "banded": names[middle],
        "rows": rows,
    }


def _sizes(series: list[Series], x_label: str, y_label: str, *, is_log: bool = False) -> list[tuple[str, Chart]]:
    sizes = (("wide", WIDE), ("narrow", NARROW))
    return [(name, line_chart(series, size, x_label, y_label, is_log=is_log)) for name, size in sizes]


def _class_series(pareto: Pareto) -> list[Series]:
    """The fastest plan of each class at each context."""
    found: list[Series] = []
    for style, quality in enumerate(sorted(RANK, key=lambda one: -RANK[one])):
        best: dict[int, ParetoPoint] = {}
        for point in pareto.points:
            tokens = point.evaluation.knobs.context_tokens
            if point.quality == quality and (tokens not in best or point.tok_s.number > best[tokens].tok_s.number):
                best[tokens] = point
        if best:
            points = tuple((float(tokens), best[tokens].tok_s) for tokens in sorted(best))
            found.append(Series(f"{quality} class", points, style, has_band=not found))
    return found


def _pareto(report: FitReport, shown: Provenance) -> dict[str, Any] | None:
    pareto = report.pareto
    if pareto is None:
        return None
    if not pareto.points:
        return {"note": pareto.note or "no plan of this model fits", "charts": [], "rows": [], "contexts": []}
    contexts = sorted({point.evaluation.knobs.context_tokens for point in pareto.points})
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for point in pareto.points:
        knobs = point.evaluation.knobs
        row = rows.setdefault(
            (knobs.residual_bits, knobs.k_type),
            {
                "bits": knobs.residual_bits,
                "kv": knobs.k_type,
                "quality": point.quality,
                "below": point.is_below_floor,
                "kl": shown.show(f"KL, {knobs.residual_bits} bits, KV {knobs.k_type}", point.kl),
                "cells": {},
            },
        )
        name = f"decode, {knobs.residual_bits} bits, KV {knobs.k_type}, full context of {knobs.context_tokens:,}"
        row["cells"][str(knobs.context_tokens)] = shown.show(name, point.tok_s)
    series = _class_series(pareto)
    return {
        "note": pareto.note,
        "charts": _sizes(series, "context, full", "tok/s", is_log=True),
        "names": [one.name for one in series],
        "banded": series[0].name,
        "contexts": [(str(tokens), tokens_label(tokens)) for tokens in contexts],
        "rows": list(rows.values()),
        "has_below": any(point.is_below_floor for point in pareto.points),
        "n_tried": pareto.n_tried,
        "n_fitting": pareto.n_fitting,
    }


def _choice(choice: Choice, rank: int, top: float, shown: Provenance) -> dict[str, Any]:
    name = name_of(choice)
    speed = choice.compared
    mib = choice.vram_mib or choice.ram_mib
    return {
        "rank": rank,
        "name": name,
        "what": choice.what,
        "quality": choice.quality or "the file's own",
        "kl": shown.show(f"KL, {name}", choice.kl) if choice.kl.is_known else None,
        "speed": shown.show(f"decode, {name}", speed),
        "is_assumed": choice.is_assumed,
        "mib": shown.show(f"memory, {name}", mib),
        "place": short_place(choice),
        "bar": _speed_bar(speed, top),
        "command": choice.command if choice.runnable else None,
        "floor": choice.floor_words,
        "beaten_by": choice.beaten_by,
        "beaten_how": choice.beaten_how,
        "make": choice.make,
    }


def _speed_bar(speed: Figure, top: float) -> dict[str, float] | None:
    if not speed.is_number or top <= 0:
        return None
    low, high = speed.low or speed.number, speed.high or speed.number
    return {"low": 1000 * low / top, "width": 1000 * (high - low) / top, "likely": 1000 * speed.number / top}


def _choices(report: FitReport, shown: Provenance) -> dict[str, Any]:
    known = [one.compared for one in report.choices if one.compared.is_number]
    top = max((one.high or one.number for one in known), default=0.0)
    rows = [_choice(one, rank, top, shown) for rank, one in enumerate(report.choices, 1)]
    assumed = any(row["is_assumed"] for row in rows)
    serves = any(one.serves is not False for one in report.choices)
    assumed_words = nominal_words(report.machine.host) if assumed else None
    return {"rows": rows, "assumed": assumed_words, "order": ORDER, "serves": serves}


def _machine(report: FitReport, shown: Provenance) -> list[dict[str, Any]]:
    given: list[tuple[str, Figure]] = []
    for card in report.machine.cards:
        given += [
            (f"{card.name}: VRAM", card.total_mib),
            (f"{card.name}: bandwidth", card.bandwidth_gb_s),
            (f"{card.name}: link to the host", card.link_gb_s),
        ]
    host = report.machine.host
    if host is not None:
        given += [("RAM free", host.available_mib), ("RAM read", host.ram_read_gb_s), ("cores", host.cores)]
    return [{"name": name, "value": shown.show(name, figure)} for name, figure in given]


def _host_needs(report: FitReport, shown: Provenance) -> dict[str, Any] | None:
    needs = report.host_needs
    if needs is None:
        return None
    return {
        "isa": needs.isa,
        "ram": shown.show("RAM of the host, free for this", needs.ram_mib),
        "targets": [(f"{t:g} tok/s", shown.show(f"RAM speed for {t:g} tok/s", f)) for t, f in needs.ram_gb_s],
        "examples": [(f"{g:g} GB/s", shown.show(f"decode with {g:g} GB/s of RAM", f)) for g, f in needs.tok_s_at],
    }


def _nearest(report: FitReport, shown: Provenance) -> list[dict[str, Any]]:
    found = []
    for near in report.nearest:
        mib = near.evaluation.vram_mib or near.evaluation.ram_mib
        figure = reasoned(round(mib, 1), "MiB", "sum of the terms of this plan")
        found.append(
            {
                "change": near.change,
                "below": near.quality,
                "mib": shown.show(f"memory, {near.change}", figure),
                "command": report.command.changed(near.options).text,
            }
        )
    return found


def _rounding(report: FitReport, shown: Provenance) -> dict[str, Any] | None:
    """What int8 activations would bring, figure beside figure."""
    gain = report.rounding
    if gain is None:
        return None
    pairs = [("KL against the original", gain.kl, gain.own_kl)]
    if gain.is_prompt_faster:
        pairs.insert(0, ("first token after 1K", gain.speed.ttft_1k_s, gain.own.ttft_1k_s))
    if gain.is_decode_faster:
        pairs.insert(0, ("decode, little context", gain.speed.decode_tok_s, gain.own.decode_tok_s))
    return {
        "activations": gain.activations,
        "by": gain.by,
        "kl": kl_words(gain, report.asked_for) if report.runnable and not gain.kl.is_known else None,
        "pairs": [
            (
                name,
                shown.show(f"{name}, {gain.activations} activations", other),
                shown.show(f"{name}, as compared", own),
            )
            for name, other, own in pairs
        ],
        "command": report.command.changed(gain.options).text,
    }


def _terms(report: FitReport, shown: Provenance) -> list[dict[str, Any]]:
    named = [(term_name(name), figure) for name, figure in report.speed_terms if not is_nothing(figure)]
    return [{"name": name, "value": shown.show(name, figure)} for name, figure in named]


def page_of(report: FitReport, command: str, version: str, day: str) -> dict[str, Any]:
    """Everything on the page. Figures are shown through one `Provenance`, whose rows come last."""
    shown = Provenance()
    where = report.card.name if report.card else report.machine.label
    page: dict[str, Any] = {
        "model": report.model,
        "where": where,
        "verdict": report.verdict,
        "word": WORDS[report.verdict],
        "floor": report.floor,
        "runnable": report.runnable,
        "runnable_reason": report.runnable_reason,
        "advice": report.advice,
        "plan": _plan_words(report),
        "quality": report.to_json()["quality"],
        "key": _key_figures(report, shown),
        "devices": _devices(report, shown),
        "shortfall": shown.show("missing on the shortest device", report.shortfall_mib),
        "speed": _speed_chart(report, shown),
        "pareto": _pareto(report, shown),
        "choices": _choices(report, shown),
        "rounding": _rounding(report, shown),
        "nearest": _nearest(report, shown),
        "host_needs": _host_needs(report, shown),
        "terms": _terms(report, shown),
        "machine": _machine(report, shown),
        "others": [(name, WORDS[found.verdict].lower()) for name, found in report.others],
        "facts_source": report.facts_source,
        "notes": list(report.notes),
        "command": command,
        "version": version,
        "day": day,
    }
    page["provenance"] = shown.rows
    return page
