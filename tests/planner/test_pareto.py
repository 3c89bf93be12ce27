"""The front of speed against quality and context."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twofold.planner.evaluate import needs
from twofold.planner.machine import MachineBudget
from twofold.planner.pareto import Pareto, beats, contexts_to_try, pareto_front
from twofold.planner.request import QualityFloor, Request
from twofold.planner.verdict import fit
from twofold.profiles.model_spec import ModelSpec

Shipped = Callable[[str], ModelSpec]
Machines = Callable[..., MachineBudget]
Q4 = QualityFloor.parse("q4")


def _front(spec: ModelSpec, machine: MachineBudget, request: Request, floor: QualityFloor = Q4) -> Pareto:
    report = fit(spec, machine, request)
    return pareto_front(spec, machine, report.card, request, report.evaluation.knobs, floor)


@pytest.fixture
def gemma_front(shipped: Shipped, card_and_host: Machines) -> Pareto:
    return _front(shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090"), Request(context_tokens=32768))


def test_every_point_fits_and_none_beats_another(
    gemma_front: Pareto, shipped: Shipped, card_and_host: Machines
) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090")
    assert len(gemma_front.points) > 20
    for point in gemma_front.points:
        again = needs(spec, point.evaluation.knobs, machine.cards[0], machine.host, 512)
        assert again.verdict == point.evaluation.verdict == "fits"
        assert point.tok_s.low is not None and point.tok_s.low < point.tok_s.number
        assert not any(beats(other, point) for other in gemma_front.points)


def test_it_is_a_trade(gemma_front: Pareto) -> None:
    """More context, more bits and a larger cache each cost speed along the front."""
    speeds = {
        (p.evaluation.knobs.residual_bits, p.evaluation.knobs.k_type, p.evaluation.knobs.context_tokens): p.tok_s.number
        for p in gemma_front.points
    }
    for (bits, kind, tokens), speed in speeds.items():
        for key in ((bits - 1, kind, tokens), (bits, kind, tokens // 2)):
            assert speeds.get(key, speed + 1) > speed


def test_the_floor_bounds_it(shipped: Shipped, card_and_host: Machines) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090")
    request = Request(context_tokens=8192)
    strict = _front(spec, machine, request, request.quality)
    assert {point.quality for point in strict.points} == {"q8"}
    assert not any(point.is_below_floor for point in strict.points)
    wide = _front(spec, machine, request)
    assert {point.quality for point in wide.points} == {"q8", "q6", "q4"}
    assert all(point.is_below_floor == (point.quality != "q8") for point in wide.points)


def test_what_was_asked_for_bounds_it(shipped: Shipped, card_and_host: Machines) -> None:
    spec, machine = shipped("google/gemma-4-31B-it"), card_and_host("RTX 4090")
    found = _front(spec, machine, Request(context_tokens=8192, kv_type="q8_0", fixed_bits=7))
    knobs = [point.evaluation.knobs for point in found.points]
    assert {(one.residual_bits, one.k_type) for one in knobs} == {(7, "q8_0")}
    assert 8192 in {one.context_tokens for one in knobs}


def test_contexts(shipped: Shipped) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    found = contexts_to_try(spec, Request(context_tokens=5000))
    assert found == (2048, 4096, 5000, 8192, 16384, 32768, 40960)
    assert contexts_to_try(shipped("google/gemma-4-31B-it"), Request())[-1] == 262144


def test_a_nominal_host_is_said_to_be_one(shipped: Shipped, card_alone: Machines, machine: Machines) -> None:
    spec = shipped("google/gemma-4-31B-it")
    found = _front(spec, card_alone("RTX 4090"), Request(context_tokens=32768))
    assert found.points and found.note is not None and "50 GB/s" in found.note
    blind = _front(shipped("Qwen/Qwen3-8B"), machine(gb_s=None), Request())
    assert blind.points == () and "twofold probe" in str(blind.note)
    assert _front(shipped("Qwen/Qwen3-8B"), machine(), Request()).note is None


def test_nothing_fits_nothing_on_the_front(shipped: Shipped, machine: Machines) -> None:
    found = _front(shipped("Qwen/Qwen3-8B"), machine(available_mib=2000.0), Request())
    assert found.points == () and found.n_fitting == 0 and found.n_tried > 0
