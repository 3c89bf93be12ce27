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
def gelu_mul(gate: npt.NDArray[np.float32], up: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None: ...
def add(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None: ...
def embed(table: npt.NDArray[np.uint16], tokens: npt.NDArray[np.int64], out: npt.NDArray[np.float32]) -> None: ...
def argmax(logits: npt.NDArray[np.float32], out: npt.NDArray[np.int64]) -> None: ...
def top_k(logits: npt.NDArray[np.float32], out: npt.NDArray[np.int64]) -> None: ...
def attention(
    q: npt.NDArray[np.float32],
    k_cache: npt.NDArray[np.uint8],
    v_cache: npt.NDArray[np.uint8],
    n_committed: int,
    parents: npt.NDArray[np.int32],
    scale: float,
    window: int,
    k_type: int,
    v_type: int,
    first_position: int,
    out: npt.NDArray[np.float32],
) -> None: ...
def kv_write(x: npt.NDArray[np.float32], cache: npt.NDArray[np.uint8], first_slot: int, kind: int) -> None: ...
def round_columns(
    weights: npt.NDArray[np.float32],
    target: npt.NDArray[np.float32],
    feedback: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    inner: int,
    highest: int,
    levels: npt.NDArray[np.int8],
) -> None: ...

class Workspace:
    def __init__(self) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def profile(self, on: bool) -> None: ...
    def spent(self) -> dict[str, tuple[float, int]]: ...

class Tape:
    def __init__(self, workspace: Workspace, rows: int, has_tokens: bool) -> None: ...
    def embed(self, table: npt.NDArray[np.uint16], scale: float, out: npt.NDArray[np.float32]) -> None: ...
    def rms_norm(
        self, x: npt.NDArray[np.float32], weight: npt.NDArray[np.float32], eps: float, out: npt.NDArray[np.float32]
    ) -> None: ...
    def split_linear(
        self, weights: SplitLinear, label: str, x: npt.NDArray[np.float32], out: npt.NDArray[np.float32]
    ) -> None: ...
    def rope(
        self,
        x: npt.NDArray[np.float32],
        heads: int,
        cos: npt.NDArray[np.float32],
        sin: npt.NDArray[np.float32],
        filled: npt.NDArray[np.int64],
        out: npt.NDArray[np.float32],
    ) -> None: ...
    def kv_write(
        self,
        x: npt.NDArray[np.float32],
        cache: npt.NDArray[np.uint8],
        kind: int,
        first_position: npt.NDArray[np.int64],
    ) -> None: ...
    def attention(
        self,
        q: npt.NDArray[np.float32],
        heads: int,
        k_cache: npt.NDArray[np.uint8],
        v_cache: npt.NDArray[np.uint8],
        k_type: int,
        v_type: int,
        first_position: npt.NDArray[np.int64],
        scale: float,
        window: int,
        out: npt.NDArray[np.float32],
    ) -> None: ...
    def silu_mul(
        self, gate: npt.NDArray[np.float32], up: npt.NDArray[np.float32], out: npt.NDArray[np.float32]
    ) -> None: ...
    def gelu_mul(
        self, gate: npt.NDArray[np.float32], up: npt.NDArray[np.float32], out: npt.NDArray[np.float32]
    ) -> None: ...
    def add(self, x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None: ...
    def copy(self, x: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None: ...
    def run(
        self,
        tokens: npt.NDArray[np.int64] | None,
        parents: npt.NDArray[np.int32] | None,
        n_committed: int,
        use_residual: bool,
    ) -> None: ...
    @property
    def stages(self) -> int: ...

def isa() -> str: ...
def available_tiers() -> list[str]: ...
def force_isa(tier: str) -> None: ...
def set_threads(n_threads: int) -> None: ...
def threads() -> int: ...
