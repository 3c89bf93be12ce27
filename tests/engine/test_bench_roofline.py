"""`bench --kernels` against the machine's limits: what is counted, what is checked, and what refuses a speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twofold.engine.backend import choose_backend
from twofold.engine.bench.kernels import weight_bytes
from twofold.engine.bench.kv_types import KV_TYPES, attention_layer, check_kv_types, time_attention
from twofold.engine.bench.limits import multiply_rates, read_rate, run_multiply_adds
from twofold.engine.bench.rounds import Rule
from twofold.engine.bench.verifier import multiply_adds, time_verifier, working_set
from twofold.engine.checkpoint import Checkpoint, CheckpointConfig
from twofold.kernels.cpu import missing_reason, native
from twofold.kernels.naive import ops as naive
from twofold.profiles.errors import EngineFailed

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason="the native kernels are not built")
ROWS = (1, 4, 8)
SHAPE = (48, 64)
THRICE = Rule(repeats=3, warm_rounds=1)
CONFIG = CheckpointConfig(residual_bits=6, group_size=32)


def _tiers() -> list[str]:
    return list(native().available_tiers()) if missing_reason() is None else ["generic"]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    threads = native().threads()
    yield
    native().force_isa("")
    native().set_threads(threads)


@pytest.mark.parametrize("tier", _tiers())
@pytest.mark.parametrize("threads", [1, 2])
def test_every_multiply_add_counted_is_done(tier: str, threads: int) -> None:
    native().force_isa(tier)
    native().set_threads(threads)
    for kind in native().multiply_instructions():
        for chunks, repetitions in ((1, 1), (1, 7), (3, 50)):
            seconds, done, checksum = native().multiply_adds(kind, chunks, repetitions, 129, 127)
            assert seconds > 0 and done % (chunks * repetitions) == 0
            assert checksum == 129 * 127 * done % (1 << 32)
    rates = multiply_rates(threads)
    assert {one.threads for one in rates} == {1, threads}
    assert all(math.isfinite(one(0)) and one(0) > 0 for one in rates)


def test_what_a_tier_lacks_is_refused() -> None:
    native().force_isa("generic")
    assert set(native().multiply_instructions()) == {"pairs"}
    for kind, chunks, repetitions in (("bytes", 1, 1), ("halves", 1, 1), ("pairs", 0, 1), ("pairs", 1, 0)):
        with pytest.raises(ValueError):
            native().multiply_adds(kind, chunks, repetitions, 1, 1)
    with pytest.raises(ValueError, match="byte"):
        native().multiply_adds("pairs", 1, 1, 256, 1)


def test_a_wrong_sum_of_products_refuses_a_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SimpleNamespace(multiply_adds=lambda kind, chunks, n, w, a: (1.0, 100, (w * a * 100 + 1) % (1 << 32)))
    monkeypatch.setattr("twofold.engine.bench.limits.native", lambda: wrong)
    with pytest.raises(EngineFailed, match="no speed is reported"):
        run_multiply_adds("pairs", 1, 1)


def test_bytes_and_multiply_adds_by_hand() -> None:
    first = working_set(CONFIG, 1, 1, SHAPE).weights[0]
    # 64 inputs of a row: 16 bytes of base codes and 48 of the residual's, two groups of 32 with two fp16 scales each
    assert weight_bytes(first, True) == 48 * (16 + 48 + 2 * (2 + 2)) == 3456
    assert multiply_adds(first, 5, "pairs") == 5 * 48 * 64 * 2
    assert multiply_adds(first, 5, "bytes") == 5 * 48 * 64 * 4
    one_plane = working_set(CheckpointConfig(residual_bits=4, base_planes=1), 1, 1, SHAPE).weights[0]
    assert multiply_adds(one_plane, 1, "pairs") == 48 * 64 * 2
    assert multiply_adds(one_plane, 1, "bytes") == 48 * 64 * 3


def test_a_working_set_is_of_distinct_weights_and_the_size_asked_for() -> None:
    linears = working_set(CONFIG, 40_000, 2, SHAPE)
    assert len(linears.weights) == 40_000 // 3456 == 11 and linears.nbytes == 11 * 3456
    starts = {one.residual_codes.ctypes.data for one in linears.weights}
    assert len(starts) == 11
    for one in linears.weights[:4]:
        y = naive.split_linear(linears.inputs, one, True)
        assert np.isfinite(y).all() and np.array_equal(np.sort(y[0]), np.sort(linears.expected[0]))
    assert not np.array_equal(linears.weights[0].base_codes, linears.weights[1].base_codes)
    assert len(working_set(CONFIG, 1, 1, SHAPE).weights) == 2
    for wrong in ((40, 64), (48, 72)):
        with pytest.raises(ValueError, match="whole tiles"):
            working_set(CONFIG, 1, 1, wrong)


@pytest.mark.parametrize("tier", _tiers())
def test_shares_are_finite_and_made_of_the_figures_beside_them(tier: str) -> None:
    choose_backend("cpu", 1, tier)
    linears = working_set(CONFIG, 20_000, max(ROWS), SHAPE)
    found = time_verifier(linears, tier, 1, ROWS, read_rate(1 << 20, [-1], 1), THRICE)
    assert [one.rows for one in found.products] == list(ROWS)
    instructions = native().multiply_instructions()
    assert {one.instruction for one in found.peaks} == set(instructions.values())
    kinds: dict[str, Any] = {name: kind for kind, name in instructions.items()}
    for one in found.products:
        assert (one.isa, one.threads, one.read_bytes) == (tier, 1, 3456)
        assert one.multiply_adds == multiply_adds(linears.weights[0], one.rows, kinds[one.instruction])
        assert one.bound in ("reading", "multiplying")
        for figure in (one.latency_us, one.prepare_us, one.gb_s, one.multiply_adds_s, one.roofline_share):
            assert figure.source == "measured" and figure.n == 3
            assert math.isfinite(figure.number) and figure.number > 0
        assert one.gb_s.number == pytest.approx(3456 / one.latency_us.number / 1e3, rel=2e-3)
        assert one.to_json()["roofline_share"]["unit"] == "1"


def test_a_wrong_bit_in_the_product_that_is_timed_refuses_a_speed() -> None:
    choose_backend("cpu", 1, "generic")
    linears = working_set(CONFIG, 1, max(ROWS), SHAPE)

    def wrong(bound: list[Any], x: Any, use_residual: bool, out: Any) -> tuple[float, float]:
        seconds = native().sweep_products(bound, x, use_residual, out)
        if len(x) == 4:
            out.view(np.uint32)[3, 47] ^= 1
        return seconds

    with pytest.raises(EngineFailed, match="product of 4 rows") as caught:
        time_verifier(linears, "generic", 1, ROWS, read_rate(1 << 20, [-1], 1), THRICE, wrong)
    assert caught.value.found == "1 of 192 outputs differ"


def test_a_sweep_keeps_the_last_product_and_refuses_what_it_cannot_do() -> None:
    from twofold.kernels.cpu.ops import bound_linear

    linears = working_set(CONFIG, 20_000, 3, SHAPE)
    bound = [bound_linear(one) for one in linears.weights]
    out = np.full((3, 48), np.nan, np.float32)
    assert min(native().sweep_products(bound, linears.inputs, True, out)) > 0
    assert np.array_equal(out, naive.split_linear(linears.inputs, linears.weights[-1], True))
    other = bound_linear(working_set(CONFIG, 1, 1, (16, 64)).weights[0])
    for group, x, y in (
        ([], linears.inputs, out),
        ([*bound, other], linears.inputs, out),
        (bound, linears.inputs[:, :32].copy(), out),
        (bound, linears.inputs, out[:2]),
        (bound, linears.inputs[:0], out[:0]),
    ):
        with pytest.raises(ValueError):
            native().sweep_products(group, x, True, y)


def test_products_that_rotate_outputs_are_not_swept(make_checkpoint: Callable[..., Path]) -> None:
    from twofold.kernels.cpu.ops import bound_linear

    down = Checkpoint.open(make_checkpoint()).group("model.layers.0.mlp.down")
    x, out = np.zeros((1, 96), np.float32), np.zeros((1, 72), np.float32)
    with pytest.raises(ValueError, match="rotate no outputs"):
        native().sweep_products([bound_linear(down)], x, True, out)


@pytest.mark.parametrize("tier", _tiers())
def test_attention_is_timed_for_every_type(make_checkpoint: Callable[..., Path], tier: str) -> None:
    spec = Checkpoint.open(make_checkpoint()).spec
    ops = choose_backend("cpu", 1, tier).ops
    found = time_attention(spec, ops, tier, 1, 1 << 20, THRICE, context=200, rows=(1, 3))
    assert [(one.kv_type, one.rows) for one in found] == [(kind, n) for n in (1, 3) for kind in KV_TYPES]
    # two KV heads of 12 values: 24 bytes, or one block each
    sizes = {"f16": 24, "q8_0": 34, "q4_0": 18}
    for one in found:
        assert one.cache_bytes == 200 * 2 * 2 * sizes[one.kv_type] and one.heads == (6, 2)
        assert one.latency_us.number > 0 and one.speed_to_f16.number > 0
        if one.kv_type == "f16":
            assert one.speed_to_f16.number == 1
        assert one.to_json()["heads"] == [6, 2]


@pytest.mark.parametrize("kind", KV_TYPES)
def test_a_wrong_bit_in_one_type_of_cache_refuses_a_speed(make_checkpoint: Callable[..., Path], kind: str) -> None:
    spec = Checkpoint.open(make_checkpoint()).spec
    assert check_kv_types(spec, naive) == 3

    def wrong(*arguments: Any, **options: Any) -> Any:
        y = naive.attention(*arguments, **options)
        if options["k_type"] == kind:
            y.reshape(-1).view(np.uint32)[-1] ^= 1
        return y

    with pytest.raises(EngineFailed, match=f"attention over {kind}"):
        time_attention(spec, SimpleNamespace(attention=wrong), "generic", 1, 1 << 20, THRICE, context=64)


def test_a_model_whose_layers_all_slide_has_no_long_attention(make_checkpoint: Callable[..., Path]) -> None:
    from dataclasses import replace

    spec = Checkpoint.open(make_checkpoint()).spec
    sliding = replace(spec, layers=tuple(replace(one, window=8) for one in spec.layers))
    assert attention_layer(sliding) is None
    assert time_attention(sliding, naive, "generic", 1, 1 << 20, THRICE) == []
