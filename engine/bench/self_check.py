"""Before any speed: every operation of one real layer and of the head must give the bits that numpy gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.checkpoint import Checkpoint
from twofold.engine.kv_cache import KvCache
from twofold.engine.recorder import record_body, record_head
from twofold.engine.replay import PassState, Player
from twofold.engine.tape import TapeMaker
from twofold.kernels.naive import ops as naive
from twofold.profiles.errors import EngineFailed

ROWS = 5
_TREE = (-1, 0, 0, 1, 1)  # two branches, so that attention gathers ancestors


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What was compared: `operations` calls, with and without the residual."""

    layer: str
    rows: int
    operations: int

    def to_json(self) -> dict[str, Any]:
        return {"layer": self.layer, "rows": self.rows, "operations": self.operations, "equal_bits": True}


class _Kept:
    """Operations that keep a copy of everything they put out; a wrong last bit may vanish in a later rounding."""

    def __init__(self, ops: Any) -> None:
        self._ops = ops
        self.outputs: list[tuple[str, NDArray[Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        run = getattr(self._ops, name)

        def call(*arguments: Any, **options: Any) -> Any:
            y = run(*arguments, **options)
            self.outputs.append((name, np.array(arguments[1] if name == "kv_write" else y)))
            return y

        return call


def check_kernels(checkpoint: Checkpoint, ops: Any, tokens: Sequence[int]) -> SelfCheck:
    """Compare `ops` with numpy on a tree of 5 rows through the first layer, and the head on its first row.

    Raises:
        EngineFailed: when a bit differs; a speed of wrong results means nothing.
    """
    rows = [int(token) for token in tokens[:ROWS]]
    n_compared = 0
    for use_residual in (True, False):
        expected = _outputs(checkpoint, naive, rows, use_residual)
        found = _outputs(checkpoint, ops, rows, use_residual)
        for place, ((name, right), (_, given)) in enumerate(zip(expected, found, strict=True)):
            n_wrong = int(np.count_nonzero(given.view(np.uint8) != right.view(np.uint8)))
            if n_wrong:
                raise EngineFailed(
                    f"no speed is reported: {name} (operation {place + 1} of layer 0, "
                    f"{'with' if use_residual else 'without'} the residual) computes other bits than numpy",
                    found=f"{n_wrong} of {right.nbytes} bytes differ",
                    needed="the same bits",
                    hint="twofold doctor, then: pip install --force-reinstall --no-deps .",
                )
        n_compared += len(expected)
    return SelfCheck("layer 0 and the head", len(rows), n_compared)


def _outputs(
    checkpoint: Checkpoint, ops: Any, tokens: Sequence[int], use_residual: bool
) -> list[tuple[str, NDArray[Any]]]:
    spec = replace(checkpoint.spec, layers=checkpoint.spec.layers[:1])
    n_rows, parents = len(tokens), _TREE[: len(tokens)]
    cache = KvCache(spec, slots=n_rows)
    state = PassState(spec, n_rows, cache.slots)
    groups = {group.name: checkpoint.group(group.name) for group in spec.groups}
    kept = _Kept(ops)
    player = Player(kept, spec, groups, checkpoint.dense_weights(), cache, state)
    state.set(tokens, parents, 0, use_residual)
    body = TapeMaker(record_body(spec), n_rows).tape(n_rows)
    player.play(body)
    head = TapeMaker(record_head(spec), 1).tape(1)
    assert head.source is not None
    np.copyto(head.source, body.result[:1])
    player.play(head)
    return kept.outputs
