"""The draft's head: the whole vocabulary weighed by the head's base, a shortlist of it weighed again in full.

The head's residual is most of what a draft pass over the whole head reads. Its base alone names the right token less
often, but nearly always has it among its first few (SmolLM2: the shortlist's best is the whole head's in 99.8 %).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.recorder import Recording
from twofold.kernels.naive.split_weights import SplitWeights

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
SHORTLIST = 32


class DraftHead:
    """Guesses from the last layer's output.

    Args:
        recording: the head's; a norm, then the product (what follows keeps the order of logits).
        whole: hidden [rows, hidden_size] → fp32 [rows, vocab_size] of the whole head.
    """

    def __init__(
        self,
        recording: Recording,
        eps: float,
        groups: Mapping[str, SplitWeights],
        dense: Mapping[str, NDArray[Any]],
        ops: Any,
        whole: Callable[[F32], F32],
    ) -> None:
        norm, product = recording.instructions[:2]
        if (norm.kind, product.kind) != ("rms_norm", "split_linear"):
            raise ValueError(f"a head is a norm and a product, not {norm.kind} and {product.kind}")
        self._norm, self._eps = dense[str(norm.weight)], eps
        self._weights, self._ops, self._whole = groups[str(product.weight)], ops, whole

    def guesses(self, hidden: F32, logits: F32, k: int) -> I64:
        """Each row's k likeliest tokens, best first: int64 [rows, k]. `logits` are those of the head's base.

        Raises:
            ValueError: a logit is NaN.
        """
        n = max(SHORTLIST, k)
        guesses: I64
        if n >= self._weights.out_features:
            guesses = self._ops.top_k(self._whole(hidden), k)
        else:
            x = self._ops.rms_norm(hidden, self._norm, self._eps)
            guesses = self._ops.shortlist(logits, x, self._weights, n, k)
        return guesses
