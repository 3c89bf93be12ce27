from typing import Any

import numpy as np
import numpy.typing as npt

def cpu_features() -> dict[str, Any]: ...
def active_tier() -> str: ...
def build_commit() -> str: ...

class ReadMeter:
    def __init__(self, bytes: int, cpus: list[int]) -> None: ...
    def sample(self) -> float: ...
    @property
    def bytes(self) -> int: ...
    @property
    def pinned(self) -> bool: ...
    @property
    def checksum(self) -> int: ...
    @property
    def expected_checksum(self) -> int: ...

class SplitLinear:
    def __init__(
        self,
        in_features: int,
        member_rows: list[int],
        base_codes: npt.NDArray[np.uint8],
        base_scales: npt.NDArray[np.uint16],
        levels: list[int],
        residual_codes: npt.NDArray[np.uint8],
        residual_scales: npt.NDArray[np.uint16],
        residual_bits: int,
        group_size: int,
        base_planes: int,
        residual_planes: int,
        exchange: int,
        input_signs: npt.NDArray[np.int8],
        output_signs: npt.NDArray[np.int8] | None,
        mix_in: npt.NDArray[np.float32] | None,
        mix_out: list[npt.NDArray[np.float32] | None],
        bias: npt.NDArray[np.float32] | None,
    ) -> None: ...
    def __call__(self, x: npt.NDArray[np.float32], use_residual: bool, out: npt.NDArray[np.float32]) -> None: ...

def rms_norm(
    x: npt.NDArray[np.float32], weight: npt.NDArray[np.float32], eps: float, out: npt.NDArray[np.float32]
) -> None: ...
def rope(
    x: npt.NDArray[np.float32],
    cos: npt.NDArray[np.float32],
    sin: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None: ...
def silu_mul(gate: npt.NDArray[np.float32], up: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None: ...
def add(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None: ...
def embed(table: npt.NDArray[np.uint16], tokens: npt.NDArray[np.int64], out: npt.NDArray[np.float32]) -> None: ...
def argmax(logits: npt.NDArray[np.float32], out: npt.NDArray[np.int64]) -> None: ...
def attention(
    q: npt.NDArray[np.float32],
    k_cache: npt.NDArray[np.uint16],
    v_cache: npt.NDArray[np.uint16],
    n_committed: int,
    parents: npt.NDArray[np.int32],
    scale: float,
    window: int,
    out: npt.NDArray[np.float32],
) -> None: ...
def round_columns(
    weights: npt.NDArray[np.float32],
    target: npt.NDArray[np.float32],
    feedback: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    inner: int,
    highest: int,
    levels: npt.NDArray[np.int8],
) -> None: ...
def isa() -> str: ...
def available_tiers() -> list[str]: ...
def force_isa(tier: str) -> None: ...
def set_threads(n_threads: int) -> None: ...
def threads() -> int: ...
