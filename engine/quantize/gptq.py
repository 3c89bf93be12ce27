"""Rounding with error feedback: the base (four levels) and the residual (uniform) against a Hessian.

LDLQ (Chee et al. 2023), which equals GPTQ (Frantar et al. 2022) in natural order: with the damped Hessian factored as
H = (I + F)·D·(I + F)ᵀ, F strictly upper triangular, column k is rounded at W_k + Σ_{j<k} E_j·F[j, k], where E = W − Q
is the error of the columns before it. No inverse is formed, and W itself stays untouched until it turns into E.

Everything works on transposed weights [K, rows]: a column of W is then contiguous, and all rows advance together.

A block's columns are rounded by the native kernel where the tensors are on the CPU and the module is there, else by
torch on any device. Both compute the same in exact arithmetic; their sums round in another order, so that a weight
which lies on a threshold may get its neighbouring code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from twofold.engine.quantize.bases import GivenBase
from twofold.engine.quantize.hessian import Feedback
from twofold.engine.quantize.lloyd_max import Levels
from twofold.engine.quantize.options import SLICE_ROWS

OUTLIER_REACH = 0.5
"""The outer level reaches at least this part of a block's largest weight.

The residual's step is its largest value in the block over qm, and that is what an outlier leaves over the outer level.
Four levels lose little by being stretched (they are at an optimum), the residual gains at once. Layers 2, 12, 22 and 28
of SmolLM2, 6 bits, held-out output error of base + residual against int8 g32's, and of the base: without 1.38 and
0.0253; 0.55: 1.18 and 0.0260; 0.6: 1.02 and 0.0270; 0.65: 0.92 and 0.0288; all scales × 1.2 instead: 1.05 and 0.0281.
The verifier has margin to spare on the whole model (docs/log.md), so the base gets the better part of the trade.
"""

_SUB_BLOCK = 32


@dataclass(frozen=True, slots=True)
class Rounded:
    """Codes u8 [K, rows] and fp16 scales [n_groups, rows]; `error` = W − Q, fp32 [K, rows]."""

    codes: Tensor
    scales: Tensor
    error: Tensor


Scale = Callable[[Tensor], Tensor]
"""Target block [g, rows] → fp16 scales [rows]."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """The levels: ±inner and ±highest, or every integer up to ±highest where `inner` is None."""

    inner: int | None
    highest: int

    @property
    def threshold(self) -> float:
        return ((self.inner or 0) + self.highest) / 2

    def nearest(self, size: Tensor) -> Tensor:
        """Levels, as fp32, of targets in units of their scale."""
        if self.inner is None:
            return size.round_().clamp_(-self.highest, self.highest)
        sizes = torch.where(size.abs() > self.threshold, float(self.highest), float(self.inner))
        return sizes.copysign_(size)


@cache
def _native_round_columns() -> Callable[..., Any] | None:
    from twofold.kernels.cpu import missing_reason, native

    if missing_reason() is not None or not hasattr(native(), "round_columns"):
        return None
    from twofold.kernels.cpu import ops

    return ops.round_columns


def _round_block(weights: Tensor, target: Tensor, own: Tensor, scale: Tensor, grid: _Grid, levels: Tensor) -> None:
    """Round the columns of one block: `weights` [g, rows] become the error, `levels` int8 are filled."""
    native = _native_round_columns() if weights.device.type == "cpu" else None
    if native is not None:
        arrays = (tensor.numpy() for tensor in (weights, target, own, scale))
        native(*arrays, inner=grid.inner, highest=grid.highest, out=levels.numpy())
        return
    n_columns = weights.shape[0]
    inverse = torch.where(scale > 0, 1 / scale, 0.0)
    for first in range(0, n_columns, _SUB_BLOCK):
        last = min(first + _SUB_BLOCK, n_columns)
        if first:
            target[first:last].addmm_(own[:first, first:last].T, weights[:first])
        for k in range(first, last):
            level = grid.nearest(target[k] * inverse)
            levels[k] = level
            error = weights[k].sub_(level.mul_(scale))
            if k + 1 < last:
                target[k + 1 : last].addr_(own[k, k + 1 : last], error)


def _round_rows(
    weights: Tensor, feedback: Feedback, group_size: int, scale_of: Scale, grid: _Grid
) -> tuple[Tensor, Tensor]:
    """Round all columns of `weights` [K, rows], which become the error; integer levels int8 [K, rows] and scales."""
    n_inputs = weights.shape[0]
    levels = torch.empty_like(weights, dtype=torch.int8)
    scales = []
    for start in range(0, n_inputs, group_size):
        stop = min(start + group_size, n_inputs)
        own = feedback.block(slice(start, stop), slice(start, stop)).triu_(1)
        target = weights[start:stop].clone()
        updated = target
        if start:
            pushed = feedback.block(slice(0, start), slice(start, stop)).T @ weights[:start]
            target += pushed
            # What GPTQ calls the updated block: each column moved to its optimum given the columns of earlier blocks
            # only. The small triangle is inverted because solving with as many right sides as rows took five times as
            # long.
            unit = torch.eye(stop - start, device=own.device)
            solve = torch.linalg.solve_triangular(own.T, unit, upper=False, unitriangular=True)
            updated = torch.addmm(weights[start:stop], solve, pushed)
        scales.append(scale_of(updated))
        _round_block(weights[start:stop], target, own, scales[-1].float(), grid, levels[start:stop])
    return levels, torch.stack(scales)


def _round(
    weights: Tensor,
    feedback: Feedback,
    group_size: int,
    scale_of: Scale,
    grid: _Grid,
    to_codes: Callable[[Tensor], Tensor],
) -> Rounded:
    codes, scales = [], []
    for rows in weights.split(SLICE_ROWS, dim=1):
        own = rows.contiguous()
        levels, group_scales = _round_rows(own, feedback, group_size, scale_of, grid)
        if own is not rows:
            rows.copy_(own)
        codes.append(to_codes(levels).to(torch.uint8))
        scales.append(group_scales)
    return Rounded(torch.cat(codes, 1), torch.cat(scales, 1), weights)


def round_base(weights: Tensor, feedback: Feedback, levels: Levels, group_size: int) -> Rounded:
    """The 2-bit base of rotated, transposed weights [K, rows], which are overwritten by the error.

    A scale is the RMS of the error-updated block times what a level's integer step is worth, or more where the block
    has outliers (`OUTLIER_REACH`), rounded to fp16 before anything is rounded with it. Codes are indices into
    `levels.integers`.
    """
    grid = _Grid(levels.inner, levels.outer)

    def scale_of(block: Tensor) -> Tensor:
        by_rms = block.square().mean(0).sqrt_() * levels.step_per_rms
        return torch.maximum(by_rms, block.abs().amax(0) * (OUTLIER_REACH / levels.outer)).half()

    return _round(weights, feedback, group_size, scale_of, grid, lambda value: _base_codes(value, levels))


def _base_codes(values: Tensor, levels: Levels) -> Tensor:
    """Indices u8 into `levels.integers` of level integers int8."""
    threshold = _Grid(levels.inner, levels.outer).threshold
    return (values > 0).to(torch.uint8) + (values > -threshold) + (values > threshold)


def base_levels(base: Rounded, levels: Levels) -> GivenBase:
    """The integers that a base's codes stand for, with its scales."""
    integers = torch.tensor(levels.integers, dtype=torch.int8, device=base.codes.device)
    return GivenBase(torch.stack([integers[codes.long()] for codes in base.codes]), base.scales)


def subtract_base(weights: Tensor, base: GivenBase, levels: Levels, group_size: int) -> Rounded:
    """A base that is given instead of rounded: rotated, transposed weights [K, rows] become what it leaves of them."""
    return Rounded(_base_codes(base.levels, levels), base.scales, weights.sub_(base.values(group_size)))


def round_residual(weights: Tensor, feedback: Feedback, bits: int, group_size: int) -> Rounded:
    """The uniform symmetric `bits`-bit residual of [K, rows] (overwritten by the error); codes are r + qm.

    Raises:
        ValueError: unless 2 ≤ bits ≤ 8.
    """
    if not 2 <= bits <= 8:
        raise ValueError(f"residual bits must be between 2 and 8, got {bits}")
    qm = (1 << (bits - 1)) - 1

    def scale_of(block: Tensor) -> Tensor:
        return (block.abs().amax(0) / qm).half()

    return _round(weights, feedback, group_size, scale_of, _Grid(None, qm), lambda value: value.short() + qm)
