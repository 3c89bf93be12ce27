"""The native tape: the bits of the player that goes op by op, for whole passes of any width, tree and thread count."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine.backend import choose_backend
from twofold.engine.checkpoint import Checkpoint
from twofold.engine.engine import Engine
from twofold.engine.kv_cache import KvCache
from twofold.engine.native_replay import NativePlayer
from twofold.engine.recorder import record_body, record_head
from twofold.engine.replay import PassState, Player
from twofold.engine.tape import TapeMaker
from twofold.kernels import cpu
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive.kv_blocks import KvType
from twofold.planner.plan import Plan

pytestmark = pytest.mark.skipif(cpu.missing_reason() is not None, reason="the native kernels are not built")
Make = Callable[..., Path]
MakePlan = Callable[..., Plan]
SLOTS, ROWS = 40, 17
RNG = np.random.default_rng(5)
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2, biases": {"model_type": "qwen2"},
    "qwen3, head norms": {"model_type": "qwen3"},
    "gemma3": {
        "model_type": "gemma3_text",
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 5,
        "query_pre_attn_scalar": 9,
    },
    "two kinds of planes, odd head": {"quantization": {"residual_planes": 1}, "vocab_size": 128},
    "untied head, 4-bit residual": {"tie_word_embeddings": False, "residual_bits": 4},
}


class Both:
    """One model under the native player and under numpy's, each with buffers and a cache of its own."""

    def __init__(self, folder: Path, window: int | None = None, kv_types: tuple[KvType, ...] = ()) -> None:
        checkpoint = Checkpoint.open(folder)
        self.spec = checkpoint.spec
        if window is not None:
            layers = tuple(replace(layer, window=window, kind="sliding") for layer in self.spec.layers)
            self.spec = replace(self.spec, layers=layers)
        weights = checkpoint.weights(), checkpoint.dense_weights()
        self.sides: list[tuple[Any, PassState, KvCache, TapeMaker, TapeMaker]] = []
        for native in (True, False):
            cache = KvCache(self.spec, SLOTS, *kv_types, largest_pass=ROWS)
            state = PassState(self.spec, SLOTS, SLOTS)
            player: Any = (
                NativePlayer(self.spec, *weights, cache, state)
                if native
                else Player(naive, self.spec, *weights, cache, state)
            )
            makers = TapeMaker(record_body(self.spec), ROWS), TapeMaker(record_head(self.spec), ROWS)
            for maker in makers:
                for buffer in maker._buffers:
                    buffer.fill(np.nan)
            self.sides.append((player, state, cache, *makers))

    def run(
        self, tokens: list[int], parents: list[int], n_committed: int, use_residual: bool
    ) -> list[list[np.ndarray]]:
        """Hidden rows, logits, and every layer's K and V, of each side."""
        results = []
        for player, state, cache, body, head in self.sides:
            cache.length = n_committed
            cache.make_room(len(parents))
            state.set(tokens, parents, n_committed, use_residual)
            tape = body.tape(len(tokens))
            player.play(tape)
            hidden = tape.result.copy()
            state.use_residual = True
            tape = head.tape(len(tokens))
            assert tape.source is not None
            np.copyto(tape.source, hidden)
            player.play(tape)
            kept = [array.copy() for layer in cache.layers for array in (layer.k, layer.v)]
            results.append([hidden, tape.result.copy(), *kept])
        return results


@pytest.fixture(params=[*VARIANTS, "window of 5", "q8_0 and q4_0"])
def both(request: pytest.FixtureRequest, make_checkpoint: Make) -> Both:
    if request.param == "window of 5":
        return Both(make_checkpoint(), window=5)
    if request.param == "q8_0 and q4_0":
        return Both(make_checkpoint(), kv_types=("q8_0", "q4_0"))
    return Both(make_checkpoint(**VARIANTS[request.param]))


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    native = cpu.native()
    before = native.threads()
    native.set_threads(request.param)
    yield request.param
    native.set_threads(before)


def random_tree(rows: int) -> list[int]:
    return [int(RNG.integers(-1, row)) if row else -1 for row in range(rows)]


def tokens_of(n: int) -> list[int]:
    return [int(token) for token in RNG.integers(0, 117, n)]


def test_whole_passes_give_the_bits_of_numpy(both: Both, threads: int) -> None:
    n_committed = 0
    for width in (7, 1, 5, 16, 2):
        for parents in (list(range(-1, width - 1)), random_tree(width)):
            for use_residual in (False, True):
                native, expected = both.run(tokens_of(width), parents, n_committed, use_residual)
                assert np.isfinite(expected[0]).all() and expected[1].std() > 0.1
                for a, b in zip(native, expected, strict=True):
                    assert a.tobytes() == b.tobytes(), (width, parents, use_residual)
        n_committed += width


def test_a_pass_behind_earlier_rows_of_a_draft(both: Both) -> None:
    both.run(tokens_of(9), list(range(-1, 8)), 0, True)
    parents = [-1, 0, 0]
    both.run(tokens_of(3), parents, 9, True)
    parents += [2, 1]
    native, expected = both.run(tokens_of(2), parents, 9, False)
    for a, b in zip(native, expected, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    ("tokens", "parents", "n_committed", "message"),
    [
        ([117], [-1], 0, "token 117 is outside a vocabulary of 117"),
        ([-1], [-1], 0, "token -1"),
        ([1, 2], [-1, 1], 0, "earlier row"),
        ([1, 2], [-2, 0], 0, "earlier row"),
        ([1, 2], [-1, 0], SLOTS - 1, f"2 rows behind {SLOTS - 1} positions do not fit {SLOTS} slots"),
        ([1], [-1, 0, 1], SLOTS - 2, f"1 rows behind {SLOTS} positions do not fit"),
        ([1], [-1], -1, "no committed"),
    ],
)
def test_a_wrong_pass_is_refused_before_anything_is_written(
    make_checkpoint: Make, tokens: list[int], parents: list[int], n_committed: int, message: str
) -> None:
    player, state, cache, body, _ = Both(make_checkpoint()).sides[0]
    state.set(tokens, parents, n_committed, True)
    with pytest.raises(ValueError, match=message):
        player.play(body.tape(len(tokens)))
    assert all(not layer.k.any() and not layer.v.any() for layer in cache.layers)
    assert all(np.isnan(buffer).all() for buffer in body._buffers)


def test_rotary_tables_that_do_not_reach_are_refused(make_checkpoint: Make) -> None:
    player, state, _, body, _ = Both(make_checkpoint()).sides[0]
    state.set([1], [-1], 3, True)
    for layer in player._model.layers:
        state.table(layer.rope).filled[0] = 3
    with pytest.raises(ValueError, match="position 3 is outside the rotary tables"):
        player.play(body.tape(1))


def test_a_profile_counts_every_operation(make_checkpoint: Make) -> None:
    both = Both(make_checkpoint())
    player = both.sides[0][0]
    assert player.spent() == {}
    player.profile(True)
    for _ in range(3):
        both.run(tokens_of(4), [-1, 0, 1, 1], 0, True)
    spent = player.spent()
    calls = {name: n for name, (_, n) in spent.items()}
    layers = both.spec.n_layers
    assert calls["embed"] == calls["product lm_head"] == 3
    assert calls["attention"] == calls["product mlp.down"] == calls["silu_mul"] == 3 * layers
    assert calls["rope"] == calls["kv_write"] == calls["add"] == 6 * layers
    assert calls["rotate_quantise"] == 3 * (4 * layers + 1) and calls["rms_norm"] == 3 * (2 * layers + 1)
    assert all(seconds >= 0 for seconds, _ in spent.values()) and sum(s for s, _ in spent.values()) > 0
    player.profile(False)
    both.run(tokens_of(1), [-1], 0, True)
    assert player.spent() == spent


def test_neighbouring_row_operations_are_one_stage(make_checkpoint: Make) -> None:
    """A layer has five barriers: qkv, attention, o, gate_up and down, and a stage of rows before each; a head two."""
    both = Both(make_checkpoint())
    player, _, _, body, head = both.sides[0]
    assert player._compile(body.tape(3)).stages == 10 * both.spec.n_layers + 1
    assert player._compile(head.tape(3)).stages <= 4  # rows, the product, rows again where it is rotated back, argmax


def _python_calls(run: Callable[[], object]) -> int:
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    return int(pstats.Stats(profile, stream=sys.stderr).total_calls)  # type: ignore[attr-defined]


def test_python_has_a_fixed_share_of_a_step_however_deep_the_model(make_checkpoint: Make, make_plan: MakePlan) -> None:
    """Counts calls, which the machine's load does not change: a pass costs as many with 2 layers as with 12."""
    counts = []
    for layers in (2, 12):
        engine = Engine.load(make_checkpoint(name=f"m{layers}", num_hidden_layers=layers), make_plan(), kernels="cpu")
        engine.prefill(tokens_of(20))
        engine.step()
        counts.append(_python_calls(engine.step))
    assert counts[0] == counts[1] and counts[0] < 150


def test_tapes_hold_what_they_point_to(make_checkpoint: Make) -> None:
    native = cpu.native()
    tape = native.Tape(native.Workspace(), 2, False)
    x, y, out = (np.full((2, 5), value, np.float32) for value in (1, 2, 0))
    before = sys.getrefcount(x)
    tape.add(x, y, out)
    assert sys.getrefcount(x) > before
    del x, y
    for _ in range(20):
        np.full((2, 5), 99, np.float32)
    tape.run(None, None, 0, True)
    assert (out == 3).all()


def test_the_backend_decides(make_checkpoint: Make, make_plan: MakePlan) -> None:
    folder = make_checkpoint()
    assert isinstance(Engine.load(folder, make_plan(), kernels="cpu")._player, NativePlayer)
    assert isinstance(Engine.load(folder, make_plan(), kernels="naive")._player, Player)
    assert choose_backend("cpu").name == "cpu"
