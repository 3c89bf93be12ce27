"""Which player replays tapes: native ones for the native kernels, op by op for numpy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from twofold.engine.backend import Backend
from twofold.engine.kv_cache import KvCache
from twofold.engine.native_replay import NativePlayer
from twofold.engine.replay import PassState, Player
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.model_spec import ModelSpec


def player_of(
    backend: Backend,
    model: ModelSpec,
    groups: Mapping[str, SplitWeights],
    dense: Mapping[str, NDArray[Any]],
    cache: KvCache,
    state: PassState,
) -> Player | NativePlayer:
    """A player over one model's weights and cache; both give the same bits."""
    if backend.name == "cpu":
        return NativePlayer(model, groups, dense, cache, state)
    return Player(backend.ops, model, groups, dense, cache, state)
