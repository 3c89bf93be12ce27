"""Plans near one that does not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.command import FitCommand
from twofold.planner.evaluate import needs
from twofold.planner.machine import MachineBudget
from twofold.planner.nearest import nearest_plans
from twofold.planner.quality import RANK, plan_class
from twofold.planner.request import QualityFloor, Request
from twofold.planner.verdict import fit
from twofold.profiles.model_spec import ModelSpec

MIB = 1 << 20
Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]


@pytest.mark.parametrize("context", [40960, 65536, 131072])
def test_each_fits_and_each_change_buys_something(shipped: Shipped, card_and_host: Machines, context: int) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 3060 12GB")
    report = fit(spec, machine, Request(context_tokens=context, residual_bits=7, kv_type="f16"))
    assert report.verdict == "does_not_fit" and report.nearest
    for near in report.nearest:
        knobs = near.evaluation.knobs
        assert needs(spec, knobs, machine.cards[0], machine.host, 512).verdict == "fits"
        grade = plan_class(knobs.residual_bits, knobs.k_type, knobs.v_type)
        assert (near.quality is None) == (grade == "q8")
    shorter = [n.evaluation.knobs.context_tokens for n in report.nearest if "context of" in n.change]
    assert shorter == sorted(set(shorter))
    assert "context" in report.nearest[0].change or context == 40960


def test_below_the_floor_is_said(shipped: Shipped, card_and_host: Machines) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 3060 12GB")
    report = fit(spec, machine, Request(context_tokens=65536))
    below = [near for near in report.nearest if near.quality is not None]
    assert len(below) == 1 and RANK[str(below[0].quality)] < RANK["q8"]
    assert below[0].options.startswith(f"--min-quality {below[0].quality}")
    assert below[0].evaluation.knobs.context_tokens == 65536
    asked = Request(context_tokens=65536, quality=QualityFloor.parse(str(below[0].quality)))
    assert fit(spec, machine, asked).verdict == "fits"


def test_a_smaller_margin_where_only_that_is_missing(shipped: Shipped, machine: Machines) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    need = fit(spec, machine(), Request(kv_type="f16")).evaluation.ram
    tight = machine(available_mib=need.high / MIB + 100.5)
    report = fit(spec, tight, Request(kv_type="f16"))
    assert report.verdict == "tight"
    near = report.nearest[0]
    assert near.options == "--margin 100" and near.evaluation.verdict == "fits"
    assert fit(spec, tight, Request(margin_mib=100, kv_type="f16")).verdict == "fits"


def test_a_checkpoint_keeps_its_width(shipped: Shipped, machine: Machines) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    report = fit(spec, machine(available_mib=9000.0), Request(context_tokens=40960, fixed_bits=6))
    assert report.verdict == "does_not_fit"
    assert all(near.evaluation.knobs.residual_bits == 6 for near in report.nearest)


def test_nothing_near_what_fits_or_is_unknown(shipped: Shipped, machine: Machines) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    for host in (machine(), machine(available_mib=None)):
        report = fit(spec, host, Request())
        assert nearest_plans(spec, report.evaluation, None, host, Request()) == ()


def test_commands_replace_options() -> None:
    command = FitCommand("a model/x", (("--card", "RTX 4090"), ("--ctx", "128K"), ("--pareto", None)))
    assert command.text == "twofold fit 'a model/x' --card 'RTX 4090' --ctx 128K --pareto"
    changed = command.without(["--pareto"]).changed("--ctx 4096 --kv q8_0")
    assert changed.text == "twofold fit 'a model/x' --card 'RTX 4090' --ctx 4096 --kv q8_0"
    assert FitCommand(None).text == "twofold fit"
