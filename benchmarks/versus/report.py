"""What a run found, as one JSON document and as tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twofold.cli.output import Sink
from twofold.profiles.figures import Figure, measured, unknown
from twofold.profiles.series import Series, iqr
from versus.judge import Bar
from versus.quality import Quality
from versus.ratios import Speed, speed_ratio
from versus.timing import WorkerPlayer

SCHEMA_VERSION = 1
CHOSEN, PLAIN, LLAMA_Q8, LLAMA_SOURCE = "twofold", "twofold_plain", "llama_cpp_q8_0", "llama_cpp_source"
TWOFOLD_KL = "twofold"


@dataclass(slots=True)
class Run:
    """Everything that was measured; `decode` and `prefill` are speeds by player."""

    about: dict[str, Any]
    drafts: str
    tokens: int
    prompt_tokens: int
    decode: dict[str, Speed]
    prefill: dict[str, Speed]
    players: Sequence[Any]
    checks: dict[str, Any]
    parked: dict[str, Figure]
    quality: Quality | None
    no_quality: str = ""
    llama_how: str = "llama_decode, one token a call"
    bars: list[Bar] = field(default_factory=list)

    @property
    def chosen(self) -> str:
        """The player with the plan's drafts: the plain one where the plan drafts nothing."""
        return CHOSEN if CHOSEN in self.decode else PLAIN

    def kl(self, name: str) -> Figure:
        if self.quality is None or name not in self.quality.kl:
            return unknown("nats", self.no_quality or f"{name} gives no logits")
        return self.quality.kl[name]

    def ratios(self, under: str) -> dict[str, tuple[Figure, dict[str, Figure]]]:
        """Decode, plain decode and prefill over `under`, with those by kind of text."""
        wanted = {
            "decode": (self.decode, self.chosen),
            "plain": (self.decode, PLAIN),
            "prefill": (self.prefill, PLAIN),
        }
        found = {}
        for what, (speeds, over) in wanted.items():
            all_kinds, kinds = speed_ratio(speeds[over], speeds[under])
            by = f"{over} / {under} within each round, {self._what(what)}"
            found[what] = (_ratio(all_kinds, by), {kind: _ratio(series, by) for kind, series in kinds.items()})
        return found

    def cpu_ms_per_token(self) -> dict[str, Figure]:
        """CPU time of all threads (their spinning included) by answered token: what a busy machine disturbs least."""
        by = "CPU time of all threads while decoding, over tokens; median of answers"
        found = {}
        for player in self.players:
            if isinstance(player, WorkerPlayer) and player.answers:
                answers = [answer for same in player.answers.values() for answer in same]
                times = [1000 * answer.cpu_seconds / len(answer.tokens) for answer in answers]
                found[player.name] = measured(
                    _round(statistics.median(times)), "ms", by, n=len(times), spread=_round(iqr(times))
                )
        return found

    def tokens_per_check(self) -> Figure:
        """Of the chosen drafts, over all answers."""
        player = next((one for one in self.players if one.name == CHOSEN), None)
        if not isinstance(player, WorkerPlayer) or not player.answers:
            return unknown("tokens", "the plan drafts nothing")
        answers = [answer for same in player.answers.values() for answer in same]
        checks = sum(answer.checks for answer in answers)
        single = [len(answer.tokens) / answer.checks for answer in answers]
        return measured(
            _round(sum(len(answer.tokens) for answer in answers) / checks),
            "tokens",
            f"greedy answers, {self.drafts}; n counts checks",
            n=checks,
            spread=_round(iqr(single)),
        )

    def _what(self, what: str) -> str:
        if what == "prefill":
            return f"prompts of {self.prompt_tokens} tokens from an empty cache"
        drafts = self.drafts if what == "decode" else "no drafts"
        return f"greedy answers of {self.tokens} tokens to shipped chat prompts, {drafts}"

    def to_json(self) -> dict[str, Any]:
        def speeds(found: Mapping[str, Speed], by: str) -> dict[str, Any]:
            return {
                name: speed.both.figure("tok/s", by).to_json()
                | {"by_text": {kind: one.figure("tok/s", by).to_json() for kind, one in speed.kinds.items()}}
                for name, speed in found.items()
            }

        return {
            "schema_version": SCHEMA_VERSION,
            **self.about,
            "drafts": self.drafts,
            "checks": self.checks,
            "decode_tok_s": speeds(self.decode, f"greedy answers of {self.tokens} tokens; {self.llama_how}"),
            "prefill_tok_s": speeds(self.prefill, self._what("prefill")),
            "ratios": {
                under: {
                    what: figure.to_json() | {"by_text": {kind: one.to_json() for kind, one in kinds.items()}}
                    for what, (figure, kinds) in self.ratios(under).items()
                }
                for under in (LLAMA_Q8, LLAMA_SOURCE)
                if under in self.decode
            },
            "cpu_ms_per_token": {name: figure.to_json() for name, figure in self.cpu_ms_per_token().items()},
            "tokens_per_check": self.tokens_per_check().to_json(),
            "parked_cores": {name: figure.to_json() for name, figure in self.parked.items()},
            "quality": self.quality.to_json() if self.quality else unknown("nats", self.no_quality).to_json(),
            "bars": [bar.to_json() for bar in self.bars],
        }


def show(run: Run, sink: Sink) -> None:
    """The tables that a person reads."""
    cpu = run.cpu_ms_per_token()
    rows = []
    for name, title in _titles(run).items():
        rows.append(
            [
                title,
                _shown(run.decode[name].both),
                _shown(run.prefill[name].both) if name in run.prefill else "",
                _number(cpu.get(name), "{:.3g}"),
                _number(run.kl(_kl_name(name)), "{:.6f}"),
            ]
        )
    title = f"{run.about['model']}: tok/s, medians ± half of the interquartile range"
    columns = ["engine", f"decode {run.tokens}", f"pp{run.prompt_tokens}", "CPU ms/token", "KL (nats)"]
    sink.table(title, columns, rows)
    for under in (LLAMA_Q8, LLAMA_SOURCE):
        if under in run.decode:
            sink.table(
                f"over {_titles(run)[under]}, within each round", ["what", "ratio", "by text"], _ratios(run, under)
            )
    if run.quality is not None and run.quality.difference is not None:
        mean, low, high = run.quality.difference
        sink.line(f"KL of twofold minus llama.cpp Q8_0: {mean:+.2e}, 95 % of texts {low:+.2e} to {high:+.2e}")
    for line in _notes(run):
        sink.line(line)
    verdicts = [[bar.name, _number(bar.found, "{:.4g}"), bar.shown_need, _verdict(bar)] for bar in run.bars]
    if verdicts:
        sink.table("bars", ["what", "found", "needed", ""], verdicts)


def _titles(run: Run) -> dict[str, str]:
    twofold = f"twofold, {run.about['activations']}"
    titles = {
        CHOSEN: f"{twofold}, {run.drafts}",
        PLAIN: f"{twofold}, no drafts",
        LLAMA_Q8: "llama.cpp Q8_0",
        LLAMA_SOURCE: f"llama.cpp on the source ({run.about['source']['types']})",
    }
    return {name: title for name, title in titles.items() if name in run.decode}


def _kl_name(name: str) -> str:
    return TWOFOLD_KL if name in (CHOSEN, PLAIN) else name


def _ratios(run: Run, under: str) -> list[list[str]]:
    rows = []
    for what, (figure, kinds) in run.ratios(under).items():
        by_text = ", ".join(f"{kind} {one.number:.3g}" for kind, one in kinds.items())
        rows.append([what, f"{figure.number:.3g} ± {(figure.spread or 0) / 2:.2g} (n {figure.n})", by_text])
    return rows


def _notes(run: Run) -> list[str]:
    llama, machine, per_check = run.about["llama_cpp"], run.about["machine"], run.tokens_per_check()
    parked = ", ".join(f"{name} {figure.number:.3f}" for name, figure in run.parked.items())
    buffers = ", ".join(f"{name} {size:.0f} MiB" for name, size in llama.get("buffers_mib", {}).items())
    file = llama["q8_0_file"]
    where = (
        f"measured on {machine['cpu']['value'] or 'unknown processor'}; kernels {machine['isa']}, "
        f"{machine['threads']} threads each; load average {machine['load_average']:.1f}; commit {run.about['commit']}"
    )
    return [
        f"tokens per check: {per_check.number:.3f}" if per_check.is_known else f"no drafts: {per_check.by}",
        f"cores busy in parked processes: {parked}",
        f"llama.cpp: {llama['version']}",
        f"  {llama['features']}",
        f"  weights in {buffers or 'unknown'}; Q8_0 file: embedding {file['embedding']}, head {file['head']}",
        where,
    ]


def _verdict(bar: Bar) -> str:
    return "reached" if bar.is_reached else "missed"


def _shown(series: Series) -> str:
    return f"{series.median:.4g} ± {series.iqr / 2:.2g}"


def _number(figure: Figure | None, form: str) -> str:
    return form.format(figure.number) if figure is not None and figure.is_known else "unknown"


def _ratio(series: Series, by: str) -> Figure:
    return series.figure("ratio", by)


def _round(value: float) -> float:
    return float(f"{value:.4g}")
