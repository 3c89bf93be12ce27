"""Refining the draft: the base's scales trained end to end, so that behind exact K and V it says what the model says.

Training only step sizes end to end, the integers fixed, is EfficientQAT's second phase (E2E-QP, Chen et al. 2024). Here
the loss is the divergence from the model itself instead of the next token's, KL(model ‖ draft), and the draft attends
as it drafts, over the verifier's keys and values. The residual is rounded afterwards against the refined base, so the
verifier loses nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from twofold.engine.quantize.draft_stream import Batch, DraftModel, DraftStream, Scales, batches
from twofold.engine.quantize.options import REFINE_BATCH_TOKENS, REFINE_HELD_EVERY
from twofold.engine.quantize.rowstore import RowStore
from twofold.profiles.model_spec import LayerSpec

LEARNING_RATE = 3e-3
"""Of Adam on the scales' logarithms, at its highest: what a step changes is a share of the scale, whatever its size.
SmolLM2, 48 steps of about 600 tokens planned: KL on other text fell from 0.586 to 0.502 within the first 12.
"""

BETAS = (0.9, 0.95)
"""Adam's; the second is lower than usual because a run has tens to hundreds of steps, not thousands."""

WARM_UP_STEPS = 5
"""Adam's first steps have the size of the learning rate whatever the gradient, so they start small."""

Told = Callable[[float, str], None]
"""(share of the work that is done, what is being done)."""


@dataclass(frozen=True, slots=True)
class RefineJob:
    """What refining needs: `scales` are the bases' as rounded, fp16 [n_groups, rows]; after each pass what it takes to
    go on is kept in the file `state`.
    """

    draft: DraftModel
    scales: Callable[[str], Tensor]
    texts: Sequence[Sequence[int]]
    passes: int
    seed: int
    state: Path


@dataclass(frozen=True, slots=True)
class Refined:
    """The best scales seen, fp16, and the held texts' KL per token (nats) before and with them."""

    scales: dict[str, Tensor]
    kl_before: float
    kl_after: float


def pieces(texts: Sequence[Sequence[int]], tokens: int = REFINE_BATCH_TOKENS) -> list[Sequence[int]]:
    """The texts, long ones cut: attention with a gradient keeps a number for every pair of tokens and head."""
    return [text[start : start + tokens] for text in texts for start in range(0, len(text), tokens)]


def dealt(texts: list[Sequence[int]]) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """(texts to train on, texts held back to judge by); a single text is both."""
    if len(texts) == 1:
        return texts, texts
    every = min(REFINE_HELD_EVERY, len(texts))
    return [text for i, text in enumerate(texts) if (i + 1) % every], texts[every - 1 :: every]


def learning_rate(step: int, n_steps: int) -> float:
    """Half a cosine down to 0, after a warm-up."""
    return LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * step / n_steps)) * min(1.0, (step + 1) / WARM_UP_STEPS)


class Refiner:
    """One training of all decoder groups' scales; `store_of(n_rows)` makes the place for what the model computes."""

    def __init__(self, job: RefineJob, store_of: Callable[[int], RowStore], told: Told) -> None:
        self.job, self.told = job, told
        train, held = dealt(pieces(job.texts))
        self.train = list(batches(train))
        self.held = list(batches(held, sum(map(len, train))))
        self.stream = DraftStream(job.draft, store_of(sum(map(len, (*train, *held)))))
        names = [group.name for layer in job.draft.model.layers for group in layer.groups]
        self.first = {name: job.scales(name).float() for name in names}
        self.logs = {name: torch.zeros_like(scales, requires_grad=True) for name, scales in self.first.items()}
        self.optimizer = torch.optim.Adam(list(self.logs.values()), lr=LEARNING_RATE, betas=BETAS)
        self.best = {name: scales.half() for name, scales in self.first.items()}
        self.before = self.after = math.inf

    def run(self) -> Refined:
        """Train; never worse on the held texts than the scales were."""
        try:
            self.stream.run_model([*self.train, *self.held], lambda what: self.told(0.0, what))
            done = self._resume()
            if not done:
                self.before = self.after = self.judge(self.best)
            for number in range(done, self.job.passes):
                if not self._train_pass(number):
                    break
                scales = self._scales()
                kl = self.judge(scales)
                if kl < self.after:
                    self.best, self.after = scales, kl
                self._keep(number + 1)
            self.told(1.0, f"KL {self.before:.3f} → {self.after:.3f}")
            return Refined(self.best, self.before, self.after)
        finally:
            self.stream.store.clear()

    def _train_pass(self, number: int) -> bool:
        """Every batch once, in an order of this pass; False where a loss or gradient is not finite any more."""
        job, n_steps = self.job, self.job.passes * len(self.train)
        what = f"pass {number + 1}/{job.passes}: KL {self.before:.3f} → {self.after:.3f}"
        shuffle = torch.Generator().manual_seed(job.seed + number)
        for step, index in enumerate(
            torch.randperm(len(self.train), generator=shuffle).tolist(), number * len(self.train)
        ):
            self.told(step / n_steps, what)
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = learning_rate(step, n_steps)
            if not self.gradients(self.train[index]):
                return False
            self.optimizer.step()
        return True

    def gradients(self, batch: Batch) -> bool:
        """Of a batch, in place of earlier ones; whether they and the loss are finite."""
        self.optimizer.zero_grad()
        loss = self.stream.backward(batch, self._trained)
        found = (log.grad for log in self.logs.values())
        return math.isfinite(loss) and all(bool(grad.isfinite().all()) for grad in found if grad is not None)

    def judge(self, scales: Scales) -> float:
        """KL per token on the held texts; infinite where it is not finite."""
        total = sum(self.stream.divergence(batch, scales) * batch.n_rows for batch in self.held)
        kl = total / sum(batch.n_rows for batch in self.held)
        return kl if math.isfinite(kl) else math.inf

    def _trained(self, layer: LayerSpec) -> Scales:
        """A layer's scales as they are now, with their way back to the logarithms."""
        return {group.name: self.first[group.name] * self.logs[group.name].exp() for group in layer.groups}

    @torch.no_grad()
    def _scales(self) -> dict[str, Tensor]:
        """As a checkpoint would hold them."""
        return {name: (first * self.logs[name].exp()).half() for name, first in self.first.items()}

    def _keep(self, passes: int) -> None:
        state = {
            "passes": passes,
            "logs": {name: log.detach() for name, log in self.logs.items()},
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
            "kl": (self.before, self.after),
        }
        aside = self.job.state.with_suffix(".new")
        try:
            with aside.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
        except RuntimeError as error:
            # torch says nothing of why it could not write; what the file said is the context.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
        aside.replace(self.job.state)

    def _resume(self) -> int:
        """Take up what an interrupted training kept; how many passes are done. What cannot be read counts for none."""
        try:
            state: dict[str, Any] = torch.load(self.job.state, map_location=self.job.draft.device, weights_only=True)
        except (OSError, EOFError, RuntimeError, UnpicklingError):
            return 0
        with torch.no_grad():
            for name, log in self.logs.items():
                log.copy_(state["logs"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best, (self.before, self.after) = state["best"], state["kl"]
        return int(state["passes"])
