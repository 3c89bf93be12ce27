"""The draft in floating point, differentiable in its scales: a base's products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from twofold.engine.quantize.bases import GivenBase
from twofold.engine.quantize.group import GROUP_SIZE, GroupRotations
from twofold.engine.torch_ops import TorchOps
from twofold.profiles.model_spec import LinearGroup, ModelSpec

DEPTH = 1
"""Draft levels since the verified text: behind it only a position's own K and V are the draft's. Most drafted tokens
are at this depth, and recall there bounds what deeper ones can be worth.
"""


class _BaseProduct(torch.autograd.Function):
    """x [rows, K] times a base [K, out]; its fp32 weights are made again for the gradient instead of kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scales: Tensor, levels: Tensor) -> Tensor:
        ctx.save_for_backward(x, scales, levels)
        return x @ GivenBase(levels, scales).values(GROUP_SIZE)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, scales, levels = ctx.saved_tensors
        (of_result,) = gradients
        of_x = of_result @ GivenBase(levels, scales).values(GROUP_SIZE).T
        of_weights = x.T @ of_result
        of_weights *= levels
        of_scales = torch.stack([block.sum(0) for block in of_weights.split(GROUP_SIZE)])
        return of_x, of_scales, None


class DraftOps(TorchOps):
    """`TorchOps` whose decoder Linears are bases.

    Args:
        rotations: of a group. base: a group's levels and scales fp32 [n_groups, rows], which may want a gradient.
        The others are `TorchOps`'.
    """

    def __init__(
        self,
        model: ModelSpec,
        weight: Callable[[str], Any],
        *,
        rotations: Callable[[LinearGroup], GroupRotations],
        base: Callable[[LinearGroup], GivenBase],
        **options: Any,
    ) -> None:
        super().__init__(model, weight, **options)
        self._rotations, self._base = rotations, base

    def linears(self, x: Tensor, group: LinearGroup) -> tuple[Tensor, ...]:
        if group.name == self.model.head.name:
            return super().linears(x, group)
        rotations, base = self._rotations(group), self._base(group)
        turned: Tensor = _BaseProduct.apply(rotations.input.apply(x), base.scales, base.levels)
        products = []
        sizes = [member.out_features for member in group.members]
        for member, part, r_out in zip(group.members, turned.split(sizes, dim=1), rotations.outputs, strict=True):
            y = part if r_out is None else r_out.undo(part.contiguous())
            products.append(y + self._load(f"{member.name}.bias") if member.bias else y)
        return tuple(products)
