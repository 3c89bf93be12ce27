"""What a quantised KV cache costs: the engine against itself, with that cache and with f16.

Same checkpoint, same kernels, same tokens; only the types of K and V differ. So the figures hold the cache's part of
the error alone, for a text of the lengths that were used: a longer context may cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from twofold.engine.evaluate import metrics
from twofold.engine.evaluate.report import EvalText, Verifier
from twofold.planner.plan import KvType
from twofold.profiles.figures import Figure, measured

ROWS_PER_CHUNK = 128
BY = "mean over held-out tokens, the engine's logits with this cache against its own with f16; spread over texts"


@dataclass(frozen=True, slots=True)
class CacheReport:
    """One pair of cache types against f16."""

    k_type: KvType
    v_type: KvType
    text: str
    tokens: int
    longest: int
    kl: Figure
    kl_interval: tuple[float, float]
    top1_mismatch: Figure

    def to_json(self) -> dict[str, Any]:
        return {
            "k_type": self.k_type,
            "v_type": self.v_type,
            "against": "the same engine with an f16 cache",
            "text": self.text,
            "tokens": self.tokens,
            "longest_text": self.longest,
            "kl": self.kl.to_json(),
            "kl_interval_95": list(self.kl_interval),
            "top1_mismatch": self.top1_mismatch.to_json(),
        }


def compare_caches(
    exact: Verifier,
    judged: Verifier,
    types: tuple[KvType, KvType],
    texts: Sequence[EvalText],
    text_id: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CacheReport:
    """Run every text through both engines.

    Raises:
        ValueError: when there is no text, or logits that are not finite.
    """
    if not texts:
        raise ValueError("a comparison needs a text")
    kl, mismatch, of_text = [], [], []
    for index, text in enumerate(texts):
        pair = [torch.from_numpy(engine.forward_logits(text.tokens)) for engine in (exact, judged)]
        for start in range(0, len(text.tokens), ROWS_PER_CHUNK):
            parts = metrics.token_distances(*(logits[start : start + ROWS_PER_CHUNK] for logits in pair))
            kl.append(parts[0])
            mismatch.append(parts[1])
        of_text.append(np.full(len(text.tokens), index))
        progress(index + 1, len(texts))
    distances, differs, where = np.concatenate(kl), np.concatenate(mismatch).astype(np.float64), np.concatenate(of_text)
    return CacheReport(
        *types,
        text=text_id,
        tokens=len(distances),
        longest=max(len(text.tokens) for text in texts),
        kl=_figure(distances, where, "nats"),
        kl_interval=metrics.bootstrap_interval(distances, where),
        top1_mismatch=_figure(differs, where, "share"),
    )


def _figure(values: np.ndarray, text: np.ndarray, unit: str) -> Figure:
    sums, counts = metrics.text_sums(values, text)
    return measured(float(values.mean()), unit, BY, n=len(values), spread=float(np.std(sums / counts)))
