"""Rounding with error feedback: the base (four levels) and the residual (uniform) against a Hessian.

LDLQ (Chee et al. 2023), which equals GPTQ (Frantar et al. 2022) in natural order: with the damped Hessian factored as
H = (I + F)·D·(I + F)ᵀ, F strictly upper triangular, column k is rounded at W_k + Σ_{j<k} E_j·F[j, k], where E = W − Q
is the error of the columns before it. No inverse is formed, and W itself stays untouched until it turns into E.

Everything works on transposed weights [K, rows]: a column of W is then contiguous, and all rows advance together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.engine.quantize.hessian import Feedback
from twofold.engine.quantize.lloyd_max import OUTER_LEVEL, Levels

_SUB_BLOCK = 32
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class Rounded:
    """Codes u8 [K, rows] and fp16 scales [n_groups, rows]; `error` = W − Q, fp32 [K, rows]."""

    codes: Tensor
    scales: Tensor
    error: Tensor


Scale = Callable[[Tensor], Tensor]
"""Target block [g, rows] → fp16 scales [rows]."""
Column = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(target [rows], scale fp32 [rows], 1/scale or 0) → integer levels as fp32 [rows]."""


def _round_rows(
    weights: Tensor, feedback: Feedback, group_size: int, scale_of: Scale, column_of: Column
) -> tuple[Tensor, Tensor]:
    """Round all columns of `weights` [K, rows], which become the error; integer levels fp32 [K, rows] and scales."""
    n_inputs = weights.shape[0]
    levels = torch.empty_like(weights)
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
        scale = scales[-1].float()
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        block, block_levels = weights[start:stop], levels[start:stop]
        for first in range(0, stop - start, _SUB_BLOCK):
            last = min(first + _SUB_BLOCK, stop - start)
            if first:
                target[first:last].addmm_(own[:first, first:last].T, block[:first])
            for k in range(first, last):
                level = column_of(target[k], scale, inverse)
                block_levels[k] = level
                error = block[k].sub_(level.mul_(scale))
                if k + 1 < last:
                    target[k + 1 : last].addr_(own[k, k + 1 : last], error)
    return levels, torch.stack(scales)


def _round(
    weights: Tensor,
    feedback: Feedback,
    group_size: int,
    scale_of: Scale,
    column_of: Column,
    to_codes: Callable[[Tensor], Tensor],
) -> Rounded:
    codes, scales = [], []
    for rows in weights.split(_ROWS_AT_ONCE, dim=1):
        own = rows.contiguous()
        levels, group_scales = _round_rows(own, feedback, group_size, scale_of, column_of)
        if own is not rows:
            rows.copy_(own)
        codes.append(to_codes(levels).to(torch.uint8))
        scales.append(group_scales)
    return Rounded(torch.cat(codes, 1), torch.cat(scales, 1), weights)


def round_base(weights: Tensor, feedback: Feedback, levels: Levels, group_size: int) -> Rounded:
    """The 2-bit base of rotated, transposed weights [K, rows], which are overwritten by the error.

    A scale is the RMS of the error-updated block times what a level's integer step is worth, rounded to fp16 before
    anything is rounded with it. Codes are indices into `levels.integers`.
    """
    threshold = (levels.inner + OUTER_LEVEL) / 2
    inner = torch.tensor(float(levels.inner), device=weights.device)
    outer = torch.tensor(float(OUTER_LEVEL), device=weights.device)

    def scale_of(block: Tensor) -> Tensor:
        return (block.square().mean(0).sqrt_() * levels.step_per_rms).half()

    def column_of(target: Tensor, scale: Tensor, inverse: Tensor) -> Tensor:
        size = target * inverse
        return torch.where(size.abs() > threshold, outer, inner).copysign_(size)

    def to_codes(value: Tensor) -> Tensor:
        return (value > 0).to(torch.uint8) + (value > -threshold) + (value > threshold)

    return _round(weights, feedback, group_size, scale_of, column_of, to_codes)


def round_residual(weights: Tensor, feedback: Feedback, bits: int, group_size: int) -> Rounded:
    """The uniform symmetric `bits`-bit residual of [K, rows] (overwritten by the error); codes are r + qm.

    Raises:
        ValueError: unless 2 ≤ bits ≤ 8.
    """
    if not 2 <= bits <= 8:
        raise ValueError(f"residual bits must be between 2 and 8, got {bits}")
    qm = float((1 << (bits - 1)) - 1)

    def scale_of(block: Tensor) -> Tensor:
        return (block.abs().amax(0) / qm).half()

    def column_of(target: Tensor, scale: Tensor, inverse: Tensor) -> Tensor:
        return (target * inverse).round_().clamp_(-qm, qm)

    return _round(weights, feedback, group_size, scale_of, column_of, lambda value: value + qm)
