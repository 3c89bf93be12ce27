"""KL against the source's own logits, with models whose distance is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from versus.quality import Quality, measure_quality

from twofold.engine.torch_ops import run_model
from twofold.engine.weights import open_weights
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.sources import read_spec, resolve

TEXTS = [tuple(range(40, 190)), (9, 8, 7), (300, 301)]


def _logits(model: ModelSpec, path: Path, shift: float = 0.0) -> Callable[[Sequence[int]], np.ndarray]:
    def compute(text: Sequence[int]) -> np.ndarray:
        with open_weights(path) as weights:
            logits = run_model(model, torch.tensor(text), weights.tensor).numpy()
        logits[:, 0] += np.float32(shift)
        return logits

    return compute


@pytest.mark.slow
def test_the_source_is_at_zero_and_others_are_not(one_layer_gguf: Path, one_layer_q8_0: Path) -> None:
    model = read_spec(resolve(str(one_layer_gguf)))
    found: Quality = measure_quality(
        model,
        one_layer_gguf,
        TEXTS,
        {
            "source": _logits(model, one_layer_gguf),
            "q8_0": _logits(model, one_layer_q8_0),
            "wrong": _logits(model, one_layer_gguf, 30.0),
        },
    )
    assert {name: figure.n for name, figure in found.kl.items()} == dict.fromkeys(found.kl, 155)
    assert abs(found.kl["source"].number) < 1e-9
    assert 1e-9 < found.kl["q8_0"].number < 1e-2
    assert found.kl["wrong"].number > 1
    assert found.top1_mismatch["wrong"].number > 0.9 and found.top1_mismatch["source"].number == 0
    assert found.difference is not None
    mean, low, high = found.difference
    assert mean == pytest.approx(found.kl["source"].number - found.kl["q8_0"].number)
    assert low <= mean <= high


@pytest.mark.slow
def test_a_broken_engine_does_not_average_away(one_layer_gguf: Path) -> None:
    model = read_spec(resolve(str(one_layer_gguf)))

    def broken(text: Sequence[int]) -> np.ndarray:
        logits = np.zeros((len(text), model.vocab_size), np.float32)
        logits[-1, 5] = np.nan
        return logits

    with pytest.raises(ValueError, match="not finite"):
        measure_quality(model, one_layer_gguf, TEXTS[1:], {"broken": broken})
