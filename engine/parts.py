"""What an engine keeps besides the weights: cache, pass state, buffers; made for a run, or counted without memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.engine.arrays import IN_MEMORY, Arrays
from twofold.engine.kv_cache import KvCache
from twofold.engine.recorder import record_body, record_head
from twofold.engine.replay import PassState
from twofold.engine.tape import TapeMaker, WholeTapes
from twofold.planner.plan import Plan
from twofold.profiles.model_spec import ModelSpec

HEAD_ROWS = 32
"""Rows of logits that are reserved at least: evaluating reads several at once."""


@dataclass(frozen=True, slots=True)
class Parts:
    """See the module. `chunk` is how many rows of a prompt go through one pass; `text` has room for the text's tokens,
    where drafts are looked up in it.
    """

    chunk: int
    cache: KvCache
    state: PassState
    body: TapeMaker
    head: TapeMaker
    whole: WholeTapes
    text: NDArray[np.int32]


def make_parts(model: ModelSpec, plan: Plan, arrays: Arrays = IN_MEMORY) -> Parts:
    """All of them, for passes as wide as the plan's prefill chunk and its draft tree.

    Raises:
        UnsupportedModel: a cache that this version cannot keep, or an architecture without a graph.
    """
    checked = plan.verify_rows
    chunk = min(plan.prefill_chunk, plan.context_tokens)
    rows = max(chunk, checked)
    cache = KvCache(
        model,
        plan.context_tokens + checked,
        plan.k_type,
        plan.v_type,
        largest_pass=max(plan.prefill_chunk, checked),
        arrays=arrays,
    )
    body = TapeMaker(record_body(model), rows, arrays)
    head = TapeMaker(record_head(model), max(HEAD_ROWS, checked), arrays)
    text = arrays.empty((plan.context_tokens if plan.lookup_nodes else 0,), np.int32)
    return Parts(chunk, cache, PassState(model, rows, cache.slots, arrays), body, head, WholeTapes(body, head), text)
