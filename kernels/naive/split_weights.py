"""The weights of one split Linear group, as the kernels take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from twofold.kernels.naive.arrays import F16, F32, I8, U8, check
from twofold.kernels.naive.packing import BASE_BYTES, blocks, residual_offset, tiles
from twofold.kernels.naive.rotation import block_width

ExchangeDtype = Literal["float32", "float16", "bfloat16"]
EXCHANGE_DTYPES: tuple[ExchangeDtype, ...] = get_args(ExchangeDtype)
MAX_GROUP_SIZE = 256  # unsigned 8-bit codes times 254 * q0 + q1 over a group stay inside int32


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SplitWeights:
    """Linears that share an input, stacked; arrays may be memory maps and must not change.

    `member_rows` are the unpadded outputs of each member; each is padded to whole tiles of 16 rows in the codes and
    scales. `levels` int8 [4] within +-127. `mix_in` [m, m] belongs to the input's dimension, `mix_out[i]` to member i's
    (None: blocks are not mixed). `output_signs` None: the outputs are not rotated. `bias` fp32, all members' outputs.

    Raises:
        ValueError: when shapes, dtypes or numbers do not fit each other.
    """

    in_features: int
    member_rows: tuple[int, ...]
    base_codes: U8
    base_scales: F16
    levels: I8
    residual_codes: U8
    residual_scales: F16
    residual_bits: int
    group_size: int
    base_planes: int
    residual_planes: int
    exchange_dtype: ExchangeDtype
    input_signs: I8
    output_signs: I8 | None = None
    mix_in: F32 | None = None
    mix_out: tuple[F32 | None, ...] = ()
    bias: F32 | None = None

    def __post_init__(self) -> None:
        if self.in_features < 1 or not self.member_rows or min(self.member_rows) < 1:
            raise ValueError(f"{self.in_features} inputs and members of {self.member_rows} rows: all must be positive")
        if not 16 <= self.group_size <= MAX_GROUP_SIZE or self.group_size % 16:
            raise ValueError(f"a scale group is a multiple of 16 up to {MAX_GROUP_SIZE} inputs, got {self.group_size}")
        if self.base_planes not in (1, 2) or self.residual_planes not in (1, 2):
            raise ValueError(f"one or two planes, got {self.base_planes} and {self.residual_planes}")
        if self.exchange_dtype not in EXCHANGE_DTYPES:
            raise ValueError(f"exchange dtype {self.exchange_dtype!r} is none of {', '.join(EXCHANGE_DTYPES)}")
        self._check_codes()
        self._check_rotations()

    def _check_codes(self) -> None:
        residual_offset(self.residual_bits)
        n_tiles, n_blocks, n_groups = self.n_tiles, blocks(self.in_features), self.n_groups
        check(self.levels, np.int8, (4,), "levels")
        if int(self.levels.min()) < -127:
            raise ValueError(f"levels are within +-127, got {self.levels.tolist()}")
        check(self.base_codes, np.uint8, (n_tiles, n_blocks, BASE_BYTES), "base_codes")
        check(self.base_scales, np.float16, (n_tiles, n_groups, 16), "base_scales")
        check(self.residual_codes, np.uint8, (n_tiles, n_blocks, 32 * self.residual_bits), "residual_codes")
        check(self.residual_scales, np.float16, (n_tiles, n_groups, 16), "residual_scales")

    def _check_rotations(self) -> None:
        check(self.input_signs, np.int8, (self.in_features,), "input_signs")
        _check_mix(self.mix_in, self.in_features, "mix_in")
        if self.output_signs is not None:
            check(self.output_signs, np.int8, (self.out_features,), "output_signs")
        if self.mix_out:
            if len(self.mix_out) != len(self.member_rows):
                raise ValueError(f"mix_out has {len(self.mix_out)} entries for {len(self.member_rows)} members")
            for mix, rows in zip(self.mix_out, self.member_rows, strict=True):
                _check_mix(mix, rows, "mix_out")
        if self.bias is not None:
            check(self.bias, np.float32, (self.out_features,), "bias")

    @property
    def out_features(self) -> int:
        return sum(self.member_rows)

    @property
    def n_tiles(self) -> int:
        return sum(tiles(rows) for rows in self.member_rows)

    @property
    def n_groups(self) -> int:
        return -(-self.in_features // self.group_size)


def _check_mix(mix: F32 | None, dimension: int, name: str) -> None:
    if mix is not None:
        m = dimension // block_width(dimension)
        check(mix, np.float32, (m, m), name)
