"""The cache's verbs: write behind what is committed, commit a path, roll back; windows that move; bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from twofold.engine.engine import Engine
from twofold.engine.kv_cache import KvCache
from twofold.kernels.naive.kv_blocks import KvType, decode, encode
from twofold.kernels.naive.ops import attention, kv_write
from twofold.planner.kv import cache_bytes
from twofold.planner.plan import Plan
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config

pytestmark = pytest.mark.filterwarnings("ignore::twofold.engine.backend.SlowKernels")
TYPES: tuple[KvType, ...] = ("f16", "q8_0", "q4_0")
WINDOW = 16


@pytest.fixture
def spec(tiny_config: dict[str, object]) -> ModelSpec:
    return spec_from_config(tiny_config, name="tiny", facts_source="test")


@pytest.fixture
def sliding(spec: ModelSpec) -> ModelSpec:
    """The first layer keeps a window of 16."""
    first = dataclasses.replace(spec.layers[0], kind="sliding", window=WINDOW)
    return dataclasses.replace(spec, layers=(first, *spec.layers[1:]))


def vectors(first: int, n: int) -> np.ndarray:
    """The same number all over each row's two heads of 12."""
    return np.arange(first, first + n, dtype=np.float32)[:, None, None] * np.ones((1, 2, 12), np.float32)


def write(cache: KvCache, first: int, n: int) -> None:
    cache.make_room(n)
    for state in cache.layers:
        kv_write(vectors(first, n), state.k, state.slot(cache.length), state.k_type)
        kv_write(-vectors(first, n), state.v, state.slot(cache.length), state.v_type)


def committed(cache: KvCache, layer: int = 0) -> list[float]:
    state = cache.layers[layer]
    assert state.k.dtype == np.float16
    kept = slice(0, state.slot(cache.length))
    assert np.array_equal(state.v[kept], -state.k[kept])
    assert (state.k[kept] == state.k[kept, :1, :1]).all()
    return [float(value) for value in state.k[kept, 0, 0]]


def test_a_chain_is_committed_in_place(spec: ModelSpec) -> None:
    cache = KvCache(spec, 16)
    write(cache, 10, 4)
    cache.commit(range(4))
    write(cache, 20, 3)
    cache.commit([0])
    assert cache.length == 5 and committed(cache, 1) == [10, 11, 12, 13, 20]


def test_a_tree_path_is_compacted_in_every_layer(spec: ModelSpec) -> None:
    cache = KvCache(spec, 16)
    write(cache, 0, 2)
    cache.commit([0, 1])
    write(cache, 100, 6)
    cache.commit([0, 2, 5])
    assert [committed(cache, layer) for layer in range(2)] == [[0, 1, 100, 102, 105]] * 2
    write(cache, 200, 1)
    cache.commit([0])
    assert committed(cache) == [0, 1, 100, 102, 105, 200]


@pytest.mark.parametrize("k_type", TYPES)
@pytest.mark.parametrize("v_type", TYPES)
def test_compaction_moves_whole_vectors_of_every_type(spec: ModelSpec, k_type: KvType, v_type: KvType) -> None:
    cache = KvCache(spec, 16, k_type, v_type)
    write(cache, 1, 2)
    cache.commit([0, 1])
    write(cache, 100, 6)
    cache.commit([1, 2, 5])
    expected = np.concatenate([vectors(1, 2), vectors(101, 2), vectors(105, 1)])
    for state in cache.layers:
        np.testing.assert_array_equal(state.k[:5], encode(expected, k_type))
        np.testing.assert_array_equal(state.v[:5], encode(-expected, v_type))


def test_rolling_back_forgets_the_end_only(spec: ModelSpec) -> None:
    cache = KvCache(spec, 8)
    write(cache, 0, 5)
    cache.commit(range(5))
    assert cache.roll_back(2) == 2
    write(cache, 50, 2)
    cache.commit([1])
    assert committed(cache) == [0, 1, 51]
    cache.commit([])
    assert cache.length == 3


def test_values_are_rounded_to_nearest_even_fp16(spec: ModelSpec) -> None:
    state = KvCache(spec, 4).layers[0]
    half_way = np.float32(1 + 2**-11)
    kv_write(np.full((1, 2, 12), half_way, np.float32), state.k, 0)
    kv_write(np.full((1, 2, 12), 1e9, np.float32), state.v, 0)
    assert (state.k[0] == np.float16(1)).all()
    assert np.isinf(state.v[0]).all()


@pytest.mark.parametrize("path", [[1, 0], [0, 0], [-1], [0, 8], [9]])
def test_paths_that_cannot_be(spec: ModelSpec, path: list[int]) -> None:
    cache = KvCache(spec, 8)
    write(cache, 0, 3)
    with pytest.raises(ValueError, match=r"path|outside"):
        cache.commit(path)
    assert cache.length == 0


def test_rolling_back_forward_is_refused(spec: ModelSpec) -> None:
    with pytest.raises(ValueError, match="cannot roll back"):
        KvCache(spec, 8).roll_back(1)


def test_more_rows_than_were_reserved_are_refused(sliding: ModelSpec) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        KvCache(sliding, 8).make_room(9)
    cache = KvCache(sliding, 100, largest_pass=4)
    for first in range(0, 40, 4):
        write(cache, first, 4)
        cache.commit(range(4))
    with pytest.raises(ValueError, match="beside a window"):
        cache.make_room(6)
    assert cache.length == 0 and cache.layers[0].first_position == 0


def test_unknown_types_and_layers_that_keep_no_keys(spec: ModelSpec) -> None:
    for types in (("q5_1", "f16"), ("f16", "q4_1")):
        with pytest.raises(UnsupportedModel, match="cannot keep"):
            KvCache(spec, 8, *types)  # type: ignore[arg-type]
    recurrent = dataclasses.replace(spec.layers[1], kind="recurrent")
    with pytest.raises(UnsupportedModel, match="recurrent"):
        KvCache(dataclasses.replace(spec, layers=(spec.layers[0], recurrent)), 8)


@pytest.mark.parametrize("k_type", TYPES)
@pytest.mark.parametrize("v_type", TYPES)
def test_bytes_are_those_of_the_arrays_and_of_the_planner(sliding: ModelSpec, k_type: KvType, v_type: KvType) -> None:
    for slots, largest_pass in ((10, 5), (19, 5), (21, 5), (500, 64)):
        cache = KvCache(sliding, slots, k_type, v_type, largest_pass=largest_pass)
        assert cache.nbytes == sum(state.k.nbytes + state.v.nbytes for state in cache.layers)
        assert cache.nbytes == cache_bytes(sliding, slots, k_type, v_type, largest_pass=largest_pass).total


@pytest.mark.parametrize("kind", TYPES)
def test_a_moving_window_reads_what_a_cache_that_keeps_all_reads(sliding: ModelSpec, kind: KvType) -> None:
    """The same passes through both, with trees, partial paths and roll-backs: attention gives the same bits."""
    rng = np.random.default_rng(0)
    small, whole = KvCache(sliding, 300, kind, kind, largest_pass=6), KvCache(sliding, 300, kind, kind)
    moved = 0
    for step in range(60):
        n = int(rng.integers(1, 7))
        parents = np.array([-1, *(rng.integers(-1, row) for row in range(1, n))], np.int32)
        k, v, q = (rng.normal(size=(n, heads, 12)).astype(np.float32) for heads in (2, 2, 6))
        found = []
        for cache in (small, whole):
            cache.make_room(n)
            state = cache.layers[0]
            slot = state.slot(cache.length)
            kv_write(k, state.k, slot, kind)
            kv_write(v, state.v, slot, kind)
            options = {"window": WINDOW, "k_type": kind, "v_type": kind, "first_position": state.first_position}
            found.append(attention(q, state.k, state.v, slot, parents, 0.3, **options))
        assert found[0].tobytes() == found[1].tobytes(), step
        path = [row for row in range(n) if rng.random() < 0.7]
        back = max(whole.length + len(path) - int(rng.integers(0, 3)), 0)
        for cache in (small, whole):
            cache.commit(path)
        if small.layers[0].keeps(back):
            assert small.roll_back(back) == whole.roll_back(back)
        moved = max(moved, small.layers[0].first_position)
    assert moved > 50 and small.length == whole.length
    assert small.nbytes < whole.nbytes


def test_rolling_back_behind_a_moved_window_forgets_everything(sliding: ModelSpec) -> None:
    cache = KvCache(sliding, 100, largest_pass=4)
    for first in range(0, 40, 4):
        write(cache, first, 4)
        cache.commit(range(4))
    gone = cache.layers[0].first_position
    assert gone > 0 and committed(cache) == [float(i) for i in range(gone, 40)]
    assert cache.roll_back(gone + WINDOW - 1) == gone + WINDOW - 1
    assert cache.roll_back(gone + WINDOW - 2) == 0 == cache.layers[0].first_position
    write(cache, 7, 1)
    cache.commit([0])
    assert committed(cache) == [7] == committed(cache, 1)


def test_an_interruption_while_a_window_moves_leaves_an_empty_cache(
    sliding: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = KvCache(sliding, 100, largest_pass=4)
    for first in range(0, 20, 4):
        write(cache, first, 4)
        cache.commit(range(4))

    def interrupted(length: int) -> None:
        cache.layers[0].k[:] = 0
        cache.layers[0].origin[0] = 3
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache.layers[0], "move_window", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.make_room(4)
    assert cache.length == 0
    write(cache, 5, 2)
    cache.commit([0, 1])
    assert committed(cache) == [5, 6]


@pytest.mark.parametrize("kinds", [("q8_0", "q8_0"), ("q8_0", "q4_0"), ("f16", "q8_0")], ids="-".join)
def test_an_engine_with_a_quantised_cache(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan], kinds: tuple[KvType, KvType]
) -> None:
    """Its text is the same for every chunk, draft and kernel; what it keeps is close to what fp16 keeps."""
    folder = make_checkpoint()
    tokens = np.random.default_rng(3).integers(0, 117, 50).tolist()
    texts, logits = [], []
    for chunk, nodes, kernels in ((32, 0, "auto"), (7, 4, "auto"), (50, 2, "naive")):
        plan = make_plan(k_type=kinds[0], v_type=kinds[1], prefill_chunk=chunk, draft_nodes=nodes, draft_depth=nodes)
        engine = Engine.load(folder, plan, kernels=kernels)  # type: ignore[arg-type]
        logits.append(engine.forward_logits(tokens))
        engine.prefill(tokens)
        while len(engine.tokens) < 58:
            engine.step()
        texts.append(engine.tokens[:58])
        assert {state.k_type for state in engine._cache.layers} == {kinds[0]}
    assert texts[0] == texts[1] == texts[2]
    assert logits[0].tobytes() == logits[1].tobytes() == logits[2].tobytes()
    exact = Engine.load(folder, make_plan()).forward_logits(tokens)
    assert 0 < np.linalg.norm(logits[0] - exact) / np.linalg.norm(exact) < 0.1


def test_an_engine_with_sliding_layers(
    make_checkpoint: Callable[..., Path], make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window smaller than the text: the logits are those of an engine whose layers keep everything."""
    folder = make_checkpoint(model_type="mistral", sliding_window=WINDOW)
    tokens = np.random.default_rng(3).integers(0, 117, 80).tolist()
    plan = make_plan(prefill_chunk=8, draft_nodes=3, draft_depth=3, k_type="q8_0", v_type="q8_0")
    engine = Engine.load(folder, plan)
    assert [state.slots for state in engine._cache.layers] == [WINDOW + 8] * 2
    logits, texts = [engine.forward_logits(tokens)], []
    engine.prefill(tokens)
    for _ in range(8):
        engine.step()
    texts.append(list(engine.tokens))
    engine.prefill([*tokens[:40], 5])  # its window has moved on
    engine.step()
    texts.append(list(engine.tokens[:42]))

    monkeypatch.setattr("twofold.engine.kv_cache.layer_tokens", lambda layer, slots, largest_pass: slots)
    whole = Engine.load(folder, plan)
    assert whole._cache.layers[0].slots > 100
    logits.append(whole.forward_logits(tokens))
    whole.prefill(tokens)
    for _ in range(8):
        whole.step()
    assert logits[0].tobytes() == logits[1].tobytes() and whole.tokens == texts[0]
    whole.prefill([*tokens[:40], 5])
    whole.step()
    assert whole.tokens[:42] == texts[1]


def test_a_quantised_vector_of_12_takes_one_block(spec: ModelSpec) -> None:
    state = KvCache(spec, 3, "q4_0", "q8_0").layers[0]
    assert state.k.shape == (3, 2, 18) and state.v.shape == (3, 2, 34)
    kv_write(vectors(1, 1), state.v, 0, "q8_0")
    codes, _ = decode(state.v[:1], "q8_0")
    assert (codes[..., 12:] == 0).all()


def test_rows_are_repeated_over_the_slots_for_timing(sliding: ModelSpec) -> None:
    cache = KvCache(sliding, 90, largest_pass=8)
    write(cache, 0, 5)
    cache.commit(range(5))
    cache.repeat(72)
    assert cache.length == 72
    assert committed(cache, 1) == [float(i % 5) for i in range(72)]
    windowed = cache.layers[0]
    assert windowed.first_position == 72 - (WINDOW - 1) and windowed.has_room(72, 8)
    assert all(float(row[0, 0]) in range(5) for row in windowed.k[: WINDOW - 1])
    cache.make_room(8)
    assert cache.length == 72
    cache.roll_back(0)
    assert windowed.first_position == 0


def test_what_cannot_be_repeated(sliding: ModelSpec) -> None:
    cache = KvCache(sliding, 40, largest_pass=8)
    with pytest.raises(ValueError, match="cannot repeat"):
        cache.repeat(8)
    write(cache, 0, 4)
    cache.commit(range(4))
    for until in (3, 41):
        with pytest.raises(ValueError, match="cannot repeat"):
            cache.repeat(until)
    cache.repeat(40)
    with pytest.raises(ValueError, match="cannot repeat"):
        cache.repeat(40)  # its window has moved
