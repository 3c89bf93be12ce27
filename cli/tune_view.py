"""What `twofold tune` says in the end: the plan against trial 0, as a table or as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.profiles.figures import Figure, measured, reasoned, unknown

if TYPE_CHECKING:
    from twofold.cli.fill import Filled
    from twofold.cli.tune_job import TuneReport
    from twofold.planner.plan import Plan
    from twofold.planner.tuning.duel import Duel
    from twofold.planner.tuning.tuner import TuneResult

SCHEMA_VERSION = 1
DEFAULT_BUDGET = 300
"""Seconds that `twofold tune` takes without a wish."""
_KNOBS = ("draft_nodes", "draft_depth", "prefill_chunk", "threads", "k_type", "v_type", "activations", "residual_bits")


def show(report: TuneReport, path: Path | None, output: str, model: str) -> None:
    """Print it; `model` as it was named."""
    from twofold.cli.output import print_json

    if output == "json":
        print_json(document(report, path))
    else:
        _show_human(report, path, model)


def document(report: TuneReport, path: Path | None) -> dict[str, Any]:
    """Everything, every figure with its source."""
    from twofold.cli.bench_facts import machine_facts
    from twofold.cli.version import commit, kernels_label
    from twofold.probes.cpu import read_cpu
    from twofold.probes.memory import read_memory

    shape, result = report.target.shape, report.result
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "machine": machine_facts(read_cpu(), read_memory(), kernels_label(), report.plan.threads),
        "commit": commit(),
        "model": report.plan.model,
        "turn": {"cached_tokens": shape.depth, "prompt_tokens": shape.prompt, "answer_tokens": shape.answer},
        "plan": report.plan.model_dump(mode="json"),
        "trial_0": report.trial0.model_dump(mode="json"),
        "is_tuned": result.is_tuned if result is not None else False,
        "tokens_per_check": _tokens(report),
        "kept": path is not None,
        "notes": list(report.notes),
        "other_activations": report.rounding.to_json() if report.rounding is not None else None,
    }
    if result is not None:
        search = result.search
        found |= {
            "trial_0_turn_s": _turns(result.baseline_turns, _turn_by(report)).to_json(),
            "noise_floor": measured(
                _short(result.noise_floor), "", "relative standard deviation of trial 0", n=len(result.baseline_turns)
            ).to_json(),
            "search": {
                "trials": search.n_trials,
                "did_not_fit": search.n_infeasible,
                "from_others": search.n_others,
                "compared": result.n_others,
                "samples": result.n_samples,
            },
            "ab": _duel(report, result.duel) if result.duel is not None else None,
            "outcome": _outcome(result),
        }
    if report.verification is not None:
        found["verification"] = _verification(report.verification)
    return found


def _duel(report: TuneReport, duel: Duel) -> dict[str, Any]:
    assert report.result is not None
    return {
        "rounds": duel.rounds,
        "candidate": report.target.plan(report.result.candidate).model_dump(mode="json"),
        "trial_0_turn_s": _turns(duel.baseline, _turn_by(report)).to_json(),
        "candidate_turn_s": _turns(duel.winner, _turn_by(report)).to_json(),
        "saved": measured(
            _short(duel.gain), "", "share of trial 0's turn, paired rounds; spread: standard error", n=duel.rounds,
            spread=_short(duel.error),
        ).to_json(),
        "must_exceed": _short(duel.floor),
        "is_won": duel.is_won,
    }  # fmt: skip


def _tokens(report: TuneReport) -> dict[str, Any]:
    target = report.target
    points = [target.baseline] if report.result is None else [target.baseline, report.result.candidate]
    names = ("trial_0", "candidate")
    source = measured if target.decoded else reasoned
    return {
        name: source(_short(target.tokens(point)), "tokens", report.tokens_by).to_json()
        for name, point in zip(names, points, strict=False)
    }


def _verification(filled: Filled) -> dict[str, Any]:
    group = unknown("MiB", "no control group counts it")
    if filled.group_peak_mib is not None:
        group = measured(round(filled.group_peak_mib, 1), "MiB", "peak of the control group, other processes included")
    return {
        "is_verified": filled.is_filled,
        "problem": filled.problem,
        "context_tokens": filled.context_tokens,
        "reached_tokens": filled.reached_tokens,
        "rows_on_top": filled.rows,
        "peak": filled.peak_figure().to_json(),
        "group_peak": group.to_json(),
        "expected": reasoned(
            filled.expected_mib, "MiB", "the plan's memory", high=round(filled.upper_mib, 1)
        ).to_json(),
        "major_faults": filled.rereads,
        "smaller_context": filled.smaller_context,
    }


def _turn_by(report: TuneReport) -> str:
    shape = report.target.shape
    return (
        f"{shape.prompt} tokens read and {shape.answer} written behind {shape.depth} cached, "
        "from sampled passes and steps at that depth"
    )


def _turns(samples: Sequence[float], by: str) -> Figure:
    from twofold.profiles.series import Series

    return Series(tuple(samples), "rounds").figure("s", by)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _show_human(report: TuneReport, path: Path | None, model: str) -> None:
    from twofold.cli.output import err, out
    from twofold.cli.rounding import rounding_line

    result, plan = report.result, report.plan
    sink = out()
    if result is not None:
        duel = result.duel
        candidate = report.target.plan(result.candidate)
        columns = ["", "trial 0", *(["candidate"] if duel is not None else [])]
        plans = [report.trial0, *([candidate] if duel is not None else [])]
        sink.table(f"{plan.model}: {_turn_by(report)}", columns, _rows(report, plans))
        search = result.search
        others = f", {search.n_others} of others" if search.n_others else ""
        sink.line(
            f"{search.n_trials} {'plan' if search.n_trials == 1 else 'plans'} tried{others}, "
            f"{search.n_infeasible} did not fit, {result.n_samples} samples; "
            f"noise of trial 0: {100 * result.noise_floor:.1f} % (n {len(result.baseline_turns)})"
        )
        sink.prose(_outcome(result))
    for note in report.notes:
        sink.prose(f"note: {note}")
    if report.rounding is not None:
        sink.prose(rounding_line(report.rounding, model))
    if report.verification is not None:
        for line in verification_lines(report.verification):
            sink.prose(line)
    sink.prose(_kept(plan, path, is_tuned=result is not None and result.is_tuned))
    if result is None and report.verification is None:
        err().line("hint: leave out --trials 0 to tune, or add --verify to fill the context", style="cyan")


def _outcome(result: TuneResult) -> str:
    duel = result.duel
    if not result.n_others:
        return _nothing_tried(result)
    if duel is None:
        return "no other plan looked faster: trial 0, what chat starts untuned, stays"
    saved = f"{100 * duel.gain:.1f} ± {100 * duel.error:.1f} % of a turn saved, n {duel.rounds} paired rounds"
    if result.is_tuned:
        return f"the candidate won: {saved}"
    return f"trial 0 stays: {saved}, more than {100 * duel.floor:.1f} % would have counted"


def _nothing_tried(result: TuneResult) -> str:
    if result.seconds is None or not result.is_out_of_time:
        return "nothing else was tried: there is no other plan that fits"
    more = max(DEFAULT_BUDGET, math.ceil(4 * result.seconds))
    return (
        f"nothing else was tried: the budget of {result.seconds:g} s was used up by measuring trial 0 "
        f"({result.n_samples} samples); give --budget {more}"
    )


def _rows(report: TuneReport, plans: Sequence[Plan]) -> list[list[str]]:
    result = report.result
    assert result is not None
    rows = [[name.replace("_", " "), *(str(getattr(plan, name)) for plan in plans)] for name in _KNOBS]
    points = [result.baseline, result.candidate][: len(plans)]
    rows.append(["tokens per check", *(f"{report.target.tokens(point):.2f}" for point in points)])
    times = [result.baseline_turns] if result.duel is None else [result.duel.baseline, result.duel.winner]
    figures = [_turns(samples, "") for samples in times]
    rows.append(["seconds of a turn", *(f"{one.number:.4g} ± {(one.spread or 0) / 2:.2g}" for one in figures)])
    rows.append(["RAM expected", *(f"{plan.expected_ram_mib:,.0f} MiB" for plan in plans)])
    return rows


def verification_lines(filled: Filled) -> list[str]:
    """The outcome of filling the context; a failure with what was needed against what was found."""
    if filled.is_filled:
        what = f"{filled.context_tokens} tokens filled, a check of {filled.rows} rows on top"
        estimate = f"{filled.expected_mib:,.0f} expected, at most {filled.upper_mib:,.0f}"
        return [f"verified: {what}; peak {filled.peak_mib:,.0f} MiB (measured), {estimate}"]
    lines = [f"not verified: {filled.problem}"]
    lines.append(f"  needed: {filled.context_tokens} tokens within {filled.upper_mib:,.0f} MiB")
    peak = f", peak {filled.peak_mib:,.0f} MiB" if filled.peak_mib else ""
    lines.append(f"  found:  {filled.reached_tokens} tokens{peak}")
    smaller = filled.smaller_context or filled.reached_tokens
    if filled.smaller_context is not None:
        lines.append(f"  a context of {filled.smaller_context} tokens was filled")
    if LEAST_HINT <= smaller < filled.context_tokens:
        lines.append(f"hint: --ctx {smaller // LEAST_HINT * LEAST_HINT}, or close other programs")
    return lines


LEAST_HINT = 64


def _kept(plan: Plan, path: Path | None, *, is_tuned: bool) -> str:
    if path is None:
        return "nothing was saved"
    use = f"twofold chat and run use it for this model at {plan.context_tokens} tokens"
    if is_tuned or plan.tuned:
        return f"saved: {use}"
    return f"measured, default kept: {use}, and call no plan tuned"
