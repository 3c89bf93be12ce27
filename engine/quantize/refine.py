"""Refining the draft: the base's scales trained end to end, so that behind exact K and V it says what the model says.

Training only step sizes end to end, the integers fixed, is EfficientQAT's second phase (E2E-QP, Chen et al. 2024). Here
the loss is the divergence from the model itself instead of the next token's, KL(model ‖ draft), and the draft attends
as it drafts, over the verifier's keys and values. The residual is rounded afterwards against the refined base, so the
verifier loses nothing.

Memory is bounded by hand-made gradient checkpointing: a forward pass keeps each layer's input of one batch, the way
back computes a layer again with its gradient and lets it go before the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.engine.graph.registry import graph_of
from twofold.engine.quantize.bases import GivenBase
from twofold.engine.quantize.draft_ops import DraftOps, behind_exact
from twofold.engine.quantize.group import GroupRotations
from twofold.engine.quantize.layer import Texts
from twofold.engine.quantize.options import REFINE_BATCH_TOKENS, REFINE_HEAD_LOGITS, REFINE_HELD_EVERY
from twofold.engine.quantize.rowstore import RowStore
from twofold.engine.torch_ops import TorchOps, causal_attention
from twofold.profiles.model_spec import LayerSpec, LinearGroup, ModelSpec

LEARNING_RATE = 3e-3
"""Of Adam on the scales' logarithms, at its highest: what a step changes is a share of the scale, whatever its size.
48 steps of about 600 tokens moved SmolLM2's draft furthest with it (KL on other text 0.586 to 0.502 within the first
12).
"""

BETAS = (0.9, 0.95)
"""Adam's; the second is lower than usual because a run has tens to hundreds of steps, not thousands."""

WARM_UP_STEPS = 5
"""Adam's first steps have the size of the learning rate whatever the gradient, so they start small."""

Told = Callable[[float, str], None]
"""(share of the work that is done, what is being done)."""


@dataclass(frozen=True, slots=True)
class RefineJob:
    """What refining needs. `weight` loads a tensor of the source onto the device, `embed` embeds tokens as the
    checkpoint does; `levels` int8 [K, rows] and `scales` fp16 [n_groups, rows] are the bases as rounded.
    """

    model: ModelSpec
    texts: Sequence[Sequence[int]]
    passes: int
    seed: int
    weight: Callable[[str], Tensor]
    embed: Callable[[Sequence[int]], Tensor]
    rotations: Callable[[LinearGroup], GroupRotations]
    levels: Callable[[str], Tensor]
    scales: Callable[[str], Tensor]
    device: torch.device


@dataclass(frozen=True, slots=True)
class Refined:
    """The best scales seen, fp16 by group, and KL per token (nats) on the held texts before and with them."""

    scales: dict[str, Tensor]
    kl_before: float
    kl_after: float


@dataclass(frozen=True, slots=True)
class _Batch:
    """Whole texts, which are rows `start` … `stop` − 1 of the store."""

    start: int
    texts: tuple[Sequence[int], ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self.texts))

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    @property
    def stop(self) -> int:
        return self.start + self.n_rows


def pieces(texts: Sequence[Sequence[int]], tokens: int = REFINE_BATCH_TOKENS) -> list[Sequence[int]]:
    """The texts, long ones cut: attention with a gradient keeps a number for every pair of tokens and head."""
    return [text[start : start + tokens] for text in texts for start in range(0, len(text), tokens)]


def dealt(texts: list[Sequence[int]]) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """(texts to train on, texts held back to judge by); a single text is both."""
    if len(texts) == 1:
        return texts, texts
    every = min(REFINE_HELD_EVERY, len(texts))
    held = texts[every - 1 :: every]
    return [text for i, text in enumerate(texts) if (i + 1) % every], held


class Refiner:
    """One training of all decoder groups' scales; `store` (of `n_rows`) keeps what the model computes."""

    def __init__(self, job: RefineJob, store_of: Callable[[int], RowStore], told: Told) -> None:
        self.job, self.told = job, told
        train, held = dealt(pieces(job.texts))
        self.train = list(_batches(train, 0))
        self.held = list(_batches(held, sum(map(len, train))))
        self.store = store_of(sum(map(len, (*train, *held))))
        self._groups = [group for layer in job.model.layers for group in layer.groups]
        self._graph = graph_of(job.model)
        self._weights: dict[str, Tensor] = {}
        self._rotations: dict[str, GroupRotations] = {}
        self._first = {group.name: job.scales(group.name).float() for group in self._groups}
        self._logs = {name: torch.zeros_like(scales, requires_grad=True) for name, scales in self._first.items()}

    def run(self) -> Refined:
        """Train; never worse on the held texts than the scales were."""
        job, n_steps = self.job, self.job.passes * len(self.train)
        try:
            self._model_pass()
            best = {name: scales.half() for name, scales in self._first.items()}
            before = after = self._judge(best)
            optimizer = torch.optim.Adam(list(self._logs.values()), lr=LEARNING_RATE, betas=BETAS)
            shuffle = torch.Generator().manual_seed(job.seed)
            for number in range(job.passes):
                what = f"pass {number + 1}/{job.passes}: KL {before:.3f} → {after:.3f}"
                if not self._train_pass(optimizer, number, n_steps, shuffle, what):
                    break
                scales = self._scales()
                kl = self._judge(scales)
                if kl < after:
                    best, after = scales, kl
            self.told(1.0, f"KL {before:.3f} → {after:.3f}")
            return Refined(best, before, after)
        finally:
            self.store.clear()

    def _train_pass(
        self, optimizer: torch.optim.Optimizer, number: int, n_steps: int, shuffle: torch.Generator, what: str
    ) -> bool:
        """Every batch once, in a new order; False where the loss or a gradient is not finite any more."""
        order = torch.randperm(len(self.train), generator=shuffle).tolist()
        for step, index in enumerate(order, number * len(self.train)):
            self.told(step / n_steps, what)
            for parameters in optimizer.param_groups:
                parameters["lr"] = learning_rate(step, n_steps)
            optimizer.zero_grad()
            loss = self._step(self.train[index])
            gradients = (log.grad for log in self._logs.values())
            if not math.isfinite(loss) or not all(bool(g.isfinite().all()) for g in gradients if g is not None):
                return False
            optimizer.step()
        return True

    @torch.no_grad()
    def _scales(self) -> dict[str, Tensor]:
        return {name: (first * self._logs[name].exp()).half() for name, first in self._first.items()}

    @torch.no_grad()
    def _model_pass(self) -> None:
        """What the model computes over all texts: K and V of every layer and the last hidden rows, to the store."""
        job, batches = self.job, [*self.train, *self.held]
        for batch in batches:
            self.store.write("hidden", batch.start, self._embedded(batch))
        for layer in job.model.layers:
            self.told(0.0, f"what the model says, layer {layer.index + 1}/{job.model.n_layers}")
            for batch in batches:
                self._model_layer(layer, batch)
            for member in (member for group in layer.groups for member in group.members):
                self._weights.pop(f"{member.name}.weight", None)

    def _model_layer(self, layer: LayerSpec, batch: _Batch) -> None:
        def keeping(
            model: ModelSpec, layer: LayerSpec, q: Tensor, k: Tensor, v: Tensor, sequence_lengths: Sequence[int]
        ) -> Tensor:
            self.store.write(f"k-{layer.index}", batch.start, k.flatten(1))
            self.store.write(f"v-{layer.index}", batch.start, v.flatten(1))
            return causal_attention(model, layer, q, k, v, sequence_lengths)

        ops = TorchOps(
            self.job.model,
            self._weight,
            sequence_lengths=batch.lengths,
            embeddings=self._read("hidden", batch),
            attention=keeping,
            device=self.job.device,
        )
        rows = self._graph.decoder_layer(ops, self.job.model, layer, ops.embed())
        self.store.write("hidden", batch.start, rows)

    def _step(self, batch: _Batch) -> float:
        """The gradients of one batch, added to the logarithms'; the loss, KL per token."""
        scales = {name: first * self._logs[name].detach().exp() for name, first in self._first.items()}
        *inputs, result = self._draft(batch, scales)
        loss, gradient = self._loss(result, batch, with_gradient=True)
        assert gradient is not None
        for layer in reversed(self.job.model.layers):
            x = inputs.pop().requires_grad_(True)
            logs = {group.name: self._logs[group.name] for group in layer.groups}
            own = {name: self._first[name] * log.exp() for name, log in logs.items()}
            rows = self._draft_layer(layer, batch, x, own)
            torch.autograd.backward(rows, gradient)
            assert x.grad is not None
            gradient = x.grad
        return loss

    @torch.no_grad()
    def _judge(self, scales: Mapping[str, Tensor]) -> float:
        """KL per token on the held texts; infinite where it is not finite."""
        total = 0.0
        for batch in self.held:
            *_, result = self._draft(batch, scales, keep=False)
            total += self._loss(result, batch, with_gradient=False)[0] * batch.n_rows
        kl = total / sum(batch.n_rows for batch in self.held)
        return kl if math.isfinite(kl) else math.inf

    @torch.no_grad()
    def _draft(self, batch: _Batch, scales: Mapping[str, Tensor], *, keep: bool = True) -> list[Tensor]:
        """Each layer's input [rows, hidden_size] and the last one's result; without `keep` the result alone."""
        x = self._embedded(batch)
        kept = []
        for layer in self.job.model.layers:
            if keep:
                kept.append(x)
            x = self._draft_layer(layer, batch, x, scales)
        return [*kept, x]

    def _embedded(self, batch: _Batch) -> Tensor:
        return torch.cat([self.job.embed(text) for text in batch.texts]).to(self.job.device)

    def _draft_layer(self, layer: LayerSpec, batch: _Batch, x: Tensor, scales: Mapping[str, Tensor]) -> Tensor:
        def exact(layer: LayerSpec) -> tuple[Tensor, Tensor]:
            shape = (batch.n_rows, layer.n_kv_heads, -1)
            key, value = (self._read(f"{part}-{layer.index}", batch).view(shape) for part in "kv")
            return key, value

        ops = DraftOps(
            self.job.model,
            self._weight,
            rotations=self._rotations_of,
            base=lambda group: GivenBase(self.job.levels(group.name), scales[group.name].float()),
            sequence_lengths=batch.lengths,
            embeddings=x,
            attention=behind_exact(exact),
            device=self.job.device,
        )
        rows: Tensor = self._graph.decoder_layer(ops, self.job.model, layer, ops.embed())
        return rows

    def _loss(self, result: Tensor, batch: _Batch, *, with_gradient: bool) -> tuple[float, Tensor | None]:
        """KL per token of the draft's last hidden rows, a few rows against the whole vocabulary at a time, and its
        gradient [rows, hidden_size].
        """
        n_rows, total = result.shape[0], 0.0
        rows = max(1, REFINE_HEAD_LOGITS // self.job.model.vocab_size)
        x = result.detach().requires_grad_(with_gradient)
        with torch.set_grad_enabled(with_gradient):
            for said, own in zip(self._read("hidden", batch).split(rows), x.split(rows), strict=True):
                with torch.no_grad():
                    model = self._head(said).log_softmax(-1)
                draft = self._head(own).log_softmax(-1)
                loss = torch.nn.functional.kl_div(draft, model, reduction="sum", log_target=True) / n_rows
                total += float(loss.detach())
                if with_gradient:
                    torch.autograd.backward(loss)
        return total, x.grad

    def _head(self, rows: Tensor) -> Tensor:
        ops = TorchOps(
            self.job.model,
            self._weight,
            sequence_lengths=(rows.shape[0],),
            embeddings=rows,
            device=self.job.device,
        )
        logits: Tensor = self._graph.head(ops, self.job.model, ops.embed())
        return logits

    def _read(self, name: str, batch: _Batch) -> Tensor:
        return self.store.read(name, batch.start, batch.stop).to(self.job.device)

    def _weight(self, name: str) -> Tensor:
        """Kept: norms, biases and the head for good, a layer's matrices while the model runs through it."""
        if name not in self._weights:
            self._weights[name] = self.job.weight(name)
        return self._weights[name]

    def _rotations_of(self, group: LinearGroup) -> GroupRotations:
        if group.name not in self._rotations:
            self._rotations[group.name] = self.job.rotations(group)
        return self._rotations[group.name]


def _batches(texts: Sequence[Sequence[int]], start: int) -> Iterator[_Batch]:
    """Whole texts, about `REFINE_BATCH_TOKENS` tokens at a time; rows from `start`."""
    left = list(texts)
    for first, _, lengths in Texts(tuple(map(len, texts))).chunks(REFINE_BATCH_TOKENS):
        yield _Batch(start + first, tuple(left[: len(lengths)]))
        del left[: len(lengths)]


def learning_rate(step: int, n_steps: int) -> float:
    """Half a cosine down to 0, after a warm-up."""
    return LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * step / n_steps)) * min(1.0, (step + 1) / WARM_UP_STEPS)
