"""The terms of a speed: what `--explain` prints adds up to the passes that the speed is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from twofold.planner.machine import MachineBudget
from twofold.planner.request import Request
from twofold.planner.speed_terms import speed_terms
from twofold.planner.timed.source import KernelSource
from twofold.planner.verdict import fit
from twofold.profiles.figures import Figure
from twofold.profiles.model_spec import ModelSpec

Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]


def _sum(terms: list[Figure]) -> tuple[float, float, float]:
    return (
        sum(one.low or 0.0 for one in terms),
        sum(one.number for one in terms),
        sum(one.high or 0.0 for one in terms),
    )


def _add_up(terms: dict[str, Figure], prefix: str, whole: Figure) -> None:
    found = _sum([figure for name, figure in terms.items() if name.startswith(prefix)])
    assert found == pytest.approx((whole.low, whole.number, whole.high), rel=1e-3)


@pytest.mark.parametrize("card", ["RTX 3060 12GB", "RTX 4090", "RTX 5090"])
@pytest.mark.parametrize("model", ["google/gemma-4-31B-it", "Qwen/Qwen3.8-27B", "Qwen/Qwen3.5-35B-A3B"])
def test_a_cards_check_and_draft_add_up(shipped: Shipped, card_and_host: Machines, card: str, model: str) -> None:
    report = fit(shipped(model), card_and_host(card), Request(context_tokens=8192))
    terms = dict(report.speed_terms)
    _add_up(terms, "check: ", report.evaluation.speed.check_ms)
    if report.plan.draft_nodes:
        _add_up(terms, "draft: ", report.evaluation.speed.draft_pass_ms)
    for name, figure in terms.items():
        assert figure.source == "reasoned" and len(figure.by) > 3, name
        assert figure.low is not None and figure.high is not None
        assert figure.low <= figure.number <= figure.high, name


def test_the_cpus_check_adds_up(shipped: Shipped, machine: Machines) -> None:
    report = fit(shipped("Qwen/Qwen3-8B"), machine(), Request())
    terms = dict(report.speed_terms)
    _add_up(terms, "check: ", report.evaluation.speed.check_ms)
    longer = max(terms["bound: memory"].number, terms["bound: arithmetic"].number)
    assert terms["check: weights and cache"].number == longer


def test_what_is_unknown_is_left_out(shipped: Shipped, card_alone: Machines, machine: Machines) -> None:
    spec = shipped("google/gemma-4-31B-it")
    report = fit(spec, card_alone("RTX 4090"), Request(context_tokens=32768))
    terms = dict(report.speed_terms)
    assert "check: split Linears" not in terms and "rate: ram_bytes_s" not in terms
    assert "check: Linears in VRAM" in terms and "read: residual in RAM" in terms
    knobs = fit(shipped("Qwen/Qwen3-8B"), machine(), Request()).evaluation.knobs
    blind = machine(gb_s=None)
    assert "check: weights and cache" not in dict(speed_terms(shipped("Qwen/Qwen3-8B"), knobs, None, blind.host))


def test_bytes_are_the_memorys_own(shipped: Shipped, card_and_host: Machines) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090"), Request(context_tokens=32768))
    terms, ram = dict(report.speed_terms), report.evaluation.ram
    residual = ram.find("residual_host")
    assert residual is not None
    assert terms["read: residual in RAM"].number == pytest.approx(residual.bytes / (1 << 20), rel=1e-6)
    assert replace(report, speed_terms=()).to_json()["speed_terms"] == {}


def test_a_timed_check_adds_up(shipped: Shipped, machine: Machines, timed_tables: Any) -> None:
    spec = shipped("HuggingFaceTB/SmolLM2-135M")
    host = machine().host
    assert host is not None
    host = replace(host, kernels=KernelSource(timed_tables.table(spec), is_own=True), isa_tier="avx2")
    report = fit(spec, replace(machine(), host=host), Request(threads=2, context_tokens=4096))
    assert "kernels measured here" in report.evaluation.speed.check_ms.by
    terms = dict(report.speed_terms)
    found = _sum([figure for name, figure in terms.items() if name.startswith("check: ")])
    assert found[1] == pytest.approx(report.evaluation.speed.check_ms.number, rel=1e-3)
    assert sum("Linears" in name for name in terms) == 4, "q·k·v, o, gate·up, down"
    assert all("kernels measured here" in figure.by for name, figure in terms.items() if name.startswith("check: "))
