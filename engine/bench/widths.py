"""A checkpoint's weights with residuals of another width: random codes in a mapped file, as a real checkpoint's lie."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.kernels.naive.packing import TILE_ROWS, pack_residual, residual_offset
from twofold.kernels.naive.split_weights import SplitWeights


@contextmanager
def with_width(groups: Mapping[str, SplitWeights], bits: int, seed: int = 0) -> Iterator[dict[str, SplitWeights]]:
    """`groups` with `bits` wide residuals, of the size of the old ones' in value. For timing only: they mean nothing.

    Raises:
        OSError: there is no room for the codes in the temporary folder.
    """
    rng = np.random.default_rng(seed)
    made: dict[tuple[int, int], NDArray[np.uint8]] = {}
    for one in groups.values():
        shape = (one.n_tiles * TILE_ROWS, one.in_features)
        if shape not in made:
            made[shape] = pack_residual(rng.integers(0, 2 * residual_offset(bits) + 1, shape, np.uint8), bits)
    with tempfile.TemporaryDirectory(prefix="twofold-widths-") as folder:
        path = Path(folder) / "codes"
        with path.open("wb") as file:
            for i, one in enumerate(groups.values()):
                np.roll(made[one.n_tiles * TILE_ROWS, one.in_features], i, 0).tofile(file)
        codes = np.memmap(path, np.uint8, "r")
        found, at = {}, 0
        for name, one in groups.items():
            own = made[one.n_tiles * TILE_ROWS, one.in_features]
            shrunk = residual_offset(one.residual_bits) / residual_offset(bits)
            found[name] = replace(
                one,
                residual_bits=bits,
                residual_codes=np.asarray(codes[at : at + own.size]).reshape(own.shape),
                residual_scales=(one.residual_scales * np.float16(shrunk)).astype(np.float16),
            )
            at += own.size
        yield found
