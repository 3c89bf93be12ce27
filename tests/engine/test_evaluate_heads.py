"""Logits of a sliced head: those of the whole one, whether the slices are kept or read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from twofold.engine.checkpoint import Checkpoint
from twofold.engine.evaluate import heads
from twofold.engine.evaluate.dequantize import head_rows, member_weights
from twofold.engine.evaluate.streams import BASE, INT8, REFERENCE
from twofold.engine.quantize.calibration import Calibration
from twofold.engine.quantize.options import QuantizeOptions
from twofold.engine.quantize.pipeline import quantize
from twofold.engine.torch_ops import run_head
from twofold.engine.weights import open_weights
from twofold.profiles.readers.local import read_folder_spec


@pytest.fixture(scope="module")
def checkpoint(quantizable_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = read_folder_spec(quantizable_folder, name="tiny")
    rng = np.random.default_rng(0)
    texts = tuple(tuple(int(i) for i in rng.integers(3, spec.vocab_size, 60)) for _ in range(5))
    out = tmp_path_factory.mktemp("heads") / "ckpt"
    return quantize(quantizable_folder, spec, out, QuantizeOptions(), Calibration("test", "0" * 64, texts))


@pytest.mark.parametrize("keep_bytes", [0, 1 << 30])
def test_slices_give_the_whole_heads_logits(
    quantizable_folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, keep_bytes: int
) -> None:
    monkeypatch.setattr(heads, "SLICE_ROWS", 48)
    monkeypatch.setattr(heads, "KEEP_BYTES", keep_bytes)
    opened = Checkpoint.open(checkpoint)
    spec = opened.spec
    generator = torch.Generator().manual_seed(0)
    hidden = {name: torch.randn(5, spec.hidden_size, generator=generator) for name in (REFERENCE, INT8, BASE)}
    (whole,) = member_weights(opened.group("lm_head"), use_residual=True)
    with open_weights(quantizable_folder) as source:
        made = heads.Heads(spec, source, opened)
        for _ in range(2):
            found = made.logits(hidden)
            for name, rows in hidden.items():
                expected = run_head(spec, rows, source.tensor, linear=(lambda g, m: whole) if name == BASE else None)
                assert torch.allclose(found[name], expected, rtol=1e-5, atol=1e-5)
        assert bool(made._kept) == bool(keep_bytes)


def test_rows_of_a_head(checkpoint: Path) -> None:
    weights = Checkpoint.open(checkpoint).group("lm_head")
    (whole,) = member_weights(weights, use_residual=True)
    for start, stop in ((0, 16), (16, 17), (32, 259), (256, 259)):
        assert torch.equal(head_rows(weights, start, stop), whole[start:stop])
    with pytest.raises(ValueError, match="whole tile"):
        head_rows(weights, 8, 24)
