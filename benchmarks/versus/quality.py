"""KL of every engine against the source weights' own logits, on text that calibration never saw.

The reference is the model in fp32 with the source's dequantised weights. The candidates are what the engines compute:
twofold's integer products with its KV cache, llama.cpp's with its rounded activations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twofold.profiles.figures import Figure, measured
from twofold.profiles.model_spec import ModelSpec

ROWS_AT_ONCE = 128
LEAST_TEXT = 128
"""Tokens that a text should have when only some of all text is judged."""
Logits = Callable[[Sequence[int]], np.ndarray]


@dataclass(frozen=True, slots=True)
class Quality:
    """KL and top-1 mismatch by engine, and the difference of the first two's KL over texts."""

    kl: dict[str, Figure]
    top1_mismatch: dict[str, Figure]
    intervals: dict[str, tuple[float, float]]
    difference: tuple[float, float, float] | None

    def to_json(self) -> dict[str, Any]:
        rows = {
            name: {
                "kl": figure.to_json(),
                "kl_interval_95": list(self.intervals[name]),
                "top1_mismatch": self.top1_mismatch[name].to_json(),
            }
            for name, figure in self.kl.items()
        }
        if self.difference is None:
            return rows
        mean, low, high = self.difference
        return rows | {"difference_of_the_first_two": {"mean": mean, "interval_95": [low, high]}}


def measure_quality(
    model: ModelSpec,
    source: Path,
    texts: Sequence[Sequence[int]],
    candidates: Mapping[str, Logits],
    on_share: Callable[[float], None] = lambda _: None,
) -> Quality:
    """Judge all `candidates` on the same texts; no more than one text's logits are held at a time.

    Raises:
        ValueError: logits that are not finite.
    """
    import torch

    from twofold.engine.evaluate.metrics import token_distances
    from twofold.engine.torch_ops import run_head
    from twofold.engine.weights import open_weights

    kl: dict[str, list[np.ndarray]] = {name: [] for name in candidates}
    mismatch: dict[str, list[np.ndarray]] = {name: [] for name in candidates}
    start = 0
    with open_weights(source) as weights:
        hidden = _reference_hidden(model, weights, texts, lambda share: on_share(share / 2))
        kept: dict[str, Any] = {}  # the head is read once

        def weight(name: str) -> Any:
            if name not in kept:
                kept[name] = torch.from_numpy(np.ascontiguousarray(weights.tensor(name)))
            return kept[name]

        for index, text in enumerate(texts):
            found = {name: torch.from_numpy(np.array(logits(text))) for name, logits in candidates.items()}
            for first in range(0, len(text), ROWS_AT_ONCE):
                rows = slice(first, min(first + ROWS_AT_ONCE, len(text)))
                reference = run_head(model, hidden[start + rows.start : start + rows.stop], weight)
                for name, logits in found.items():
                    distance, differs = token_distances(reference, logits[rows, : reference.shape[1]])
                    kl[name].append(distance)
                    mismatch[name].append(differs)
            start += len(text)
            on_share(0.5 + (index + 1) / len(texts) / 2)
    of_text = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    return _summary(
        {name: np.concatenate(parts) for name, parts in kl.items()},
        {name: np.concatenate(parts).astype(np.float64) for name, parts in mismatch.items()},
        of_text,
    )


def first_texts(texts: Sequence[Sequence[int]], n_tokens: int | None, longest: int) -> list[tuple[int, ...]]:
    """All texts, or of the first ones about `n_tokens` in all.

    A limited number comes from few texts: conversations begin with the same template, which a short piece of each would
    judge again and again.
    """
    from twofold.engine.quantize.calibration import take_evenly

    cut = [tuple(text[:longest]) for text in texts]
    if n_tokens is None:
        return cut
    few = cut[: max(1, n_tokens // LEAST_TEXT)]
    return [text for text in take_evenly(few, n_tokens) if len(text) > 1]


def _reference_hidden(model: ModelSpec, weights: Any, texts: Sequence[Sequence[int]], on_share: Any) -> Any:
    import torch

    from twofold.engine.torch_ops import TorchOps, run_layer

    with torch.no_grad():
        lengths = [len(text) for text in texts]
        tokens = torch.tensor([token for text in texts for token in text])
        hidden = TorchOps(model, weights.tensor, sequence_lengths=lengths, tokens=tokens).embed()
        for layer in model.layers:
            hidden = run_layer(model, layer, hidden, weights.tensor, sequence_lengths=lengths)
            on_share((layer.index + 1) / len(model.layers))
    return hidden


def _summary(kl: Mapping[str, np.ndarray], mismatch: Mapping[str, np.ndarray], of_text: np.ndarray) -> Quality:
    from twofold.engine.evaluate.metrics import bootstrap_interval, text_sums

    def figure(values: np.ndarray, unit: str) -> Figure:
        sums, counts = text_sums(values, of_text)
        by = "mean over held-out tokens against the source weights in fp32; spread: standard deviation over texts"
        return measured(float(values.mean()), unit, by, n=len(values), spread=float(np.std(sums / counts)))

    difference = None
    if len(kl) > 1:
        first, second = list(kl.values())[:2]
        difference = (float((first - second).mean()), *bootstrap_interval(first - second, of_text))
    return Quality(
        {name: figure(values, "nats") for name, values in kl.items()},
        {name: figure(values, "share") for name, values in mismatch.items()},
        {name: bootstrap_interval(values, of_text) for name, values in kl.items()},
        difference,
    )
