"""The cache's verbs: write behind what is committed, commit a path, roll back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from twofold.engine.kv_cache import KvCache
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.config import spec_from_config


@pytest.fixture
def spec(tiny_config: dict[str, object]) -> ModelSpec:
    return spec_from_config(tiny_config, name="tiny", facts_source="test")


def rows(first: int, n: int, heads: int = 2, dim: int = 12) -> np.ndarray:
    return np.arange(first, first + n, dtype=np.float32)[:, None, None] * np.ones((1, heads, dim), np.float32)


def write(cache: KvCache, first: int, n: int) -> None:
    for state in cache.layers:
        state.write(cache.length, rows(first, n), -rows(first, n))


def committed(cache: KvCache, layer: int = 0) -> list[float]:
    state = cache.layers[layer]
    assert np.array_equal(state.v[: cache.length], -state.k[: cache.length])
    assert (state.k[: cache.length] == state.k[: cache.length, :1, :1]).all()
    return [float(value) for value in state.k[: cache.length, 0, 0]]


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


def test_rolling_back_forgets_the_end_only(spec: ModelSpec) -> None:
    cache = KvCache(spec, 8)
    write(cache, 0, 5)
    cache.commit(range(5))
    cache.roll_back(2)
    write(cache, 50, 2)
    cache.commit([1])
    assert committed(cache) == [0, 1, 51]
    cache.commit([])
    assert cache.length == 3


def test_values_are_rounded_to_nearest_even_fp16(spec: ModelSpec) -> None:
    cache = KvCache(spec, 4)
    value = np.float32(1 + 2**-11)  # half way between two fp16 numbers
    cache.layers[0].write(0, np.full((1, 2, 12), value, np.float32), np.full((1, 2, 12), 1e9, np.float32))
    assert (cache.layers[0].k[0] == np.float16(1)).all()
    assert np.isinf(cache.layers[0].v[0]).all()


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


def test_only_f16_and_layers_that_keep_keys(spec: ModelSpec) -> None:
    for types in (("q8_0", "f16"), ("f16", "q4_0")):
        with pytest.raises(UnsupportedModel, match="cannot keep"):
            KvCache(spec, 8, *types)
    recurrent = dataclasses.replace(spec.layers[1], kind="recurrent")
    with pytest.raises(UnsupportedModel, match="recurrent"):
        KvCache(dataclasses.replace(spec, layers=(spec.layers[0], recurrent)), 8)


def test_bytes_are_those_of_the_arrays(spec: ModelSpec) -> None:
    assert KvCache(spec, 10).nbytes == 2 * 10 * (2 * 12 * 2) * 2
