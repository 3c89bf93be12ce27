"""Distances between two models' next-token distributions, and how sure they are.

KL(reference ‖ candidate) per token in nats, from fp32 logits through fp64 log-softmax; top-1 mismatch is the share of
tokens whose argmax differs (lowest id among equals). Intervals come from a paired bootstrap over texts: tokens of one
text are not independent, texts are.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BOOTSTRAP_SAMPLES = 2000
INTERVAL = (2.5, 97.5)


def token_distances(reference: Tensor, candidate: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """KL [n] in fp64 nats and top-1 mismatch [n] as bool of two logit tensors [n, vocab_size].

    Raises:
        ValueError: when the shapes differ or a logit is not finite (a broken pass must not average away).
    """
    if reference.shape != candidate.shape:
        raise ValueError(f"logits differ in shape: {tuple(reference.shape)} and {tuple(candidate.shape)}")
    if not (torch.isfinite(reference).all() and torch.isfinite(candidate).all()):
        raise ValueError("logits that are not finite")
    log_p = torch.log_softmax(reference.double(), dim=-1)
    log_q = torch.log_softmax(candidate.double(), dim=-1)
    kl = (log_p.exp() * (log_p - log_q)).sum(dim=-1)
    mismatch = reference.argmax(dim=-1) != candidate.argmax(dim=-1)
    return kl.numpy(), mismatch.numpy()


def text_sums(values: np.ndarray, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums and token counts per text, [n_texts] each: what the bootstrap resamples."""
    n_texts = int(text.max()) + 1
    return np.bincount(text, weights=values, minlength=n_texts), np.bincount(text, minlength=n_texts)


def bootstrap_interval(values: np.ndarray, text: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """95 % interval of the token mean of `values`, resampling whole texts; for a paired one pass a difference."""
    sums, counts = text_sums(np.asarray(values, dtype=np.float64), text)
    draws = np.random.default_rng(seed).integers(0, len(sums), size=(BOOTSTRAP_SAMPLES, len(sums)))
    means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.percentile(means, INTERVAL)
    return float(low), float(high)
