"""Reading a source model's weights, one tensor at a time, as float32 under Hugging Face's names."""

from __future__ import annotations

from twofold.engine.weights.open import open_weights
from twofold.engine.weights.source import WeightSource

__all__ = ["WeightSource", "open_weights"]
