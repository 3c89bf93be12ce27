"""The base's levels for a model: fitted on a sample of its rotated weights, normalised by their group's RMS."""

from __future__ import annotations

import numpy as np
import torch

from twofold.engine.quantize.group import GROUP_SIZE, make_rotations, rotated
from twofold.engine.quantize.lloyd_max import Levels, fit, to_integers
from twofold.engine.weights.source import WeightSource
from twofold.profiles.model_spec import ModelSpec

SAMPLE_SIZE = 2_000_000


@torch.no_grad()
def fit_levels(spec: ModelSpec, seed: int, source: WeightSource, device: torch.device | str = "cpu") -> Levels:
    """Lloyd–Max levels over every group of the first, middle and last layer, about two million weights in all."""
    layers = sorted({0, spec.n_layers // 2, spec.n_layers - 1})
    groups = [group for index in layers for group in spec.layers[index].groups]
    total = sum(member.n_weights for group in groups for member in group.members)
    step = max(1, total // SAMPLE_SIZE)
    sample = []
    for group in groups:
        weights = [
            torch.from_numpy(np.require(source.tensor(f"{m.name}.weight"), requirements="W")).to(device)
            for m in group.members
        ]
        turned = rotated(weights, make_rotations(seed, group, is_head=False, device=device))
        for block in turned.split(GROUP_SIZE, dim=0):
            rms = block.square().mean(0).sqrt()
            sample.append((block / torch.where(rms > 0, rms, 1.0)).flatten()[::step].cpu())
    return to_integers(*fit(torch.cat(sample).numpy()))
