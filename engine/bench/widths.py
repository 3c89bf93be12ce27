"""A checkpoint's weights with residuals of another width: random codes in a mapped file, as a real checkpoint's lie."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from twofold.kernels.naive.packing import residual_offset
from twofold.kernels.naive.split_weights import SplitWeights


@contextmanager
def with_width(groups: Mapping[str, SplitWeights], bits: int, seed: int = 0) -> Iterator[dict[str, SplitWeights]]:
    """`groups` with `bits` wide residuals, of the size of the old ones' in value. For timing only: they mean nothing.

    Raises:
        OSError: there is no room for the codes in the temporary folder.
    """
    shapes = {name: (*one.residual_codes.shape[:2], 32 * bits) for name, one in groups.items()}
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(prefix="twofold-widths-") as folder:
        path = Path(folder) / "codes"
        with path.open("wb") as file:
            for size in sizes.values():
                file.write(rng.bytes(size))
        codes = np.memmap(path, np.uint8, "r")
        found, at = {}, 0
        for name, one in groups.items():
            shrunk = residual_offset(one.residual_bits) / residual_offset(bits)
            found[name] = replace(
                one,
                residual_bits=bits,
                residual_codes=np.asarray(codes[at : at + sizes[name]]).reshape(shapes[name]),
                residual_scales=(one.residual_scales * np.float16(shrunk)).astype(np.float16),
            )
            at += sizes[name]
        yield found
