"""Array types of the kernels, and the checks that every operation makes of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]


_NATIVE: dict[type[np.generic], np.dtype[Any]] = {
    kind: np.dtype(kind) for kind in (np.float16, np.float32, np.int8, np.int32, np.int64, np.uint8)
}


def check(array: Array, dtype: type[np.generic], shape: tuple[int | None, ...], name: str) -> None:
    """Raise ValueError unless `array` has this dtype and shape (None: any length)."""
    if array.shape == shape and array.dtype is _NATIVE.get(dtype):
        return  # the usual case, many times a token
    fits = array.ndim == len(shape) and all(
        want is None or have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"{name} must be {np.dtype(dtype)} [{wanted}], got {array.dtype} {list(array.shape)}")


def result(value: F32, out: F32 | None) -> F32:
    """`value`, stored to `out` where the caller brought a buffer."""
    if out is None:
        return value
    check(out, np.float32, value.shape, "out")
    out[...] = value
    return out
