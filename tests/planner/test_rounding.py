"""Whether int8 activations would be faster: both speeds from one source, and nothing promised that is not so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from twofold.planner.machine import HostBudget, MachineBudget, from_profile, with_host
from twofold.planner.report import FitReport
from twofold.planner.request import QualityFloor, Request
from twofold.planner.rounding import BANDWIDTHS
from twofold.planner.timed import names
from twofold.planner.timed.source import KernelSource
from twofold.planner.verdict import fit
from twofold.profiles.activations import Activations, is_slow_base
from twofold.profiles.figures import reported, unknown
from twofold.profiles.hardware import HardwareProfile
from twofold.profiles.model_spec import ModelSpec

FAR, NEAR = (-127, -38, 38, 127), (-10, -3, 3, 10)
Cost = Callable[[str, int, int], float]


@pytest.fixture
def smol(shipped: Callable[[str], ModelSpec]) -> ModelSpec:
    return shipped("HuggingFaceTB/SmolLM2-135M-Instruct")


@pytest.fixture
def timed(smol: ModelSpec, timed_tables: Any) -> Callable[..., MachineBudget]:
    """A machine of two cores with timings of some activations, each a share of the plain cost."""

    def make(gb_s: float | None = None, isa: str = "avx2", **shares: float | Cost) -> MachineBudget:
        timings: list[Any] = []
        for activations, share in shares.items():

            def cost(op: str, size: int, rows: int, share: float | Cost = share) -> float:
                return share(op, size, rows) if callable(share) else share * timed_tables.plain_cost(op, size, rows)

            timings += timed_tables.table(smol, cost, isa=isa, activations=activations)
        host = HostBudget(
            reported(16384, "MiB", "test"),
            unknown("GB/s", "test") if gb_s is None else reported(gb_s, "GB/s", "test"),
            isa,
            reported(2, "cores", "test"),
            kernels=KernelSource(tuple(timings), is_own=True) if timings else None,
        )
        return MachineBudget("test", "stated", (), host)

    return make


def _fit(spec: ModelSpec, machine: MachineBudget, request: Request | None = None, **facts: Any) -> FitReport:
    return fit(spec, machine, request or Request(device="cpu"), **facts)


def test_from_timed_kernels_both_speeds_and_both_kls_are_said_and_the_plan_stays(
    smol: ModelSpec, timed: Callable[..., MachineBudget]
) -> None:
    report = _fit(smol, timed(int16=1.0, int8=0.5))
    gain = report.rounding
    assert gain is not None and report.plan.activations == "int16" and gain.activations == "int8"
    assert gain.is_decode_faster and gain.is_prompt_faster
    assert gain.own.decode_tok_s == report.evaluation.speed.decode_tok_s
    assert gain.speed.decode_tok_s.number == pytest.approx(2 * gain.own.decode_tok_s.number, rel=1e-4)
    assert gain.speed.ttft_1k_s.number == pytest.approx(gain.own.ttft_1k_s.number / 2, rel=1e-3)
    assert "kernels measured here" in gain.by and "int8 activations" in gain.by
    assert (gain.own_kl.number, gain.kl.number) == (0.00101, 0.00187)
    asked = _fit(smol, timed(int16=1.0, int8=0.5), Request(device="cpu", activations="int8"))
    assert asked.rounding is None and asked.evaluation.speed == gain.speed and asked.kl == gain.kl


@pytest.mark.parametrize("share, is_said", [(1.0, False), (0.95, False), (0.8, True), (2.0, False)])
def test_less_than_a_tenth_is_not_said(
    smol: ModelSpec, timed: Callable[..., MachineBudget], share: float, is_said: bool
) -> None:
    """As with VNNI, where one row takes the same; a slower rounding is never offered."""
    report = _fit(smol, timed(int16=1.0, int8=share))
    assert (report.rounding is not None) == is_said
    assert (report.to_json()["other_activations"] is not None) == is_said


def test_what_is_not_faster_is_not_called_so(smol: ModelSpec, timed: Callable[..., MachineBudget]) -> None:
    def rows_only(op: str, size: int, rows: int) -> float:
        """One row as before, a further one for half; guesses too dear for a draft."""
        return 1e6 if op == names.GUESS else size * 1e-4 * (3.5 + 0.5 * rows)

    gain = _fit(smol, timed(int16=1.0, int8=rows_only)).rounding
    assert gain is not None and gain.is_prompt_faster and not gain.is_decode_faster


def test_its_draft_is_its_own(smol: ModelSpec, timed: Callable[..., MachineBudget], timed_tables: Any) -> None:
    def cheap_drafts(op: str, size: int, rows: int) -> float:
        is_draft = op in (names.LINEAR_BASE, names.HEAD_BASE, names.GUESS)
        return float(size * 1e-4 * (0.05 if is_draft else 1.0) * (4 + 0.002 * rows))

    gain = _fit(smol, timed(int16=1.0, int8=cheap_drafts)).rounding
    assert gain is not None and gain.knobs.draft_nodes > 0 == gain.knobs.with_(draft_nodes=0).draft_nodes
    assert gain.to_json()["draft_nodes"] == gain.knobs.draft_nodes and gain.speed.tokens_per_check.number > 1


@pytest.mark.parametrize("known", ["int16", "int8"])
def test_sums_of_kernels_are_not_compared_with_bandwidths(
    smol: ModelSpec, timed: Callable[..., MachineBudget], known: Activations
) -> None:
    missing = "int8" if known == "int16" else "int16"
    assert _fit(smol, timed(**{known: 1.0})).rounding is None  # no bandwidth either: nothing is known of the other
    report = _fit(smol, timed(gb_s=500, **{known: 100.0}))
    gain = report.rounding
    assert gain is not None and gain.by.startswith(BANDWIDTHS) and f"{missing} activations were not timed" in gain.by
    for speed in (gain.own, gain.speed):
        assert "kernels" not in speed.decode_tok_s.by
    plain = _fit(smol, timed(gb_s=500))
    assert plain.rounding is not None and plain.rounding.by == BANDWIDTHS
    assert plain.rounding.own == plain.evaluation.speed
    # timed kernels choose what may be looked up in the text, which no speed counts
    assert gain.own.tokens_per_check.number == plain.rounding.own.tokens_per_check.number
    assert replace(gain.own, tokens_per_check=plain.rounding.own.tokens_per_check) == plain.rounding.own


def test_without_a_speed_a_known_host_or_leave_nothing_is_said(
    smol: ModelSpec, timed: Callable[..., MachineBudget], card_alone: Callable[[str], MachineBudget]
) -> None:
    assert _fit(smol, timed()).rounding is None
    fast = timed(gb_s=500)
    for request in (
        Request(device="cpu", quality=QualityFloor.parse("0.0015")),
        Request(device="cpu", activations="int16"),
        Request(device="cpu", fixed_activations="int8"),
    ):
        assert _fit(smol, fast, request).rounding is None
    assert _fit(smol, fast, Request(device="cpu", fixed_activations="int16/int8")).rounding is not None
    assert fast.host is not None
    none_free = replace(fast, host=replace(fast.host, available_mib=reported(10, "MiB", "test")))
    assert _fit(smol, none_free).verdict == "does_not_fit" and _fit(smol, none_free).rounding is None


def test_on_a_card_the_cpus_half_computes_with_them(
    shipped: Callable[[str], ModelSpec], card_alone: Callable[[str], MachineBudget]
) -> None:
    gemma, alone = shipped("google/gemma-4-31B-it"), card_alone("RTX 4090")
    assert fit(gemma, alone, Request()).rounding is None  # what a host that nobody stated would do is not said
    bound = with_host(alone, ram_mib=65536, ram_gb_s=36, isa="avx2")
    gain = fit(gemma, bound, Request()).rounding
    assert gain is not None and gain.is_decode_faster and not gain.is_prompt_faster
    assert gain.knobs.device == "cuda" and gain.knobs.resident
    assert gain.kl.source == "unknown" and "--activations int8" in gain.kl.by
    whole = shipped("Qwen/Qwen3-8B")  # nothing of it lies in RAM
    assert fit(whole, bound, Request()).rounding is None


@pytest.mark.parametrize(
    "isa, has_avx_vnni, levels, is_slow",
    [
        ("avx2", False, FAR, True), ("avx2", False, NEAR, False), ("avx2", True, FAR, False), (None, False, FAR, True),
        ("avx512", False, FAR, False), ("avx512vbmi", False, FAR, False), ("generic", False, FAR, False),
        ("avx2", False, (-16, -5, 5, 16), False), ("avx2", False, (0, 1, 2, 33), True),
    ],
)  # fmt: skip
def test_far_levels_are_slow_where_bytes_add_up_in_16_bits(
    smol: ModelSpec,
    timed: Callable[..., MachineBudget],
    isa: str | None,
    has_avx_vnni: bool,
    levels: tuple[int, ...],
    is_slow: bool,
) -> None:
    assert is_slow_base("int8", levels, isa, has_avx_vnni=has_avx_vnni) == is_slow
    assert is_slow_base("int8/int16", levels, isa, has_avx_vnni=has_avx_vnni) == is_slow
    assert not is_slow_base("int16", levels, isa, has_avx_vnni=has_avx_vnni)
    assert not is_slow_base("int16/int8", levels, isa, has_avx_vnni=has_avx_vnni)
    machine = timed(gb_s=500)
    assert machine.host is not None
    machine = replace(machine, host=replace(machine.host, isa_tier=isa, has_avx_vnni=has_avx_vnni))
    found = _fit(smol, machine, base_levels=levels).rounding
    assert (found is None) == (is_slow or isa == "generic")  # bandwidths do not say what that tier takes


def test_a_machine_is_known_to_have_avx_vnni_by_its_flags(profile: Callable[..., HardwareProfile]) -> None:
    found = profile()
    flags = reported(["avx2", "avx_vnni"], "", "test")
    has = found.model_copy(update={"cpu": found.cpu.model_copy(update={"isa_flags": flags})})
    machines = [from_profile(one, label="test", is_this_machine=True) for one in (found, has)]
    assert [one.host.has_avx_vnni for one in machines if one.host] == [False, True]
    stated = with_host(machines[1], ram_mib=None, ram_gb_s=None, isa="avx2")
    assert stated.host is not None and not stated.host.has_avx_vnni  # of another machine, which may not have it
