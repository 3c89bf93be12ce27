"""`fit` for people, the comparisons: what would serve, speed against quality and context, the known models ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twofold.cli.fit_view import WORDS, brief, short
from twofold.cli.output import Sink, err, out

if TYPE_CHECKING:
    from twofold.planner.alternatives import Choice
    from twofold.planner.machine import MachineBudget
    from twofold.planner.pareto import Pareto, ParetoPoint
    from twofold.planner.rank import RankedModel
    from twofold.planner.report import FitReport
    from twofold.profiles.figures import Figure

_LABEL, _CELL = 22, 11
"""Columns that a row of the front takes for its labels and for each context."""


def name_of(choice: Choice) -> str:
    return "twofold" if choice.engine == "twofold" else f"llama.cpp {choice.what}"


def short_place(choice: Choice) -> str:
    """Where it would run, in a few words; what the free memory does not hold is said."""
    where = choice.place.removesuffix(", the rest from RAM").removesuffix(", the rest in RAM")
    where = where.removesuffix(": more than the free RAM").removeprefix("base and ")
    return where + ("; does not fit" if choice.serves is False else "")


def _in_vram(choice: Choice) -> str:
    """What of it the card holds, for a column."""
    if choice.vram_mib is None:
        return "none"
    return "all" if choice.whole_on_card else short_place(choice).split(" in VRAM")[0].replace(" of ", "/")


def show_choices(sink: Sink, report: FitReport) -> None:
    """twofold's plan among llama.cpp's files, the best way first, then the commands to paste."""
    from twofold.planner.alternatives import ORDER, nominal_words

    choices = report.choices
    has_kl = any(choice.kl.is_known for choice in choices)
    is_nominal = any(choice.is_assumed for choice in choices)
    rows = []
    for rank, choice in enumerate(choices, 1):
        star = "*" if choice.is_assumed else ""
        mib = short(choice.vram_mib or choice.ram_mib, 0)
        row = [str(rank), name_of(choice), choice.quality or "its own", brief(choice.compared) + star, mib]
        row.append(_in_vram(choice))
        if has_kl:
            row.insert(3, f"{choice.kl.number:.3g}" if choice.kl.is_known else "")
        rows.append(row)
    columns = ["", "way", "class", *["KL"] * has_kl, "tok/s", "MiB", "in VRAM"]
    serves = any(choice.serves is not False for choice in choices)
    sink.table("what would serve, best first" if serves else "what was looked at: none would serve", columns, rows)
    if is_nominal:
        sink.prose(f"* {nominal_words(report.machine.host)}")
    sink.prose(f"order: {ORDER}")
    for rank, choice in enumerate(choices, 1):
        if choice.serves is False:
            sink.line(f"{rank}: does not fit")
        if choice.floor_words is not None:
            sink.line(f"{rank}: {choice.floor_words}")
        if not choice.runnable:
            sink.line(f"{rank}: this version does not run it")
        if choice.beaten_by is not None:
            sink.prose(f"{rank}: {choice.beaten_by} is {choice.beaten_how}", indent="   ")
        if choice.make is not None:
            sink.line(f"{rank}: make its file first: {choice.make}")
    sink.line("commands (names of repositories follow a convention and were not looked up):")
    for rank, choice in enumerate(choices, 1):
        sink.line(f"{rank}: {choice.command if choice.runnable else 'not with this version'}")


def show_pareto(sink: Sink, pareto: Pareto) -> None:
    """Speed against quality and context: a row for each quality, a column for each context."""
    if not pareto.points:
        sink.prose(f"no front: {pareto.note or 'no plan fits'}")
        return
    contexts = sorted({point.evaluation.knobs.context_tokens for point in pareto.points})
    picked = pick(contexts, sink.width)
    sink.table("tok/s with a full context, of plans that no other beats", _columns(picked), _rows(pareto, picked))
    if any(point.is_below_floor for point in pareto.points):
        sink.line("* below the quality floor (--min-quality)")
    if len(picked) < len(contexts):
        sink.prose("other contexts: a wider terminal, --html or --format json")
    notes = err()
    notes.prose(f"note: {pareto.n_tried} plans looked at, {pareto.n_fitting} fit; ranges are reasoned")
    if pareto.note is not None:
        notes.prose(f"note: {pareto.note}")


def pick(contexts: Sequence[int], width: int | None) -> list[int]:
    """As many contexts as there is room for, evenly, the longest and the shortest among them."""
    room = len(contexts) if width is None else max(2, (width - _LABEL) // _CELL)
    if room >= len(contexts):
        return list(contexts)
    return [contexts[round(i * (len(contexts) - 1) / (room - 1))] for i in range(room)]


def _columns(contexts: Sequence[int]) -> list[str]:
    return ["bits", "KV", "class", *(f"{n // 1024}K" if n % 1024 == 0 else str(n) for n in contexts)]


def _rows(pareto: Pareto, contexts: Sequence[int]) -> list[list[str]]:
    rows: dict[tuple[int, str, str], dict[int, ParetoPoint]] = {}
    for point in pareto.points:
        knobs = point.evaluation.knobs
        key = (knobs.residual_bits, knobs.k_type, point.quality + (" *" if point.is_below_floor else ""))
        rows.setdefault(key, {})[knobs.context_tokens] = point
    return [
        [str(bits), kind, quality, *(brief(cells[n].tok_s) if n in cells else "" for n in contexts)]
        for (bits, kind, quality), cells in rows.items()
        if any(n in cells for n in contexts)
    ]


def _gib(mib: Figure) -> str:
    low, high = (mib.number if one is None else one for one in (mib.low, mib.high))
    words = [f"{one / 1024:.3g}" if one >= 1024 else f"{one / 1024:.2f}" for one in (low, high)]
    return "–".join(dict.fromkeys(words))


def _wait(seconds: Figure) -> str:
    """A wait that nobody notices is not told apart."""
    return "<0.1" if seconds.is_known and (seconds.high or seconds.number) < 0.1 else brief(seconds)


def show_ranking(rows: Sequence[RankedModel], machine: MachineBudget) -> None:
    """The known models as a table, and the best one to chat with here as a hint."""
    from twofold.planner.alternatives import nominal_words
    from twofold.planner.rank import USABLE_TOK_S, recommended

    sink, notes = out(), err()
    table = []
    for row in rows:
        star = "*" if row.compared.is_known and not row.evaluation.speed.decode_tok_s.is_known else ""
        fits = {"fits": "yes", "does_not_fit": "no"}.get(row.verdict, WORDS[row.verdict].lower())
        runs, speed = "yes" if row.runnable else "no", brief(row.compared) + star
        wait, download = _wait(row.evaluation.speed.ttft_1k_s), _gib(row.download_mib)
        table.append((row.model, fits, runs, row.quality, speed, wait, download))
    columns = ("model", "fits", "runs", "class", "tok/s", "1K, s", "GiB")
    sink.table(f"known models on {machine.label}", columns, table)
    tokens = max(row.plan.context_tokens for row in rows)
    sink.prose(f"context: {tokens:,} tokens, or a model's own where that is less (--ctx states another)")
    order = f"what fits, what this version runs, what likely reaches {USABLE_TOK_S:g} tok/s, then the larger model"
    sink.prose(f"order: {order}")
    unjudged = [row.floor for row in rows if row.floor.state == "not_judged"]
    missed = [row.model for row in rows if row.floor.state == "not_met"]
    if unjudged:
        sink.prose(
            f"quality floor {unjudged[0].name}: not judged for {len(unjudged)} of {len(rows)}: no KL of them is known"
        )
    if missed:
        sink.prose(f"below the quality floor: {', '.join(missed)}")
    sink.prose("1K, s: wait for the first token after a prompt of 1K. GiB: download. runs: this version runs the plan.")
    if any("*" in row[4] for row in table):
        sink.prose(f"* {nominal_words(machine.host)}")
    for note in machine.notes:
        notes.prose(f"note: {note}")
    whence = "from bytes and bandwidths or from timed kernels"
    notes.prose(f"note: ranges are reasoned, {whence}; each says more: twofold fit MODEL --explain")
    best = recommended(rows)
    if best is not None:
        notes.line(f"hint: twofold chat {best.model}", style="cyan")
