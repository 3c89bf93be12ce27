"""A pass in its parts: the same computing, every piece counted once, and sums that the planner gives back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine.backend import choose_backend
from twofold.engine.bench.beside import CHOICES, time_beside
from twofold.engine.bench.parts import PassParts, layers_to_time
from twofold.engine.bench.timings import Grid, TimingBench
from twofold.engine.bench.widths import with_width
from twofold.engine.checkpoint import Checkpoint
from twofold.kernels.cpu import missing_reason, native
from twofold.kernels.cpu import ops as cpu
from twofold.kernels.naive import ops as naive
from twofold.planner.knobs import Knobs
from twofold.planner.plan import Plan
from twofold.planner.timed import names
from twofold.planner.timed.kernels import Kernels
from twofold.planner.timed.passes import UNEVEN, timed_passes
from twofold.profiles.errors import EngineUnavailable

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
SMALL = Grid(
    verify_rows=(1, 2, 5),
    draft_rows=(1, 2),
    attention_rows=(1, 5),
    contexts=(16, 64),
    width_rows=(1, 5),
    widths=(4, 6),
    own_context=40,
    rounds=3,
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    threads = native().threads()
    yield
    native().force_isa("")
    native().set_threads(threads)


@pytest.fixture
def checkpoint(make_checkpoint: Callable[..., Path]) -> Checkpoint:
    return Checkpoint.open(make_checkpoint())


def ticks() -> Callable[[], float]:
    """A clock that is looked at: every look is one second later than the one before."""
    count = itertools.count()
    return lambda: float(next(count))


def test_a_pass_in_parts_computes_what_the_whole_pass_does(checkpoint: Checkpoint) -> None:
    backend = choose_backend("cpu", 2)
    for rows, residual in ((1, True), (5, True), (5, False)):
        passes = PassParts(checkpoint, backend, 2, 30, 5)
        passes.parts(rows, 30, residual)
        result = passes._tape(rows).result  # what the pieces left
        in_parts = np.array(result)
        result[...] = np.nan
        passes.sample(rows, 30, residual)
        assert np.array_equal(in_parts.view(np.uint32), np.array(result).view(np.uint32))


def test_every_piece_is_counted_once(checkpoint: Checkpoint) -> None:
    passes = PassParts(checkpoint, choose_backend("cpu", 1), 2, 30, 5, clock=ticks())
    sample = passes.sample(3, 30, True)
    counts = {(part.op, part.shape): n for part, (_, n) in sample.parts.items()}
    spec = checkpoint.spec
    linears = {shape: n for (op, shape), n in counts.items() if op == names.LINEAR}
    assert linears == {names.linear_shape(group): 2 for group in spec.layers[0].groups}
    assert counts[names.ATTENTION, names.attention_heads(spec.layers[0])] == 2
    assert {op for op, _ in counts} == {names.LINEAR, names.ATTENTION, names.LAYER_ROWS}
    assert sample.seconds == sample.n_pieces == sum(counts.values()) and sample.whole == 1


def test_the_planner_gives_back_what_whole_passes_took(checkpoint: Checkpoint, make_plan: Callable[..., Plan]) -> None:
    """With a clock on which a pass in one piece takes one second, whatever it is: so does the sum of its parts."""
    plan = make_plan()
    found = TimingBench(checkpoint, choose_backend("cpu", 1), plan, 1 << 40, SMALL, clock=ticks()).run("avx2")
    assert all(ratio == pytest.approx(1) for ratio in found.agreement.values())
    kernels = Kernels.of(found.timings, "avx2", 1)
    knobs = Knobs.of(plan.model_copy(update={"cpu_isa": "avx2"}))
    timed = timed_passes(checkpoint.spec, knobs, kernels)
    assert timed is not None
    for rows, context in ((1, 40), (2, 40), (5, 16), (1, 64), (3, 20)):
        chunk = timed.chunk(rows, context)
        assert chunk.likely == pytest.approx(1, rel=1e-3) and chunk.high == pytest.approx(1 + UNEVEN, rel=1e-3)
        assert not chunk.gaps
    for bits in (4, 6):
        other = timed_passes(checkpoint.spec, knobs.with_(residual_bits=bits), kernels)
        assert other is not None and other.chunk(5, 40).likely == pytest.approx(1, rel=1e-3)
    assert timed.verify(1, 40).likely > timed.chunk(1, 40).likely


def test_real_times_make_up_a_machine(checkpoint: Checkpoint, make_plan: Callable[..., Plan]) -> None:
    told: list[str] = []
    found = TimingBench(
        checkpoint, choose_backend("cpu", 2), make_plan(threads=2), 1, SMALL, lambda stage, _: told.append(stage)
    ).run("avx2")
    kernels = Kernels.of(found.timings, "avx2", 2)
    assert kernels is not None and kernels.n >= 3
    assert set(kernels.tables) == {
        names.LINEAR, names.LINEAR_BASE, names.ATTENTION, names.LAYER_ROWS, names.HEAD, names.HEAD_BASE,
        names.GUESS, names.CHOOSE, names.STEP,
    }  # fmt: skip
    assert {bits for _, bits in kernels.tables[names.LINEAR]} == {4, 6}
    assert {bits for _, bits in kernels.tables[names.ATTENTION]} == {16, 8, 4}
    assert all(one.latency_us.source == "measured" and one.latency_us.number > 0 for one in found.timings)
    assert {"passes in parts", "attention", "4-bit residual", "steps"} == set(told)


def test_timings_say_under_which_activations_the_passes_ran(
    checkpoint: Checkpoint, make_plan: Callable[..., Plan]
) -> None:
    plan = make_plan(activations="int8")
    bench = TimingBench(checkpoint, choose_backend("cpu", 1), plan, 1 << 40, SMALL, clock=ticks())
    found = bench.run("avx2").timings
    assert {one.activations for one in found} == {"int8"}
    assert Kernels.of(found, "avx2", 1) is None and Kernels.of(found, "avx2", 1, "int8") is not None


def test_layers_are_timed_until_they_outgrow_the_caches_and_every_kind_is_there(
    checkpoint: Checkpoint, make_checkpoint: Callable[..., Path]
) -> None:
    weights = checkpoint.weights()
    one = sum(weights[group.name].base_codes.nbytes for group in checkpoint.spec.layers[0].groups)
    assert [layers_to_time(checkpoint.spec, weights, n) for n in (1, one, one + 1, 1 << 40)] == [1, 1, 2, 2]


def test_another_width_is_a_product_like_any_other(checkpoint: Checkpoint) -> None:
    weights = {name: one for name, one in checkpoint.weights().items() if "layers.0" in name}
    x = np.random.default_rng(0)
    for bits in (4, 5, 7, 8):
        with with_width(weights, bits) as groups:
            assert {one.residual_bits for one in groups.values()} == {bits}
            for one in groups.values():
                rows = x.standard_normal((2, one.in_features)).astype(np.float32)
                right, found = naive.split_linear(rows, one, True), cpu.split_linear(rows, one, True)
                assert np.isfinite(right).all() and np.array_equal(right.view(np.uint32), found.view(np.uint32))


def test_what_a_step_takes_beside_its_tapes(checkpoint: Checkpoint, make_plan: Callable[..., Plan]) -> None:
    """On a clock of looks a step has its own two, and none of those around its tapes."""
    choose_backend("cpu", 1)
    found = time_beside(checkpoint, make_plan(), (1, 2), ticks())
    by_op: dict[str, set[float]] = {}
    for (op, _, _, _), seconds in found:
        by_op.setdefault(op, set()).add(seconds)
    # body and head in one: two looks, and the time between them is the tape's
    assert by_op[names.STEP] == {1.0 + 2 - 1}
    assert by_op[names.CHOOSE] == {1 / CHOICES}
    assert {rows for (op, _, _, rows), _ in found if op == names.GUESS} == {1, 2}


def test_numpys_operations_are_not_cut(checkpoint: Checkpoint) -> None:
    with pytest.raises(EngineUnavailable):
        PassParts(checkpoint, choose_backend("naive"), 1, 8, 1)


def test_caches_hold_numbers_everywhere(make_checkpoint: Callable[..., Path]) -> None:
    """Memory that was never written is one page of zeros, which would lie in the nearest cache."""
    checkpoint: Any = Checkpoint.open(make_checkpoint(head_dim=32, num_attention_heads=2))
    for kind in ("f16", "q8_0", "q4_0"):
        passes = PassParts(checkpoint, choose_backend("cpu", 1), 2, 64, 2, kind)
        for layer in passes._player._cache.layers:
            assert all(row.any() for cache in (layer.k, layer.v) for row in cache)
