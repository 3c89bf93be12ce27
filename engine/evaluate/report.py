"""What `twofold eval` measures, as one value object and its JSON.

The verifier's logits come from the engine itself (integer products, its KV cache), everything else from the
floating-point streams. All logits are fp32; text is text that calibration never saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from twofold.engine.checkpoint.reader import Checkpoint
from twofold.engine.evaluate import metrics, ranks
from twofold.engine.evaluate.heads import Heads
from twofold.engine.evaluate.streams import BASE, INT8, REFERENCE, ULP, draft_name, run_streams
from twofold.engine.weights import WeightSource
from twofold.profiles.activations import Activations
from twofold.profiles.figures import Figure, measured
from twofold.profiles.model_spec import ModelSpec

SCHEMA_VERSION = 1
VERIFIER = "verifier"
ROWS_PER_CHUNK = 128


@dataclass(frozen=True, slots=True)
class EvalText:
    """Tokens, and the index of the first one that the model wrote (1 for a plain text, which it could have written)."""

    tokens: tuple[int, ...]
    answer_start: int = 1

    def following(self) -> Tensor:
        """For every row the next token, −1 where that is none of the answer's: int64 [n]."""
        rows = torch.tensor([*self.tokens[1:], -1])
        rows[: max(self.answer_start - 1, 0)] = -1
        return rows


class Verifier(Protocol):
    """The engine as far as evaluation needs it."""

    def forward_logits(self, tokens: Sequence[int]) -> np.ndarray:
        """fp32 logits [len(tokens), vocab_size] of a fresh context."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate against the source weights: means, intervals, and the paired difference to int8 group-32."""

    kl: Figure
    top1_mismatch: Figure
    kl_interval: tuple[float, float]
    kl_minus_int8: tuple[float, float, float]

    def to_json(self) -> dict[str, Any]:
        mean, low, high = self.kl_minus_int8
        return {
            "kl": self.kl.to_json(),
            "top1_mismatch": self.top1_mismatch.to_json(),
            "kl_interval_95": list(self.kl_interval),
            "kl_minus_int8_g32": {"mean": mean, "interval_95": [low, high]},
        }


@dataclass(frozen=True, slots=True)
class EvalReport:
    """The evaluation of one checkpoint, its verifier under `activations`. `own_kv` and `exact_kv[d − 1]` are recalls at
    1, 2, 4, 8, 16.
    """

    model: str
    text: str
    tokens: int
    rows: dict[str, Row]
    own_kv: list[float]
    exact_kv: list[list[float]]
    rank_frequencies: list[list[float]]
    residual_bits: int
    activations: Activations
    source_note: str
    draft_tokens: int

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "text": self.text,
            "source_weights": self.source_note,
            "residual_bits": self.residual_bits,
            "activations": self.activations,
            "tokens": self.tokens,
            "rows": {name: row.to_json() for name, row in self.rows.items()},
            "draft": {
                "recall_at": list(ranks.RECALL_AT),
                "tokens": self.draft_tokens,
                "own_kv": self.own_kv,
                "exact_kv": self.exact_kv,
                "rank_frequencies": self.rank_frequencies,
            },
        }


class _Collector:
    """Per-token results, gathered chunk by chunk so that no stream's logits are ever held whole."""

    def __init__(self, drafts: Sequence[str]) -> None:
        self.kl: dict[str, list[np.ndarray]] = {name: [] for name in (VERIFIER, BASE, INT8, ULP)}
        self.mismatch: dict[str, list[np.ndarray]] = {name: [] for name in self.kl}
        self.rank: dict[str, list[np.ndarray]] = {name: [] for name in (BASE, *drafts)}
        self.text: list[np.ndarray] = []

    def add(
        self,
        reference: Tensor,
        candidates: dict[str, Tensor],
        drafts: dict[str, Tensor],
        text: int,
        following: Tensor,
    ) -> None:
        """One chunk of rows of a text; `following` is each row's next token, −1 where drafts are not judged."""
        for name, logits in candidates.items():
            kl, mismatch = metrics.token_distances(reference, logits)
            self.kl[name].append(kl)
            self.mismatch[name].append(mismatch)
        chosen = candidates[VERIFIER].argmax(dim=-1)
        own = chosen == following
        for name, logits in {BASE: candidates[BASE], **drafts}.items():
            self.rank[name].append(ranks.rank_of(logits[own], chosen[own]).numpy())
        self.text.append(np.full(reference.shape[0], text))

    def row(self, name: str) -> Row:
        kl, mismatch = np.concatenate(self.kl[name]), np.concatenate(self.mismatch[name])
        text = np.concatenate(self.text)
        low, high = metrics.bootstrap_interval(kl, text)
        difference = kl - np.concatenate(self.kl[INT8])
        by = "mean over held-out tokens against the source weights, fp32 logits; spread: standard deviation over texts"
        spread = _text_spread(kl, text)
        return Row(
            kl=measured(float(kl.mean()), "nats", by, n=len(kl), spread=spread),
            top1_mismatch=measured(
                float(mismatch.mean()), "share", by, n=len(kl), spread=_text_spread(mismatch.astype(np.float64), text)
            ),
            kl_interval=(low, high),
            kl_minus_int8=(float(difference.mean()), *metrics.bootstrap_interval(difference, text)),
        )


def _text_spread(values: np.ndarray, text: np.ndarray) -> float:
    sums, counts = metrics.text_sums(values, text)
    return float(np.std(sums / counts))


def evaluate(
    model: ModelSpec,
    source: WeightSource,
    checkpoint: Checkpoint,
    verifier: Verifier,
    texts: Sequence[EvalText],
    *,
    text_id: str,
    depths: int = 4,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> EvalReport:
    """Judge a checkpoint on token sequences. `progress(stage, done, total)`.

    Raises:
        ValueError: when there is no text, or logits that are not finite.
    """
    if not texts or min(len(text.tokens) for text in texts) < 2:
        raise ValueError("every text needs at least two tokens")
    notify = progress or (lambda stage, done, total: None)
    hidden = run_streams(
        model,
        source,
        checkpoint,
        [text.tokens for text in texts],
        depths=depths,
        seed=seed,
        progress=lambda done, total: notify("layers", done, total),
    )
    drafts = [draft_name(depth) for depth in range(1, depths + 1)]
    collector, heads, start = _Collector(drafts), Heads(model, source, checkpoint), 0
    for index, text in enumerate(texts):
        verified = torch.from_numpy(verifier.forward_logits(text.tokens))
        n_rows, following = len(text.tokens), text.following()
        for offset in range(0, n_rows, ROWS_PER_CHUNK):
            chunk = slice(offset, min(offset + ROWS_PER_CHUNK, n_rows))
            rows = slice(start + chunk.start, start + chunk.stop)
            logits = heads.logits({name: hidden[name][rows] for name in (REFERENCE, INT8, ULP, BASE, *drafts)})
            candidates = {name: logits[name] for name in (INT8, ULP, BASE)}
            candidates[VERIFIER] = verified[chunk]
            judged = {name: logits[name] for name in drafts}
            collector.add(logits[REFERENCE], candidates, judged, index, following[chunk])
        start += n_rows
        notify("texts", index + 1, len(texts))
    rank = {name: np.concatenate(parts) for name, parts in collector.rank.items()}
    if not len(rank[BASE]):
        raise ValueError("the verifier would have written none of this text: there is nothing to rank drafts on")
    return EvalReport(
        model=model.name,
        text=text_id,
        tokens=start,
        rows={name: collector.row(name) for name in (VERIFIER, BASE, INT8, ULP)},
        own_kv=ranks.recalls(rank[BASE]),
        exact_kv=[ranks.recalls(rank[name]) for name in drafts],
        rank_frequencies=[ranks.rank_frequencies(rank[name]) for name in drafts],
        residual_bits=checkpoint.config.residual_bits,
        activations=checkpoint.config.activations,
        source_note=source.dtype_note(),
        draft_tokens=len(rank[BASE]),
    )
