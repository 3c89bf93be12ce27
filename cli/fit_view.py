"""`fit` for people: the verdict as a word first, then memory, speed, and what else would serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.cli.fit_terms import draft_line, is_nothing, show_drafts, show_scopes, term_name
from twofold.cli.output import Sink, err, out
from twofold.profiles.text import cache_words
from twofold.profiles.units import MIB

if TYPE_CHECKING:
    from twofold.planner.evaluate import DeviceVerdict
    from twofold.planner.llama_cpp import Alternative
    from twofold.planner.llama_fit import LlamaFit
    from twofold.planner.memory import DeviceMemory
    from twofold.planner.report import FitReport
    from twofold.profiles.figures import Figure

BAR = 24
LEAST_SHOWN = MIB // 20
"""Bytes below which a term would be shown as 0.0 MiB: `--explain` and JSON have it."""
WORDS = {"fits": "FITS", "tight": "TIGHT", "does_not_fit": "DOES NOT FIT", "unknown": "UNKNOWN"}
STYLES = {"fits": "bold green", "tight": "bold yellow", "does_not_fit": "bold red", "unknown": "bold magenta"}


def _fixed(value: float, digits: int) -> str:
    """A number that these digits cannot show is said to be less than the least of them."""
    text = f"{value:,.{digits}f}"
    return f"<{10.0**-digits:.{digits}f}" if value > 0 and float(text.replace(",", "")) == 0 else text


def _kl(figure: Figure) -> str:
    """A KL with three significant digits: its texts are too few for more."""
    return f"{figure.number:.3g} {figure.unit} ({figure.source})"


def shown(figure: Figure, digits: int = 1) -> str:
    """A figure with its range and where it comes from."""
    if not figure.is_known:
        return f"unknown ({figure.by})"
    if figure.unit == "nats":
        return _kl(figure)
    unit = f" {figure.unit}" if figure.unit else ""
    value = _fixed(figure.number, digits)
    if figure.source == "reasoned" and figure.low is not None and figure.high is not None and figure.low != figure.high:
        low, high = _fixed(figure.low, digits), _fixed(figure.high, digits)
        if low == value == high:
            return f"{value}{unit} (reasoned)"
        return f"{value}{unit} ({low} to {high}, reasoned)"
    return f"{value}{unit} ({figure.source})"


def short(figure: Figure, digits: int = 1) -> str:
    """`low–high` for tables."""
    if not figure.is_known:
        return "unknown"
    if figure.low is not None and figure.high is not None and figure.low != figure.high:
        return f"{figure.low:,.{digits}f}–{figure.high:,.{digits}f}"
    return f"{figure.number:,.{digits}f}"


def _bar(share: float) -> str:
    filled = max(0, min(BAR, round(share * BAR)))
    return "█" * filled + "░" * (BAR - filled)


def number(value: float) -> str:
    """Three significant digits, whole numbers with separators: what a range of tens of percents is worth."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 1 else f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


def brief(figure: Figure) -> str:
    """`low–high` in a few digits, for tables of speeds."""
    if not figure.is_known:
        return "unknown"
    if figure.low is not None and figure.high is not None and figure.low != figure.high:
        return f"{number(figure.low)}–{number(figure.high)}"
    return number(figure.number)


def _headline(report: FitReport) -> str:
    where = report.card.name if report.card else report.machine.label
    if report.card and report.machine.origin == "this machine":
        where = f"{report.card.name} (this machine)"
    is_there = report.verdict in ("fits", "tight")
    tails = [f", {report.floor.clause}"] if is_there and report.floor.clause else []
    tails += [", but this version cannot run it"] if is_there and not report.runnable else []
    return f"{WORDS[report.verdict]}{''.join(tails)}: {report.model} on {where}"


def _floor(sink: Sink, report: FitReport) -> None:
    """Whether a KL that was asked for is kept; a class always is."""
    if report.floor.words is not None:
        word = report.floor.state.replace("_", " ")
        sink.prose(f"quality floor {report.floor.name}: {word}: {report.floor.words}")


def _device(sink: Sink, memory: DeviceMemory, device: DeviceVerdict | None, title: str) -> None:
    whole = memory.total
    if device is not None and device.free_mib is not None and device.free_mib.is_known:
        whole = max(whole, int(device.free_mib.number * MIB))
    rows = []
    for term in memory.terms:
        if term.high < LEAST_SHOWN:
            continue
        note = "exact" if term.low == term.high else f"{term.low / MIB:,.0f} to {term.high / MIB:,.0f}"
        note += ", measured" if term.n else ""
        rows.append((term.name, f"{term.bytes / MIB:,.1f}", note, _bar(term.bytes / whole if whole else 0.0)))
    total = f"{memory.low / MIB:,.0f} to {memory.high / MIB:,.0f}"
    rows.append(("total", f"{memory.total / MIB:,.1f}", total, _bar(memory.total / whole if whole else 0.0)))
    sink.table(title, ("term", "MiB", "range", "share"), rows)


def _memory(sink: Sink, report: FitReport) -> None:
    by_device = {device.device: device for device in report.evaluation.devices}
    if report.evaluation.vram is not None:
        name = report.card.name if report.card else "card"
        _device(sink, report.evaluation.vram, by_device.get("vram"), f"VRAM of {name}")
    judged = by_device.get("ram")
    title = "RAM" if judged is not None else "RAM that the host needs (not judged: its RAM is unknown)"
    _device(sink, report.evaluation.ram, judged, title)


def _plan(sink: Sink, report: FitReport) -> None:
    from twofold.planner.report import quality_class

    plan = report.plan
    words = [
        f"context {plan.context_tokens}",
        f"{plan.residual_bits}-bit residual",
        f"KV {cache_words(plan.k_type, plan.v_type)}",
        f"{plan.activations} activations",
        f"quality class {quality_class(plan)}",
    ]
    if plan.device == "cuda":
        words.append(f"{len(plan.resident_linears)} residuals in VRAM")
        words.append(f"draft tree of {plan.draft_nodes}" if plan.draft_nodes else "no draft")
    else:
        words.append(f"{plan.threads} threads, {plan.cpu_isa}")
        if plan.draft_nodes:
            words.append(f"draft tree of {plan.draft_nodes}, {plan.draft_depth} deep")
        if plan.lookup_nodes:
            words.append(f"up to {plan.lookup_nodes} tokens looked up in the text")
    sink.prose(f"plan:  {', '.join(words)}")


def _speed(sink: Sink, report: FitReport) -> None:
    speed = report.evaluation.speed
    if not speed.decode_tok_s.is_known:
        sink.prose(f"speed: {shown(speed.decode_tok_s)}")
        return
    sink.prose(f"speed: {shown(speed.decode_tok_s)} fresh, {shown(speed.decode_full_tok_s)} with a full context")
    sink.prose(f"       {speed.decode_tok_s.by}")
    if speed.tokens_per_check.number > 1:
        sink.prose(f"       {shown(speed.tokens_per_check, 2)} per check of {shown(speed.check_ms)}")
    line = draft_line(report)
    if line is not None:
        sink.prose(line)


def _observed(sink: Sink, report: FitReport) -> None:
    """What own sessions reached, beside what was predicted."""
    seen, process = report.evaluation.observed, report.evaluation.ram.find("process")
    if seen is not None:
        parts = [shown(seen.decode_tok_s)]
        if seen.first_token_s is not None:
            parts.append(f"first token after {shown(seen.first_token_s, 2)}")
        if seen.peak_mib is not None:
            parts.append(f"peak {shown(seen.peak_mib, 0)}")
        sink.prose(f"seen:  {', '.join(parts)}")
        sink.prose(f"       {seen.note}; {seen.decode_tok_s.by.removeprefix('own sessions; ')}")
    if process is not None and process.n:
        sink.prose(f"       memory of the process: measured, {process.by}")


def _first_token(sink: Sink, report: FitReport) -> None:
    speed = report.evaluation.speed
    if speed.ttft_1k_s.is_known:
        sink.line(f"first token: after a prompt of 1K: {shown(speed.ttft_1k_s)}")
    if speed.ttft_8k_s.is_known:
        sink.prose(f"             after a prompt of 8K: {shown(speed.ttft_8k_s)}")


def _rounding(sink: Sink, report: FitReport) -> None:
    from twofold.cli.rounding import rounding_line

    if report.rounding is not None:
        sink.prose(rounding_line(report.rounding, report.asked_for if report.runnable else None))


def _host(sink: Sink, report: FitReport) -> None:
    needs = report.host_needs
    if needs is None:
        return
    sink.prose(f"the host must have: {shown(needs.ram_mib, 0)} of free RAM; instruction set: {needs.isa}")
    for target, figure in needs.ram_gb_s:
        sink.prose(f"  for {target:g} tok/s: RAM that reads {shown(figure)}" if figure.is_known else f"  {figure.by}")
    for gb_s, figure in needs.tok_s_at:
        sink.prose(f"  with {gb_s:g} GB/s: {shown(figure)}")


def _others(sink: Sink, report: FitReport) -> None:
    for near in report.nearest:
        needed = near.evaluation.vram_mib or near.evaluation.ram_mib
        below = f", quality {near.quality}: below the floor" if near.quality else ""
        sink.prose(f"fits instead: {near.change}{below} ({needed:,.0f} MiB)")
        sink.line(f"  {report.command.changed(near.options).text}")
    if report.verdict in ("tight", "does_not_fit"):
        sink.prose(f"missing: {shown(report.shortfall_mib, 0)}")
        if not report.nearest:
            sink.prose("no plan of this model fits, at any context and quality: take a smaller model (twofold fit)")
    sink.line(f"largest context that fits: {shown(report.largest_context, 0)}")
    for name, other in report.others:
        sink.line(f"{name}, alone: {WORDS[other.verdict]}")
    sink.prose(f"download: {shown(report.download_mib, 0)}; disk: {shown(report.disk_mib, 0)}")
    if report.as_is is not None:
        sink.prose("a GGUF file has two answers. As it is, with llama.cpp: " + _as_is(report.as_is))
        sink.line(f"  {report.as_is.command}")
        sink.prose(f"Requantised by twofold: {WORDS[report.verdict].lower()}, as said above")


def _as_is(one: Alternative) -> str:
    fits = one.fits_card if one.fits_card is not None else one.fits_ram
    word = {True: "fits", False: "does not fit" if one.fits_card is None else "fits in part", None: "unknown"}[fits]
    mib = one.vram_mib if one.fits_card is not None else one.ram_mib
    return f"{word}, {short(mib, 0)} MiB, {one.note}, {short(one.tok_s)} tok/s"


def show_report(report: FitReport, *, explain: bool = False, pareto: bool = False) -> None:
    """The whole answer on stdout, notes and hint on stderr."""
    from twofold.cli.fit_ways import show_choices, show_pareto

    sink, notes = out(), err()
    style = "tight" if report.verdict == "fits" and report.floor.clause else report.verdict
    sink.prose(_headline(report), style=STYLES[style])
    _floor(sink, report)
    for device in report.evaluation.devices:
        sink.prose(f"{device.name}: {WORDS[device.verdict].lower()}: {device.reason}")
    if report.runnable:
        where = "on the CPU" if report.verdict != "does_not_fit" else "on a machine where it fits"
        sink.line(f"can this version run it: yes, {where}")
    else:
        sink.prose(f"can this version run it: no: {report.runnable_reason}")
    _plan(sink, report)
    _memory(sink, report)
    _speed(sink, report)
    _observed(sink, report)
    _first_token(sink, report)
    _rounding(sink, report)
    _host(sink, report)
    _others(sink, report)
    show_choices(sink, report)
    if report.advice is not None:
        words, colon, command = report.advice.partition(": llama-server ")
        sink.prose(f"advice: {words}{colon and ':'}", style="bold")
        if command:
            sink.line(f"  llama-server {command}", style="bold")
    if pareto and report.pareto is not None:
        show_pareto(sink, report.pareto)
    if explain:
        show_explanation(report)
    for note in report.notes:
        notes.prose(f"note: {note}")
    _hint(notes, report)


def _hint(notes: Sink, report: FitReport) -> None:
    """What to type next."""
    if report.machine.origin == "this machine" and not report.evaluation.speed.decode_tok_s.is_known:
        notes.line("hint: twofold probe measures the bandwidths that a speed needs", style="cyan")
    if report.is_forced and report.verdict != "fits":
        notes.prose(f"forced: the exit code is 0, and the verdict is still: {WORDS[report.verdict].lower()}")
    if report.runnable and report.verdict in ("fits", "tight"):
        own = next(choice for choice in report.choices if choice.engine == "twofold")
        notes.line(f"hint: {own.command}", style="cyan")
    elif report.nearest:
        notes.line(f"hint: {report.command.changed(report.nearest[0].options).text}", style="cyan")


def show_explanation(report: FitReport) -> None:
    """Each term: value, formula, provenance."""
    sink = out()
    sink.line("")
    sink.prose(f"facts of the model: {report.facts_source}")
    for memory in (report.evaluation.vram, report.evaluation.ram):
        if memory is None:
            continue
        rows = [(term.name, shown(term.figure, 3), term.by) for term in memory.terms if not is_nothing(term.figure)]
        rows.append(("total", shown(memory.total_figure, 3), "sum of the terms"))
        sink.table(f"terms of {memory.device.upper()}", ("term", "value", "formula"), rows)
    speed = report.evaluation.speed
    found = [(name, getattr(speed, name)) for name in speed.__dataclass_fields__]
    found = [(name, figure) for name, figure in (*found, *report.speed_terms) if not is_nothing(figure)]
    found += [("quality: KL", report.kl), ("download", report.download_mib)]
    found += [("disk", report.disk_mib), ("largest context", report.largest_context)]
    rows = [(term_name(name), shown(figure, 3) if figure.is_known else "unknown", figure.by) for name, figure in found]
    sink.table("terms of speed, quality and disk", ("term", "value", "formula"), rows)
    if report.drafts is not None:
        show_drafts(sink, report.drafts)
    show_scopes(sink, report)
    given = []
    for card in report.machine.cards:
        given += [(f"{card.name}: VRAM free", card.free_mib), (f"{card.name}: bandwidth", card.bandwidth_gb_s)]
        given.append((f"{card.name}: link", card.link_gb_s))
    if report.machine.host is not None:
        given += [("RAM free", report.machine.host.available_mib), ("RAM read", report.machine.host.ram_read_gb_s)]
        given.append(("cores", report.machine.host.cores))
    sink.table("what is known of the machine", ("what", "value", "from"), [(n, shown(f, 2), f.by) for n, f in given])


def show_llama(found: LlamaFit, explain: bool) -> None:
    """The answer for a file with llama.cpp."""
    sink, notes = out(), err()
    what = found.model if found.file.name is None else f"{found.file.name} ({found.model})"
    sink.line(f"{WORDS[found.verdict]}: {what} with llama.cpp on {found.card.name}", style=STYLES[found.verdict])
    for device in (found.device, *found.others):
        sink.line(f"{device.name}: {WORDS[device.verdict].lower()}: {device.reason}")
    _device(sink, found.device.memory, found.device, f"VRAM of {found.card.name}")
    sink.prose(f"speed: {shown(found.tok_s)}")
    if found.tok_s.is_known:
        sink.prose(f"       {found.tok_s.by}")
    sink.prose(f"kept back: {found.margin_words}")
    for near in found.nearest:
        sink.prose(f"fits instead: {near.change}  ({near.vram_mib:,.0f} MiB)")
    if found.verdict in ("tight", "does_not_fit") and found.device.shortfall_mib is not None:
        sink.prose(f"missing: {shown(found.device.shortfall_mib, 0)}")
    sink.line(f"command: {found.command}")
    if found.run.draft_mtp:
        sink.prose(f"not in the command: the options for a draft of {found.run.draft_mtp}, which differ between builds")
    if explain:
        terms = [term for term in found.device.memory.terms if not is_nothing(term.figure)]
        rows = [(term.name, shown(term.figure, 3), term.by) for term in terms]
        sink.table("terms of VRAM", ("term", "value", "formula"), rows)
    for note in found.notes:
        notes.prose(f"note: {note}")
