"""Quantising one group of Linears that share an input: rotate, round the base, round what it leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.engine.quantize.bases import GivenBase
from twofold.engine.quantize.gptq import Rounded, base_levels, round_base, round_residual, subtract_base
from twofold.engine.quantize.hessian import Feedback, Hessian, mix
from twofold.engine.quantize.lloyd_max import Levels
from twofold.engine.quantize.options import SLICE_ROWS
from twofold.engine.quantize.rotation import Rotation, make_mix, make_signs, rotation
from twofold.profiles.model_spec import LinearGroup

GROUP_SIZE = 128

BASE_DAMPING, RESIDUAL_DAMPING = 0.1, 0.03
"""Part of the mean diagonal added to the Hessians, where the recipe has 0.01 with more tokens.

Feedback that is fitted to few tokens overfits, and the base's is large. Held-out output error of SmolLM2's layers 2,
12, 22 and 28, base and base + residual (in units of int8 g32's): 8,192 tokens with 0.01 and 0.01: 0.0323 and 1.75;
with 0.1 and 0.03: 0.0305 and 1.59; 26,234 tokens: 0.0284 and 1.48, 0.0280 and 1.40.
"""

OTHER_STREAM = 0.5
"""Weight of a token of the other stream in a Hessian.

The base wants the inputs of the quantised prefix, the residual those of the original model. The two differ less than
few tokens differ from the truth, and the streams read different texts, so each is the other's best regulariser: twice
the tokens for no extra pass.
"""

FillHessian = Callable[[Hessian, Rotation], None]
"""Adds every calibration row of the group's input, rotated, to a Hessian."""
BaseOf = Callable[[Tensor], Rounded]
"""Rotated weights [K, rows], which become the error → their base."""


@dataclass(frozen=True, slots=True)
class GroupRotations:
    """Signs of a group: its input's, and every member's output's (None for the head, whose rows stay addressable)."""

    input_signs: NDArray[np.int8]
    output_signs: tuple[NDArray[np.int8], ...] | None
    input: Rotation
    outputs: tuple[Rotation | None, ...]


def make_rotations(
    seed: int, group: LinearGroup, *, is_head: bool, device: torch.device | str = "cpu"
) -> GroupRotations:
    """The rotations of a group, the same for the same seed."""
    input_signs = make_signs(seed, f"{group.name}.input", group.in_features)
    r_in = rotation(input_signs, make_mix(group.in_features), device)
    if is_head:
        return GroupRotations(input_signs, None, r_in, (None,) * len(group.members))
    signs = tuple(make_signs(seed, f"{m.name}.output", m.out_features) for m in group.members)
    outputs = tuple(rotation(s, make_mix(m.out_features), device) for s, m in zip(signs, group.members, strict=True))
    return GroupRotations(input_signs, signs, r_in, outputs)


@dataclass(frozen=True, slots=True)
class QuantizedGroup:
    """Codes u8 [K, rows] and scales fp16 [n_groups, rows] of base and residual, members' rows one after another."""

    base: Rounded
    residual_codes: Tensor
    residual_scales: Tensor
    base_error: float
    residual_error: float


def rotated(weights: list[Tensor], rotations: GroupRotations) -> Tensor:
    """R_o·W·R_iᵀ of every member [out, K], transposed and side by side: [K, rows]."""
    parts = []
    for weight, r_out in zip(weights, rotations.outputs, strict=True):
        turned = rotations.input.apply(weight).T.contiguous()
        parts.append(turned if r_out is None else r_out.apply(turned))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def unrotated(group: LinearGroup, turned: Tensor, rotations: GroupRotations) -> dict[str, Tensor]:
    """The inverse of `rotated`: member name → [out, K]."""
    sizes = [member.out_features for member in group.members]
    result = {}
    for member, part, r_out in zip(group.members, turned.split(sizes, dim=1), rotations.outputs, strict=True):
        plain = part if r_out is None else r_out.undo(part)
        result[member.name] = rotations.input.undo(plain.T.contiguous())
    return result


def quantize_group(
    group: LinearGroup,
    weights: Mapping[str, Tensor],
    rotations: GroupRotations,
    levels: Levels,
    bits: int,
    fill_base: FillHessian,
    fill_residual: FillHessian,
    on_base: Callable[[dict[str, Tensor]], None] | None = None,
    given: GivenBase | None = None,
) -> QuantizedGroup:
    """Base against the quantised prefix's Hessian, residual against the original model's, each with a share of the
    other (`OTHER_STREAM`).

    `on_base` receives the base's weights [out, K] in the original basis, by member. With a base `given` only the
    residual is rounded, against what that base leaves.
    """
    turned = rotated([weights[member.name] for member in group.members], rotations)
    for_base, for_residual = _hessians(group, rotations, fill_base, fill_residual)
    if given is None:
        base_of = _base_rounder(for_base, levels)
    else:
        base_of = functools.partial(subtract_base, base=given, levels=levels, group_size=GROUP_SIZE)

    def told(base_error: Tensor) -> None:
        if on_base is not None:
            on_base(_base_weights(group, weights, base_error, rotations))

    return _quantize_rows(turned, base_of, for_residual.factor(RESIDUAL_DAMPING), bits, told)


def quantize_base(
    group: LinearGroup,
    weights: Mapping[str, Tensor],
    rotations: GroupRotations,
    levels: Levels,
    fill_base: FillHessian,
    fill_residual: FillHessian,
    on_base: Callable[[dict[str, Tensor]], None],
) -> GivenBase:
    """The base alone, the same that `quantize_group` makes."""
    turned = rotated([weights[member.name] for member in group.members], rotations)
    for_base, _ = _hessians(group, rotations, fill_base, fill_residual)
    base = _base_rounder(for_base, levels)(turned)
    on_base(_base_weights(group, weights, base.error, rotations))
    return base_levels(base, levels)


def _base_weights(
    group: LinearGroup, weights: Mapping[str, Tensor], base_error: Tensor, rotations: GroupRotations
) -> dict[str, Tensor]:
    """The base's weights [out, K] in the original basis, by member."""
    left = unrotated(group, base_error, rotations)
    return {name: weights[name] - error for name, error in left.items()}


def quantize_slices(
    group: LinearGroup,
    rows_of: Callable[[int, int], Tensor],
    rotations: GroupRotations,
    levels: Levels,
    bits: int,
    fill_base: FillHessian,
    fill_residual: FillHessian,
    slice_rows: int = SLICE_ROWS,
) -> Iterator[tuple[int, QuantizedGroup]]:
    """Like `quantize_group` for one member whose outputs are not rotated: (first row, its slice), slice after slice.

    Rows are rounded independently under one Hessian, so a head of any vocabulary needs the memory of one slice.
    `rows_of(start, stop)` reads weights [stop − start, K].
    """
    (member,) = group.members
    if rotations.outputs != (None,):
        raise ValueError(f"{group.name}: rows of rotated outputs depend on each other")
    for_base, for_residual = _hessians(group, rotations, fill_base, fill_residual)
    base_of, feedback = _base_rounder(for_base, levels), for_residual.factor(RESIDUAL_DAMPING)
    for start in range(0, member.out_features, slice_rows):
        stop = min(start + slice_rows, member.out_features)
        yield start, _quantize_rows(rotated([rows_of(start, stop)], rotations), base_of, feedback, bits)


def _hessians(
    group: LinearGroup, rotations: GroupRotations, fill_base: FillHessian, fill_residual: FillHessian
) -> tuple[Hessian, Hessian]:
    """Of the base and of the residual, each with its share of the other's inputs."""
    device = rotations.input.signs.device
    for_base, for_residual = Hessian(group.in_features, device), Hessian(group.in_features, device)
    fill_base(for_base, rotations.input)
    fill_residual(for_residual, rotations.input)
    mix(for_base, for_residual, OTHER_STREAM)
    return for_base, for_residual


def _base_rounder(hessian: Hessian, levels: Levels) -> BaseOf:
    feedback = hessian.factor(BASE_DAMPING)
    return functools.partial(round_base, feedback=feedback, levels=levels, group_size=GROUP_SIZE)


def _quantize_rows(
    turned: Tensor,
    base_of: BaseOf,
    feedback: Feedback,
    bits: int,
    on_base_error: Callable[[Tensor], None] | None = None,
) -> QuantizedGroup:
    """Base and rounded residual of rotated weights [K, rows], which are used up."""
    energy = max(float(turned.square().mean()), 1e-30)
    base = base_of(turned)
    base_error = float(base.error.square().mean()) / energy
    if on_base_error is not None:
        on_base_error(base.error)
    residual = round_residual(base.error, feedback, bits, GROUP_SIZE)
    residual_error = float(residual.error.square().mean()) / energy
    return QuantizedGroup(base, residual.codes, residual.scales, base_error, residual_error)
