"""The verdict, and what follows from it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import pytest

from twofold.planner.evaluate import evaluate
from twofold.planner.machine import MachineBudget, with_host
from twofold.planner.nearest import largest_context
from twofold.planner.plan import KvType, Plan
from twofold.planner.propose import propose
from twofold.planner.rank import rank_models, ranking_json
from twofold.planner.report import FitReport
from twofold.planner.request import QualityFloor, Request
from twofold.planner.verdict import fit
from twofold.profiles.cards import find_card
from twofold.profiles.errors import InvalidOption
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.shipped import shipped_ids

MIB = 1 << 20
Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]


def _device(report: FitReport, name: str) -> str:
    return next(device.verdict for device in report.evaluation.devices if device.device == name)


@pytest.mark.parametrize("card", ["RTX 3090", "RTX 4090", "RTX 5090"])
def test_gemma_31b_fits_24_and_32_gb_as_a_plan_only(shipped: Shipped, card_alone: Machines, card: str) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_alone(card), Request(context_tokens=32768))
    assert report.verdict == "fits"
    assert not report.runnable
    assert "no graph for gemma4" in str(report.runnable_reason)
    assert report.plan.resident_linears
    vram = report.evaluation.vram
    assert vram is not None
    free = report.machine.cards[0].free_mib.number
    assert vram.high / MIB <= free - 512
    assert vram.high / MIB > free - 512 - 200, "the card is filled"
    assert report.host_needs is not None and report.host_needs.ram_mib.is_known
    assert not report.evaluation.speed.decode_tok_s.is_known


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("Qwen/Qwen3-8B", "keeps the whole model on the card"),
        ("Qwen/Qwen3-32B", "splits the model between a card and the CPU"),
    ],
)
def test_why_a_card_plan_cannot_be_run(shipped: Shipped, card_alone: Machines, model: str, words: str) -> None:
    spec = shipped(model)
    report = fit(spec, card_alone("RTX 4090"), Request())
    assert (len(report.plan.resident_linears) == len(spec.groups)) is ("whole" in words)
    assert str(report.runnable_reason).startswith(f"the plan {words}, and this version's engine runs on the CPU only")


def test_a_larger_card_leaves_less_in_ram(shipped: Shipped, card_alone: Machines) -> None:
    spec, request = shipped("google/gemma-4-31B-it"), Request(context_tokens=32768)
    in_ram = [
        fit(spec, card_alone(card), request).evaluation.ram.total for card in ("RTX 5080", "RTX 4090", "RTX 5090")
    ]
    assert in_ram == sorted(in_ram, reverse=True)
    assert len(set(in_ram)) == 3


def test_does_not_fit_names_plans_that_do(shipped: Shipped, card_and_host: Machines) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 3060 12GB")
    report = fit(spec, machine, Request(context_tokens=131072))
    assert report.verdict == "does_not_fit"
    assert report.exit_code == 4
    assert report.shortfall_mib.number > 0
    assert report.nearest, "a shorter context fits 12 GB"
    for near in report.nearest:
        knobs = near.evaluation.knobs
        again = evaluate(spec, knobs, machine.cards[0], machine.host, 512)
        assert again.verdict == near.evaluation.verdict == "fits"
        assert knobs.residual_bits >= 6 and knobs.k_type != "q4_0"
    shorter = fit(spec, machine, Request(context_tokens=int(report.largest_context.number), kv_type=report.plan.k_type))
    assert shorter.verdict == "fits"


def test_the_largest_context_is_the_largest(shipped: Shipped, card_and_host: Machines) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 3060 12GB")
    request = Request(context_tokens=4096, kv_type="f16")
    report = fit(spec, machine, request)
    most = int(report.largest_context.number)
    assert 0 < most < spec.context_length
    knobs = report.evaluation.knobs
    assert largest_context(spec, knobs, machine.cards[0], machine, 512) == most
    assert fit(spec, machine, Request(context_tokens=most, kv_type="f16")).verdict == "fits"
    assert fit(spec, machine, Request(context_tokens=most + 512, kv_type="f16")).verdict != "fits"


def test_verdicts_only_get_worse_with_context(shipped: Shipped, card_and_host: Machines) -> None:
    order = {"fits": 0, "tight": 1, "does_not_fit": 2}
    spec, machine = shipped("Qwen/Qwen3-32B"), card_and_host("RTX 3060 12GB")
    ranks = [
        order[fit(spec, machine, Request(context_tokens=ctx, kv_type="f16")).verdict]
        for ctx in (1024, 2048, 4096, 6144, 8192, 10240, 16384, 40960)
    ]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0 and ranks[-1] == 2


def test_tight_lies_between(shipped: Shipped, machine: Machines) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    need = fit(spec, machine(), Request(kv_type="f16")).evaluation.ram
    fits = machine(available_mib=need.high / MIB + 512 + 1)
    tight = machine(available_mib=need.total / MIB + 1)
    never = machine(available_mib=need.total / MIB - 1)
    assert [fit(spec, one, Request(kv_type="f16")).verdict for one in (fits, tight, never)] == [
        "fits",
        "tight",
        "does_not_fit",
    ]
    assert fit(spec, tight, Request(kv_type="f16")).exit_code == 3
    assert fit(spec, fits, Request(margin_mib=600, kv_type="f16")).verdict == "tight"


def test_on_the_cpu_too_the_cache_gives_way_before_the_verdict_does(shipped: Shipped, machine: Machines) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    need = fit(spec, machine(), Request(kv_type="f16")).evaluation.ram
    report = fit(spec, machine(available_mib=need.high / MIB + 511), Request())
    assert (report.verdict, report.plan.k_type, report.runnable) == ("fits", "q8_0", True)
    own = next(one for one in report.choices if one.engine == "twofold")
    assert own.command == "twofold chat Qwen/Qwen3-8B --kv q8_0"


def test_unknown_memory_is_unknown(shipped: Shipped, machine: Machines) -> None:
    report = fit(shipped("Qwen/Qwen3-8B"), machine(available_mib=None), Request())
    assert report.verdict == "unknown"
    assert report.exit_code == 5
    assert not report.shortfall_mib.is_known
    no_figure = machine((("NVIDIA GeForce RTX 4090", None, False),))
    report = fit(shipped("google/gemma-4-31B-it"), no_figure, Request())
    assert report.verdict == "unknown"
    assert not report.largest_context.is_known


def test_two_cards_are_judged_alone(shipped: Shipped, other_machine: Machines) -> None:
    """Neither 12 GB card holds a base of 14 GB; the two together would."""
    spec = shipped("Qwen/Qwen3-32B")
    cards = (("NVIDIA GeForce RTX 3060 12GB", 12000, False),) * 2
    report = fit(spec, other_machine(cards), Request(context_tokens=32768, kv_type="f16"))
    assert report.verdict == "does_not_fit"
    assert [found.verdict for _, found in report.others] == ["does_not_fit"]


def test_cpu_only_machine_runs_llama_shapes(shipped: Shipped, machine: Machines) -> None:
    report = fit(shipped("meta-llama/Llama-3.1-8B"), machine(), Request())
    assert report.verdict == "fits"
    assert report.runnable and report.runnable_reason is None
    assert report.plan.device == "cpu"
    assert report.plan.threads == 8
    assert report.plan.draft_nodes == 0
    assert report.plan.k_type == "f16"
    assert any("no draft on the CPU" in note for note in report.notes)


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_the_cpu_engine_runs_every_cache(shipped: Shipped, machine: Machines, kind: KvType) -> None:
    quality = QualityFloor.parse("q4")
    report = fit(shipped("meta-llama/Llama-3.1-8B"), machine(), Request(kv_type=kind, quality=quality))
    assert report.runnable and report.plan.k_type == kind


def test_a_card_plan_is_not_runnable_even_for_llama(shipped: Shipped, card_and_host: Machines) -> None:
    report = fit(shipped("meta-llama/Llama-3.1-8B"), card_and_host("RTX 4090"), Request())
    assert report.verdict == "fits"
    assert not report.runnable
    assert "CPU only" in str(report.runnable_reason)


def test_q8_that_fits_the_card_is_said_first(shipped: Shipped, card_alone: Machines) -> None:
    report = fit(shipped("Qwen/Qwen3.8-27B"), card_alone("RTX 5090"), Request(context_tokens=32768))
    assert report.alternatives[0].quant == "Q8_0"
    assert report.alternatives[0].fits_card
    assert str(report.advice).startswith("Q8_0 fits this card: use llama.cpp: llama-server -hf ")
    report = fit(shipped("google/gemma-4-31B-it"), card_alone("RTX 4090"), Request(context_tokens=32768))
    assert [one.quant for one in report.alternatives if one.fits_card] == ["Q4_K_M"]


def test_a_context_beyond_the_models(shipped: Shipped, machine: Machines) -> None:
    with pytest.raises(InvalidOption, match="longer than"):
        fit(shipped("Qwen/Qwen3-8B"), machine(), Request(context_tokens=40961))


def test_quality_floors_change_bits_and_cache(shipped: Shipped, card_and_host: Machines) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090")
    plans = [fit(spec, machine, Request(quality=QualityFloor.parse(q))).plan.residual_bits for q in ("q8", "q6", "q4")]
    assert plans == [6, 5, 4]
    notes = fit(spec, machine, Request(quality=QualityFloor.parse("0.002"))).notes
    assert any("cannot be turned" in note for note in notes)


def test_report_is_json_with_a_source_for_every_figure(shipped: Shipped, card_alone: Machines) -> None:
    report = fit(shipped("google/gemma-4-31B-it"), card_alone("RTX 4090"), Request(context_tokens=32768))
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    for key in ("verdict", "runnable", "runnable_reason", "plan", "memory", "speed", "shortfall_mib", "nearest"):
        assert key in document
    figures = [*document["memory"]["vram"].values(), *document["memory"]["ram"].values(), *document["speed"].values()]
    assert all(figure["source"] in ("measured", "reported", "reasoned", "unknown") for figure in figures)
    total = document["memory"]["vram"]["total_mib"]["value"]
    parts = sum(figure["value"] for name, figure in document["memory"]["vram"].items() if name != "total_mib")
    assert total == pytest.approx(parts, abs=0.01)


def test_the_plan_replays(shipped: Shipped, machine: Machines) -> None:
    plan = propose(shipped("Qwen/Qwen3-8B"), machine(), Request())
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.expected_ram_mib > 7000
    assert plan.expected_vram_mib == 0


def test_a_device_can_be_asked_for(shipped: Shipped, machine: Machines) -> None:
    both = machine((("NVIDIA GeForce RTX 4090", 24000, False),))
    assert propose(shipped("Qwen/Qwen3-8B"), both, Request(device="cuda")).device == "cuda"
    assert propose(shipped("Qwen/Qwen3-8B"), both, Request(device="cpu", threads=3)).threads == 3


def test_on_this_machine_the_plan_is_what_would_be_launched(
    shipped: Shipped, machine: Machines, other_machine: Machines
) -> None:
    cards = (("NVIDIA GeForce RTX 4090", 24000, False),)
    here = fit(shipped("Qwen/Qwen3-8B"), machine(cards), Request())
    assert here.plan.device == "cpu" and here.runnable
    assert any("--card 'NVIDIA GeForce RTX 4090'" in note for note in here.notes)
    assert fit(shipped("Qwen/Qwen3-8B"), other_machine(cards), Request()).plan.device == "cuda"
    assert fit(shipped("google/gemma-4-31B-it"), machine(cards), Request()).plan.device == "cuda"
    too_large = fit(shipped("Qwen/Qwen3-32B"), machine(cards, available_mib=30000.0), Request())
    assert too_large.plan.device == "cuda"


def test_a_host_stated_in_part_is_not_judged(shipped: Shipped, card_alone: Machines) -> None:
    machine = with_host(card_alone("RTX 4090"), ram_mib=None, ram_gb_s=60, isa="avx2")
    report = fit(shipped("google/gemma-4-31B-it"), machine, Request())
    assert report.verdict == "fits"
    assert [device.device for device in report.evaluation.devices] == ["vram"]
    assert report.evaluation.speed.decode_tok_s.is_known
    assert report.host_needs is not None


def test_ranking(shipped: Shipped, machine: Machines) -> None:
    rows = rank_models([shipped(repo) for repo in shipped_ids()], machine(), Request())
    assert len(rows) == len(shipped_ids())
    verdicts = [row.verdict for row in rows]
    assert verdicts == sorted(verdicts, key=("fits", "tight", "unknown", "does_not_fit").index)
    assert rows[0].runnable
    document = json.loads(json.dumps(ranking_json(rows, machine())))
    assert {row["model"] for row in document["models"]} == set(shipped_ids())


def test_ranking_cuts_a_context_to_each_models_own(shipped: Shipped, machine: Machines) -> None:
    rows = rank_models([shipped("HuggingFaceTB/SmolLM2-135M")], machine(), Request(context_tokens=32768))
    assert rows[0].plan.context_tokens == 8192


@pytest.mark.parametrize(
    "name", ["NVIDIA A100 MIG 1g.10gb", "Frobnicator 9000", "NVIDIA GeForce RTX 3090", "AMD Radeon RX 7900 XTX"]
)
@pytest.mark.parametrize("free", [9800.0, None])
def test_a_card_is_only_suggested_by_a_name_that_is_found(
    shipped: Shipped, machine: Machines, name: str, free: float | None
) -> None:
    report = fit(shipped("HuggingFaceTB/SmolLM2-135M"), machine(((name, free, False),)), Request(device="cpu"))
    (note,) = [note for note in report.notes if "is not used by this version" in note]
    _, _, command = note.partition("--card ")
    if command:
        assert find_card(shlex.split(command)[0]).name
    else:
        assert "unknown" in note and ("bandwidth" in note or "free memory" in note)
    assert bool(command) == ("RTX" in name or "RX" in name)
