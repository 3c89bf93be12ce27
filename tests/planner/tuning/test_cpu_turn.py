"""The target on the CPU engine: pieces that plans share, memory that bounds them, what is left to the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.planner.acceptance import DEFAULT_STATISTICS
from twofold.planner.machine import HostBudget
from twofold.planner.memory import cpu_memory
from twofold.planner.plan import Plan
from twofold.planner.search.space import Point
from twofold.planner.tuning.cpu_turn import CpuTurn, TurnShape, other_widths, thread_choices
from twofold.planner.tuning.meter import Meter
from twofold.profiles.figures import reported, unknown
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.units import MIB

Shipped = Callable[[str], ModelSpec]


def _host(mib: float, gb_s: float | None = 20.0) -> HostBudget:
    return HostBudget(
        available_mib=reported(mib, "MiB", "a test"),
        ram_read_gb_s=reported(gb_s, "GB/s", "a test") if gb_s else unknown("GB/s", "not measured"),
        isa_tier="avx2",
        cores=reported(4, "cores", "a test"),
    )


def _plan(**changes: object) -> Plan:
    values: dict[str, object] = {
        "model": "m", "device": "cpu", "context_tokens": 8192, "residual_bits": 6, "k_type": "f16", "v_type": "f16",
        "resident_linears": (), "draft_nodes": 0, "draft_depth": 0, "prefill_chunk": 64, "threads": 4,
        "cpu_isa": "avx2", "expected_ram_mib": 5000.0, "expected_vram_mib": 0.0,
    }  # fmt: skip
    return Plan.model_validate(values | changes)


@pytest.fixture
def spec(shipped: Shipped) -> ModelSpec:
    return shipped("Qwen/Qwen3-8B")


def _turn(spec: ModelSpec, host: HostBudget, plan: Plan | None = None, **seconds: float) -> CpuTurn:
    times = {"prefill": 2.0, "step": 0.1} | seconds
    return CpuTurn(spec, plan or _plan(), host, 512.0, DEFAULT_STATISTICS, lambda _, part: times[part])


def test_a_turn_fills_half_of_the_context_and_stays_inside() -> None:
    assert TurnShape.of(8192) == TurnShape(4096, 1024, 256)
    assert TurnShape.of(1024) == TurnShape(512, 256, 256)
    for context in (2, 3, 64, 100, 1000, 1 << 20):
        shape = TurnShape.of(context)
        assert shape.depth + shape.prompt + shape.answer <= context + 1 and min(shape.prompt, shape.answer) >= 1


def test_every_point_keeps_what_may_be_looked_up(spec: ModelSpec) -> None:
    turn = _turn(spec, _host(64000), _plan(lookup_nodes=8, lookup_least=0.3))
    other = turn.plan(replace(turn.baseline, prefill_chunk=32, draft_nodes=2, draft_depth=2))
    assert (other.lookup_nodes, other.lookup_least, other.draft_nodes) == (8, 0.3, 2)
    assert other.expected_ram_mib > 0


def test_seconds_are_those_of_the_passes(spec: ModelSpec) -> None:
    turn = _turn(spec, _host(64000))
    found = Meter(turn).turn(turn.baseline)
    assert found == pytest.approx(1024 / 64 * 2.0 + 256 * 0.1)
    drafted = replace(turn.baseline, draft_nodes=4, draft_depth=4)
    tokens = turn.tokens(drafted)
    assert tokens > 2
    assert Meter(turn).turn(drafted) == pytest.approx(1024 / 64 * 2.0 + 256 / tokens * 0.1)
    turn.decoded[4, 4] = 1.5
    assert Meter(turn).turn(drafted) == pytest.approx(1024 / 64 * 2.0 + 256 / 1.5 * 0.1)


def test_plans_share_the_pieces_that_do_not_depend_on_what_differs(spec: ModelSpec) -> None:
    turn = _turn(spec, _host(64000))
    keys = {name: [piece.key for piece in turn.pieces(point)] for name, point in {
        "first": turn.baseline,
        "chunk": replace(turn.baseline, prefill_chunk=128),
        "tree": replace(turn.baseline, draft_nodes=4, draft_depth=2),
        "threads": replace(turn.baseline, threads=2),
        "cache": replace(turn.baseline, kv_type="q8_0"),
        "depth of no tree": replace(turn.baseline, draft_depth=7),
    }.items()}  # fmt: skip
    assert keys["chunk"][1] == keys["first"][1] and keys["chunk"][0] != keys["first"][0]
    assert keys["tree"][0] == keys["first"][0] and keys["tree"][1] != keys["first"][1]
    assert not set(keys["threads"]) & set(keys["first"]) and not set(keys["cache"]) & set(keys["first"])
    assert keys["depth of no tree"] == keys["first"]


def test_trial_0_is_the_plan_itself_and_others_are_whole_plans(spec: ModelSpec) -> None:
    default = _plan(draft_nodes=4, draft_depth=2, v_type="q8_0")
    turn = _turn(spec, _host(64000), default)
    assert turn.plan(turn.baseline) is default
    other = turn.plan(replace(turn.baseline, prefill_chunk=256))
    assert (other.prefill_chunk, other.k_type, other.v_type, other.draft_nodes) == (256, "f16", "q8_0", 4)
    both = turn.plan(replace(turn.baseline, kv_type="q8_0"))
    assert (both.k_type, both.v_type) == ("q8_0", "q8_0")
    expected = cpu_memory(spec, turn.knobs(turn.baseline)).total / MIB
    assert turn.plan(replace(turn.baseline, threads=4, draft_depth=3)).expected_ram_mib == pytest.approx(
        expected, rel=0.01
    )


def test_what_needs_more_than_is_free_carries_its_shortfall(spec: ModelSpec) -> None:
    turn = _turn(spec, _host(64000))
    wide = replace(turn.baseline, prefill_chunk=512, draft_nodes=32)
    assert turn.shortfall_mib(wide) < 0
    need = turn.need_mib(turn.plan(wide))
    small = _turn(spec, _host(need + 512 - 10))
    assert small.shortfall_mib(wide) == pytest.approx(10)
    # On a machine that is tight already nothing may need more than trial 0, which runs there anyway.
    tight = _turn(spec, _host(100.0))
    assert tight.shortfall_mib(tight.baseline) == 0
    assert tight.shortfall_mib(wide) == pytest.approx(need - tight.need_mib(tight.default))
    assert tight.shortfall_mib(replace(tight.baseline, kv_type="q8_0")) < 0


def test_the_space_leaves_quality_to_the_floor_and_width_to_the_checkpoint(spec: ModelSpec) -> None:
    turn = _turn(spec, _host(64000))
    space = turn.space(("f16",), (1, 2, 4))
    assert space.residual_bits == (6,) and space.kv_types == ("f16",)
    assert space.prefill_chunks == (32, 64, 128, 256, 512) and space.threads == (1, 2, 4)
    assert turn.space(("f16", "q8_0"), (4,)).kv_types == ("f16", "q8_0")
    assert turn.space(("f16",), (4,), most_chunk=100).prefill_chunks == (32, 64)
    odd = _turn(spec, _host(64000), _plan(prefill_chunk=48, threads=3, draft_nodes=5, draft_depth=20))
    space = odd.space(("f16",), (1, 2))
    assert space.enqueued(odd.baseline) and 48 in space.prefill_chunks and 3 in space.threads


def test_threads_go_up_to_the_cores() -> None:
    assert thread_choices(1) == (1,)
    assert thread_choices(2) == (1, 2)
    assert thread_choices(14) == (1, 2, 3, 4, 6, 8, 10, 12, 14)


def test_another_width_is_estimated_where_bandwidth_is_known(spec: ModelSpec) -> None:
    turn = _turn(spec, _host(64000))
    found = other_widths(turn, turn.baseline, 4)
    assert set(found) <= {4, 5} and all(0 < gain < 0.5 for gain in found.values())
    assert found == {} or found.get(4, 0) >= found.get(5, 0)
    assert not {4, 5} & set(other_widths(turn, turn.baseline, 6))
    unknown_speed = _turn(spec, _host(64000, None))
    assert other_widths(unknown_speed, unknown_speed.baseline, 4) == {}


def test_a_point_is_a_plan_and_back(spec: ModelSpec) -> None:
    turn = _turn(spec, _host(64000), _plan(draft_nodes=8, draft_depth=4, threads=2))
    assert turn.baseline == Point(6, "f16", 8, 4, 64, 2)
