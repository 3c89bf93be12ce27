"""Quantising one group of Linears that share an input: rotate, round the base, round what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.engine.quantize.gptq import Rounded, round_base, round_residual
from twofold.engine.quantize.hessian import Hessian
from twofold.engine.quantize.lloyd_max import Levels
from twofold.engine.quantize.rotation import Rotation, make_mix, make_signs, rotation
from twofold.profiles.model_spec import LinearGroup

GROUP_SIZE = 128

BASE_DAMPING, RESIDUAL_DAMPING = 0.1, 0.03
"""Part of the mean diagonal added to the Hessians, where the recipe has 0.01 with more tokens.

Feedback that is fitted to few tokens overfits, and the base's is large. On held-out text (SmolLM2, 8192 tokens, layers
1 and 8) 0.1 against 0.01 for the base: its output error changes by +2 % to −15 %, the verifier's by −3 % to −15 %; 1.0
makes the base worse again. For the residual 0.03 against 0.01: −2 %.
"""

FillHessian = Callable[[Hessian, Rotation], None]
"""Adds every calibration row of the group's input, rotated, to a Hessian."""


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
) -> QuantizedGroup:
    """Base against the quantised prefix's Hessian, residual against the original model's.

    At most one Hessian is alive at a time. `on_base` receives the base's weights [out, K] in the original basis, by
    member.
    """
    device = rotations.input.signs.device
    turned = rotated([weights[member.name] for member in group.members], rotations)
    energy = float(turned.square().mean())

    hessian = Hessian(group.in_features, device)
    fill_base(hessian, rotations.input)
    base = round_base(turned, hessian.factor(BASE_DAMPING), levels, GROUP_SIZE)
    base_error = float(base.error.square().mean()) / max(energy, 1e-30)
    if on_base is not None:
        left = unrotated(group, base.error, rotations)
        on_base({name: weights[name] - error for name, error in left.items()})
        del left

    hessian = Hessian(group.in_features, device)
    fill_residual(hessian, rotations.input)
    residual = round_residual(base.error, hessian.factor(RESIDUAL_DAMPING), bits, GROUP_SIZE)
    residual_error = float(residual.error.square().mean()) / max(energy, 1e-30)
    return QuantizedGroup(base, residual.codes, residual.scales, base_error, residual_error)
