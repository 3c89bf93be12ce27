"""Seconds from timed kernels: sums of known parts, what is scaled and says so, and whose timings they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from twofold.planner.acceptance import DEFAULT_STATISTICS, tree_shape
from twofold.planner.draft_choice import choose_draft
from twofold.planner.knobs import Knobs
from twofold.planner.latency import estimate_speed
from twofold.planner.machine import HostBudget, MachineBudget, from_profile, with_host
from twofold.planner.propose import propose_evaluations
from twofold.planner.request import Request
from twofold.planner.timed import names
from twofold.planner.timed.curve import Estimate
from twofold.planner.timed.kernels import Kernels, other_shape
from twofold.planner.timed.passes import UNEVEN, TimedPasses, timed_passes
from twofold.planner.timed.source import KernelSource
from twofold.planner.timed.speed import timed_speed
from twofold.planner.timed.trees import DEPTHS, NODES, tree_costs
from twofold.planner.verdict import fit
from twofold.profiles.figures import reported, unknown
from twofold.profiles.hardware import HardwareProfile, KernelTiming
from twofold.profiles.model_spec import LinearGroup, LinearSpec, ModelSpec

KNOBS = Knobs("cpu", 8192, 6, "f16", "f16", (), 0, 0, 64, 2, "avx2")


@pytest.fixture
def smol(shipped: Callable[[str], ModelSpec]) -> ModelSpec:
    return shipped("HuggingFaceTB/SmolLM2-135M")


@pytest.fixture
def passes(smol: ModelSpec, timed_tables: Any) -> Callable[..., TimedPasses]:
    def make(knobs: Knobs = KNOBS, spec: ModelSpec | None = None, **changes: Any) -> TimedPasses:
        kernels = Kernels.of(timed_tables.table(smol, **changes), knobs.cpu_isa, knobs.threads)
        found = timed_passes(spec or smol, knobs, kernels)
        assert found is not None
        return found

    return make


def _sum(cost: Any, spec: ModelSpec, rows: int, context: int) -> float:
    """Microseconds of a pass through the layers, added up by hand."""
    total = 0.0
    for layer in spec.layers:
        for group in layer.groups:
            total += cost(names.LINEAR, group.in_features * group.out_features, rows)
        total += cost(names.ATTENTION, layer.n_heads * (layer.k_head_dim + layer.v_head_dim) * context, rows)
        total += cost(names.LAYER_ROWS, int(names.row_values(spec)), rows)
    return total


@pytest.mark.parametrize("rows, context", [(1, 64), (1, 512), (5, 1024), (7, 2000), (17, 4096), (64, 300)])
def test_a_pass_is_the_sum_of_its_parts(
    smol: ModelSpec, passes: Callable[..., TimedPasses], timed_tables: Any, rows: int, context: int
) -> None:
    cost = timed_tables.plain_cost
    found = passes().verify(rows, context)
    head = cost(names.HEAD, smol.head.in_features * smol.head.out_features, rows) + cost(names.STEP, 1000, 1)
    head += rows * cost(names.CHOOSE, smol.vocab_size, 1)
    assert found.likely == pytest.approx((_sum(cost, smol, rows, context) + head) / 1e6, rel=1e-9)
    assert found.low == pytest.approx(found.likely * (1 - UNEVEN)) and found.gaps == frozenset()


def test_a_step_is_its_levels_and_a_check(passes: Callable[..., TimedPasses], smol: ModelSpec) -> None:
    timed, shape = passes(), tree_shape(DEFAULT_STATISTICS, 8, 3)
    widths = [sum(shape.depths[row] == depth for row in set(shape.parents)) for depth in range(3)]
    assert widths[0] == 1 and max(widths) > 1
    parts = timed.verify(9, 700).likely + sum(timed.draft(rows, 700).likely for rows in widths)
    assert timed.step(shape, 700).likely == pytest.approx(parts)


def test_a_prompt_is_its_chunks_and_one_more_pass(passes: Callable[..., TimedPasses]) -> None:
    timed = passes()
    parts = [timed.chunk(64, 0), timed.chunk(64, 64), timed.chunk(21, 128), timed.verify(1, 149)]
    assert timed.prefill(150).likely == pytest.approx(sum(one.likely for one in parts))
    assert timed.prefill(1).likely == timed.verify(1, 0).likely


def test_caches_of_two_types_cost_what_lies_between(passes: Callable[..., TimedPasses]) -> None:
    f16, q4, mixed = (
        passes(KNOBS.with_(k_type=k, v_type=v)).verify(1, 4096).likely
        for k, v in (("f16", "f16"), ("q4_0", "q4_0"), ("f16", "q4_0"))
    )
    assert q4 < mixed < f16


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), rows=st.integers(1, 90), context=st.integers(0, 9000))
@example(seed=1220, rows=65, context=511)  # the last two widths lie closer behind 1011 positions than behind 511
@example(seed=3, rows=500, context=9000)  # beyond both
def test_wider_passes_and_longer_contexts_never_cost_less(
    passes: Callable[..., TimedPasses], timed_tables: Any, seed: int, rows: int, context: int
) -> None:
    rng = random.Random(seed)
    timed = passes(cost=lambda op, size, rows: timed_tables.plain_cost(op, size, rows) * rng.uniform(0.3, 3))
    for one in (timed.verify, timed.draft, timed.chunk):
        now = one(rows, context)
        assert 0 <= now.low <= now.likely <= now.high
        assert now.likely <= one(rows + 3, context).likely * (1 + 1e-9)
        assert now.likely <= one(rows, context + 500).likely * (1 + 1e-9)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), rows=st.integers(1, 90), step=st.integers(1, 30))
@example(seed=3, rows=500, step=9)  # beyond what was timed
def test_wider_passes_of_a_model_that_was_never_timed_never_cost_less(
    passes: Callable[..., TimedPasses], shipped: Callable[[str], ModelSpec], timed_tables: Any,
    seed: int, rows: int, step: int,
) -> None:  # fmt: skip
    rng = random.Random(seed)
    timed = passes(
        spec=shipped("Qwen/Qwen3-8B"),
        cost=lambda op, size, rows: timed_tables.plain_cost(op, size, rows) * rng.uniform(0.3, 3),
    )
    for one in (timed.verify, timed.draft, timed.chunk):
        now = one(rows, 512)
        assert 0 <= now.low <= now.likely <= now.high
        assert now.likely <= one(rows + step, 512).likely * (1 + 1e-9)


_SIZES = st.sampled_from([64, 100, 576, 960, 1536, 4096])
_CURVES = st.dictionaries(
    st.tuples(_SIZES, _SIZES),
    st.dictionaries(st.integers(1, 64), st.floats(1e-2, 1e4), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)


@given(curves=_CURVES, wanted=st.tuples(_SIZES, _SIZES), rows=st.integers(1, 200), step=st.integers(1, 50))
@example({(64, 64): {1: 1.0, 9: 1.0}, (576, 64): {1: 1.0, 9: 90.0}}, (64, 4096), 1, 8)
@example({(64, 64): {1: 10.0}, (576, 64): {9: 1.0}}, (960, 64), 1, 70)  # no number of rows in common
def test_another_shape_costs_no_less_with_more_rows(
    curves: dict[tuple[int, int], dict[int, float]], wanted: tuple[int, int], rows: int, step: int
) -> None:
    """Whatever was timed, of how many rows each."""
    table = {
        (f"{outputs}x{inputs}", 6): {n: Estimate(0.9 * us, us, 1.2 * us) for n, us in points.items()}
        for (outputs, inputs), points in curves.items()
    }
    kernels = Kernels("avx2", 2, {names.LINEAR: table})
    group = LinearGroup("wanted", (LinearSpec("wanted", wanted[1], wanted[0]),))
    now, then = (kernels.linear(names.LINEAR, group, 6, n) for n in (rows, rows + step))
    assert 0 <= now.low <= now.likely <= now.high
    assert now.likely <= then.likely * (1 + 1e-9) and now.high <= then.high * (1 + 1e-9)
    is_known = wanted in curves
    assert is_known or "linear of other shapes" in now.gaps


def test_another_width_is_taken_between_its_bytes_and_no_change(passes: Callable[..., TimedPasses]) -> None:
    own, wide = passes().verify(1, 512), passes(KNOBS.with_(residual_bits=8)).verify(1, 512)
    assert any("8 bits are taken from 6" in gap for gap in wide.gaps) and not own.gaps
    assert wide.likely == pytest.approx(own.likely) and wide.high > 1.1 * own.high
    timed = passes(KNOBS.with_(residual_bits=8), bits=(6, 8)).verify(1, 512)
    assert timed.gaps == frozenset()


def test_another_model_is_scaled_and_says_so(
    passes: Callable[..., TimedPasses], shipped: Callable[[str], ModelSpec]
) -> None:
    other = shipped("Qwen/Qwen3-8B")
    found = passes(spec=other).verify(1, 512)
    assert {"linear of other shapes", "attention of other heads", "head of other shapes"} <= found.gaps
    # the made-up cost is in proportion to weights, so the sum is nearly right and the range holds it
    weights = other.n_decoder_weights + other.head.in_features * other.head.out_features
    assert found.high / found.low > 1.1 and found.low < 4e-10 * weights < found.high


def test_other_shapes_are_predicted_from_weights_and_values(timed_tables: Any) -> None:
    """Costs that are a sum of both are met exactly; what is neither widens the range."""
    shapes = [(960, 640), (640, 640), (3072, 640), (640, 1536)]

    def cost(outputs: int, inputs: int) -> float:
        return 2e-10 * outputs * inputs + 3e-9 * (outputs + inputs)

    known = {one: Estimate(*[cost(*one)] * 3) for one in shapes}
    found = other_shape(known, (4096, 2048), "other")
    assert found.likely == pytest.approx(cost(4096, 2048)) and found.gaps == {"other"}
    assert found.high / found.likely == pytest.approx(1.05)
    odd = other_shape(known | {(640, 640): Estimate(*[2 * cost(640, 640)] * 3)}, (4096, 2048), "other")
    assert odd.high / odd.likely > 1.2
    one = other_shape({(960, 640): known[960, 640]}, (1920, 640), "other")
    assert one.likely == pytest.approx(2 * cost(960, 640))


def test_layers_that_were_never_timed_are_not_added_up(
    odd_model: ModelSpec, timed_tables: Any, smol: ModelSpec
) -> None:
    kernels = Kernels.of(timed_tables.table(smol), "avx2", 2)
    assert kernels is not None and timed_passes(odd_model, KNOBS, kernels) is None
    assert timed_passes(smol, KNOBS.with_(device="cuda"), kernels) is None


def test_other_threads_other_kernels_and_half_a_table_count_for_nothing(smol: ModelSpec, timed_tables: Any) -> None:
    table = timed_tables.table(smol)
    assert Kernels.of(table, "avx2", 2) is not None
    assert (
        Kernels.of(table, "avx2", 4) is None
        and Kernels.of(table, "avx512", 2) is None
        and Kernels.of((), "avx2", 2) is None
    )
    for op in (names.LINEAR, names.ATTENTION, names.HEAD_BASE):
        assert Kernels.of([one for one in table if one.op != op], "avx2", 2) is None


def test_timings_of_other_activations_count_for_nothing(smol: ModelSpec, timed_tables: Any) -> None:
    def half(op: str, size: int, rows: int) -> float:
        return float(timed_tables.plain_cost(op, size, rows) / 2)

    usual, int8 = timed_tables.table(smol), timed_tables.table(smol, half, activations="int8")
    both, alone = KernelSource((*usual, *int8), is_own=True), KernelSource(usual, is_own=True)
    wanted = KNOBS.with_(activations="int8")
    assert alone.kernels_of(wanted) is None and alone.kernels_of(KNOBS) is not None
    assert timed_speed(smol, wanted, alone, DEFAULT_STATISTICS) is None
    found = [timed_speed(smol, knobs, both, DEFAULT_STATISTICS) for knobs in (KNOBS, wanted)]
    assert found[0] is not None and found[1] is not None
    assert found[1].likely_tok_s(1024) == pytest.approx(2 * found[0].likely_tok_s(1024))
    assert "int8 activations" in found[1].source and "activations" not in found[0].source


def test_what_a_foreign_table_calls_otherwise_is_left_out(smol: ModelSpec, timed_tables: Any) -> None:
    strange = [
        timed_tables.timing(op, shape, bits, 1, 1e9)
        for op, shape, bits in (
            (names.LINEAR, "0x576", 6), (names.LINEAR, "x", 6), (names.LINEAR, "9" * 200 + "x1", 6),
            (names.ATTENTION, "9/0x64+64@512", 16), (names.ATTENTION, "9/3x64+64@", 16), (names.HEAD, "nonsense", 8),
            (names.LAYER_ROWS, "-5", 16), (names.STEP, "1", 16), ("no such part", "1x1", 6),
        )
    ]  # fmt: skip
    nothing = KernelTiming(
        op=names.LINEAR, shape="5x5", bits=6, rows=1, isa="avx2", threads=2, latency_us=unknown("us", "lost")
    )
    table = timed_tables.table(smol)
    clean, mixed = (Kernels.of(rows, "avx2", 2) for rows in (table, (*strange, nothing, *table)))
    assert clean is not None and mixed is not None and clean.tables == mixed.tables


def _machine(profile: Callable[..., HardwareProfile], kernels: tuple[KernelTiming, ...], *, own: bool) -> MachineBudget:
    made = profile().model_copy(update={"kernels": kernels})
    machine = from_profile(made, label="this machine" if own else "profile friend", is_this_machine=own)
    return with_host(machine, ram_mib=None, ram_gb_s=None, isa="avx2")


def _knobs(machine: MachineBudget) -> Knobs:
    assert machine.host is not None
    return KNOBS.with_(threads=machine.host.threads)


@pytest.mark.parametrize("own", [True, False])
def test_the_answer_says_whose_timings_it_used(
    profile: Callable[..., HardwareProfile], smol: ModelSpec, timed_tables: Any, own: bool
) -> None:
    machine = _machine(profile, timed_tables.table(smol, threads=8), own=own)
    report = fit(smol, machine, Request(device="cpu"))
    speed = report.evaluation.speed
    whose = "measured here" if own else "reported by profile friend"
    for figure in (speed.decode_tok_s, speed.decode_full_tok_s, speed.check_ms, speed.draft_pass_ms, speed.ttft_1k_s):
        assert figure.source == "reasoned" and f"sums of kernels {whose} (avx2, 8 threads, n ≥ 7" in figure.by
        assert figure.low is not None and figure.high is not None and figure.low < figure.number < figure.high
    assert not any("by figures alone" in note for note in report.notes)


def test_without_timings_the_bandwidth_is_asked_as_before(
    profile: Callable[..., HardwareProfile], smol: ModelSpec, timed_tables: Any
) -> None:
    for kernels in ((), timed_tables.table(smol, threads=3)):
        report = fit(smol, _machine(profile, kernels, own=True), Request(device="cpu"))
        assert "kernels" not in report.evaluation.speed.decode_tok_s.by
        assert report.plan.draft_nodes == 0 and any("by figures alone" in note for note in report.notes)


def test_a_draft_is_planned_where_timed_kernels_promise_more(
    profile: Callable[..., HardwareProfile], smol: ModelSpec, timed_tables: Any
) -> None:
    def cheap_rows(op: str, size: int, rows: int) -> float:
        """Reading is everything: a draft pass a tenth of a check, and rows nearly free."""
        share = 0.1 if op in (names.LINEAR_BASE, names.HEAD_BASE) else 1.0
        return float(share * size * 1e-3 * (1 + 0.002 * rows)) if op != names.GUESS else 1.0

    dear = _machine(profile, timed_tables.table(smol, threads=8), own=True)
    cheap = _machine(profile, timed_tables.table(smol, cheap_rows, threads=8), own=True)
    (_, plain), (_, drafted) = (propose_evaluations(smol, one, Request(device="cpu"))[0] for one in (dear, cheap))
    assert plain.knobs.draft_nodes == 0 and drafted.knobs.draft_nodes >= 4
    assert drafted.speed.tokens_per_check.number > 2
    assert isinstance(cheap.host, HostBudget) and cheap.host.kernels is not None
    kernels = cheap.host.kernels.kernels_of(drafted.knobs)
    timed = timed_passes(smol, _knobs(cheap), kernels)
    assert timed is not None
    choice = choose_draft(DEFAULT_STATISTICS, timed.pass_seconds(1024))
    assert (choice.nodes, choice.depth) == (drafted.knobs.draft_nodes, drafted.knobs.draft_depth)


def test_a_card_alone_and_a_stated_host_have_no_timings(card_and_host: Callable[..., MachineBudget]) -> None:
    host = card_and_host("RTX 4090").host
    assert host is not None and host.kernels is None


def test_speed_is_the_tokens_over_a_step(smol: ModelSpec, timed_tables: Any) -> None:
    source = KernelSource(timed_tables.table(smol), is_own=True)
    host = HostBudget(
        reported(1e5, "MiB", "test"), unknown("GB/s", "test"), "avx2", reported(2, "cores", "test"), kernels=source
    )
    knobs = KNOBS.with_(draft_nodes=4, draft_depth=4)
    shape, timed = tree_shape(DEFAULT_STATISTICS, 4, 4), timed_passes(smol, knobs, source.kernels_of(knobs))
    assert timed is not None
    speed = estimate_speed(smol, knobs, None, host)
    assert speed.decode_tok_s.number == pytest.approx(shape.tokens / timed.step(shape, 1024).likely, abs=1e-3)
    assert speed.decode_full_tok_s.number < speed.decode_tok_s.number
    assert speed.ttft_8k_s.number > 8 * speed.ttft_1k_s.number


def test_every_depth_and_budget_has_its_tokens_and_its_cost(passes: Callable[..., TimedPasses]) -> None:
    timed = passes()
    found = {(one.nodes, one.depth): one for one in tree_costs(timed, DEFAULT_STATISTICS, 700, "made up")}
    assert found[0, 0].gain == 1 and found[0, 0].tokens.number == 1
    assert set(found) == {(0, 0)} | {(n, depth) for n in NODES for depth in DEPTHS if depth <= n}
    for (nodes, depth), one in found.items():
        shape = tree_shape(DEFAULT_STATISTICS, nodes, depth)
        step = timed.step(shape, 700).likely
        assert one.step_ms.number == pytest.approx(step * 1e3, rel=1e-4)
        assert one.gain == pytest.approx(shape.tokens / step * timed.verify(1, 700).likely)
        assert one.to_json()["nodes"] == nodes and one.step_ms.source == one.tokens.source == "reasoned"
