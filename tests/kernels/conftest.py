"""Every implementation that this machine can run, and random split weights of any shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np
import pytest

from twofold.kernels import cpu
from twofold.kernels.naive import packing
from twofold.kernels.naive.rotation import block_width, needs_mix
from twofold.kernels.naive.split_weights import SplitWeights

TIERS: list[str] = [] if cpu.missing_reason() else cpu.native().available_tiers()


@pytest.fixture(params=TIERS or [pytest.param("", marks=pytest.mark.skip(f"no native module: {cpu.missing_reason()}"))])
def native_ops(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """`twofold.kernels.cpu.ops` under each tier of this machine in turn."""
    from twofold.kernels.cpu import ops

    native = cpu.native()
    before = native.threads()
    native.force_isa(request.param)
    assert native.isa() == request.param
    yield ops
    native.force_isa("")
    native.set_threads(before)


def orthogonal(dimension: int, rng: np.random.Generator) -> np.ndarray | None:
    if not needs_mix(dimension):
        return None
    m = dimension // block_width(dimension)
    return np.linalg.qr(rng.normal(size=(m, m)))[0].astype(np.float32)


def signs(n: int, rng: np.random.Generator) -> np.ndarray:
    return (rng.integers(0, 2, n) * 2 - 1).astype(np.int8)


def random_weights(
    in_features: int,
    member_rows: tuple[int, ...],
    *,
    bits: int = 6,
    planes: tuple[int, int] = (2, 2),
    group_size: int = 128,
    exchange: str = "float32",
    rotated_outputs: bool = True,
    bias: bool = False,
    seed: int = 0,
) -> SplitWeights:
    rng = np.random.default_rng(seed)
    n_groups = -(-in_features // group_size)
    parts = []
    for rows in member_rows:
        base = packing.pack_base(rng.integers(0, 4, (rows, in_features), dtype=np.uint8))
        highest = 2 * packing.residual_offset(bits)
        residual = packing.pack_residual(rng.integers(0, highest + 1, (rows, in_features), dtype=np.uint8), bits)
        scales = [
            packing.pack_scales(rng.normal(scale=size, size=(rows, n_groups)).astype(np.float16))
            for size in (2e-3, 2e-4)
        ]
        parts.append((base, scales[0], residual, scales[1]))
    base_codes, base_scales, residual_codes, residual_scales = (np.concatenate(p) for p in zip(*parts, strict=True))
    outputs = sum(member_rows)
    return SplitWeights(
        in_features=in_features,
        member_rows=member_rows,
        base_codes=base_codes,
        base_scales=base_scales,
        levels=np.array([-127, -38, 38, 127], np.int8),
        residual_codes=residual_codes,
        residual_scales=residual_scales,
        residual_bits=bits,
        group_size=group_size,
        base_planes=planes[0],
        residual_planes=planes[1],
        exchange_dtype=exchange,  # type: ignore[arg-type]
        input_signs=signs(in_features, rng),
        output_signs=signs(outputs, rng) if rotated_outputs else None,
        mix_in=orthogonal(in_features, rng),
        mix_out=tuple(orthogonal(rows, rng) for rows in member_rows) if rotated_outputs else (),
        bias=rng.normal(size=outputs).astype(np.float32) if bias else None,
    )


@pytest.fixture
def make_weights() -> Callable[..., SplitWeights]:
    return random_weights


class Guarded:
    """A NaN-filled fp32 buffer between guard values: finds what is not written, and what is written too far."""

    def __init__(self, shape: tuple[int, ...], margin: int = 64) -> None:
        size = int(np.prod(shape))
        self._whole = np.full(size + 2 * margin, -1.5, np.float32)
        self.array = self._whole[margin : margin + size].reshape(shape)
        self.array[...] = np.nan
        self._margin = margin

    def check(self) -> np.ndarray:
        assert (self._whole[: self._margin] == -1.5).all(), "written before the buffer"
        assert (self._whole[-self._margin :] == -1.5).all(), "written behind the buffer"
        return self.array


@pytest.fixture
def guarded() -> type[Guarded]:
    return Guarded


@pytest.fixture
def same_bits() -> Callable[[np.ndarray, np.ndarray], None]:
    """Equality to the bit, NaNs of any payload being equal."""

    def check(actual: np.ndarray, expected: np.ndarray) -> None:
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        if actual.tobytes() == expected.tobytes():
            return
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(actual[known].view(np.uint32), expected[known].view(np.uint32))

    return check
