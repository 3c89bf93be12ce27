"""Weight-only baselines that give a KL its scale: 8-bit groups of 32, and the noise floor of bf16 rounding.

A KL means little alone: it is reported next to that of Q8_0-class quantisation, and next to what moving every bf16
weight by at most one unit in the last place does.
"""

from __future__ import annotations

import torch
from torch import Tensor

INT8_GROUP = 32


def int8_g32(weight: Tensor) -> Tensor:
    """Symmetric int8 with one fp16 scale per 32 inputs (Q8_0's grid): [out, in] fp32 → [out, in] fp32.

    The last group of a row is shorter where `in` is no multiple of 32.
    """
    rows, inputs = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -inputs % INT8_GROUP)).view(rows, -1, INT8_GROUP)
    scale = (padded.abs().amax(dim=-1, keepdim=True) / 127).half().float()
    codes = (padded / torch.where(scale > 0, scale, 1)).round().clamp(-127, 127)
    return (codes * scale).view(rows, -1)[:, :inputs]


def one_ulp_noise(weight: Tensor, generator: torch.Generator) -> Tensor:
    """bf16 weights, each moved by −1, 0 or +1 unit in the last place with equal chance: fp32 in, fp32 (bf16 values)
    out.

    The step is taken on the magnitude's bit pattern, so it is a true neighbour also across a power of two; zero stays
    zero.
    """
    rounded = weight.bfloat16()
    bits = rounded.view(torch.int16)
    step = torch.randint(-1, 2, bits.shape, generator=generator, dtype=torch.int16)
    moved = (bits + torch.where(rounded == 0, torch.zeros_like(step), step)).view(torch.bfloat16)
    return moved.float()
