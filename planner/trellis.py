"""Bytes of Mirai S, a trellis code of two to three bits: the published package and llama.cpp's runtime tapes.

A row is cut into blocks; a block holds its first 16-bit state in full and of every later one the T new bits. The
runtime's tapes repeat the state in front of every packet, so that each warp can start on its own, and are larger.
Which matrix has which layout is the release's own choice: a file says it in its header, and the counts below are what
is published about the release for Qwen3.8-27B (97 matrices of V2T6, 166 of V4T8, 9 of V2T4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from twofold.profiles.model_spec import LayerSpec, ModelSpec

Layout = Literal["V4T8", "V2T6", "V2T4"]
STATE_BYTES = 2


@dataclass(frozen=True, slots=True)
class TrellisLayout:
    """`values` weights and `new_bits` bits a step; a block is `restart` columns (0: the whole row). `packet` is the
    runtime's (columns, bytes with its entry state); `scale_bytes` a row scale's in the package.
    """

    values: int
    new_bits: int
    restart: int
    packet: tuple[int, int]
    scale_bytes: int

    def row_bytes(self, columns: int) -> int:
        """Code bytes of one row in the package."""
        block = self.restart or columns
        return columns // block * (STATE_BYTES + -(-(block // self.values - 1) * self.new_bits // 8))

    def tape_bytes(self, columns: int) -> int:
        """Bytes of one row in the runtime's tapes."""
        width, size = self.packet
        return -(-columns // width) * size


LAYOUTS: dict[Layout, TrellisLayout] = {
    "V4T8": TrellisLayout(4, 8, 64, (64, 17), 4),
    "V2T6": TrellisLayout(2, 6, 0, (128, 50), 2),
    "V2T4": TrellisLayout(2, 4, 0, (64, 18), 2),
}

# Layouts of the release by the matrix's role: how many of each. Where the published totals leave a choice (attention
# gates against output projections, which are equally large), every choice has these bytes.
RELEASE: dict[str, dict[Layout, int]] = {
    "qkv": {"V2T6": 16},
    "gate": {"V2T6": 13, "V4T8": 3},
    "in_proj": {"V2T6": 44, "V4T8": 4},
    "gate_up": {"V2T6": 24, "V4T8": 37, "V2T4": 3},
    "down": {"V4T8": 61, "V2T4": 3},
    "out": {"V4T8": 61, "V2T4": 3},
}
RELEASED_FOR = ("qwen3_5", 64, 5120, 17408)
RELEASED_NAME = "qwen3.8-27b"
"""Architecture, layers, hidden and intermediate size of the model that the release is of, and its name's beginning."""
# bf16 gains and the fp32 gain of a training pass after the code; the runtime keeps their product, one fp32 a row.
GAIN_BYTES, POST_GAIN_BYTES, ROW_SCALE_BYTES = 2, 4, 4
# The embedding: a byte for four columns into a table of 256 vectors. The head: 3-bit codes. Both with a 4-bit scale
# index for 64 columns and a bf16 scale a row.
TABLE_SCALE_COLUMNS, TABLE_SCALE_BYTES = 128, 2
HEAD_TAPE = (128, 49)
CODEBOOK_BYTES = 65_536 * (4 + 2) * 4
EMBEDDING_TABLE_BYTES, LADDER_BYTES = 256 * 4, 16 * 2
ROPE_DIMENSIONS = 64


def is_released_for(spec: ModelSpec) -> bool:
    """Whether the published release is of this model."""
    shape = (spec.architecture, spec.n_layers, spec.hidden_size, spec.intermediate_size)
    return shape == RELEASED_FOR and spec.name.split("/")[-1].lower().startswith(RELEASED_NAME)


def embedding_row(columns: int) -> int:
    """Bytes of one row of the package's embedding."""
    return columns // 4 + columns // TABLE_SCALE_COLUMNS + TABLE_SCALE_BYTES


def head_row(columns: int) -> int:
    """Bytes of one row of the package's head."""
    return 3 * columns // 8 + columns // TABLE_SCALE_COLUMNS + TABLE_SCALE_BYTES


def package_table_bytes(spec: ModelSpec) -> int:
    """What the package stores once: codebooks, a rotation per width, the tables of embedding and head with their signs
    and ladders, and cosines and sines of every position (which are no weights).
    """
    tables = EMBEDDING_TABLE_BYTES + 2 * LADDER_BYTES + 2 * spec.hidden_size * 4
    rope = 2 * spec.context_length * ROPE_DIMENSIONS * 4
    return CODEBOOK_BYTES + rotation_bytes(spec) + tables + rope


def head_tape_bytes(spec: ModelSpec) -> int:
    """The head in the runtime: packets of 3-bit codes with their scale index, a row scale, signs and ladder."""
    width, size = HEAD_TAPE
    rows = spec.vocab_size * (spec.hidden_size // width * size + ROW_SCALE_BYTES)
    return rows + (spec.hidden_size + 16) * 4


def rotation_bytes(spec: ModelSpec) -> int:
    """Signs and mixers of every input width in the runtime."""
    return sum(_rotation_bytes(width) for width in _widths(spec))


def _widths(spec: ModelSpec) -> set[int]:
    return {group.in_features for layer in spec.layers for group in layer.groups}


def _rotation_bytes(width: int) -> int:
    """Signs in fp32, and an orthogonal matrix of what is left of the width without its powers of two."""
    odd = width // (width & -width)
    return (width + odd * odd) * 4


def _roles(layer: LayerSpec) -> Iterator[tuple[str, int, int, int]]:
    """(role, rows, columns, rows that the runtime keeps dense) of one layer's matrices."""
    for group in layer.groups:
        rows, columns = group.out_features, group.in_features
        role = group.name.rsplit(".", 1)[-1]
        if role == "qkv":
            # The query projection makes the output gate too; the release keeps the gate as a matrix of its own.
            gate = layer.n_heads * layer.v_head_dim
            yield "gate", gate, columns, 0
            rows -= gate
        if role == "in_proj":
            # The small gates are coded with the rest; the runtime decodes them to 16 bits.
            rows += layer.gate_weights // columns
            yield role, rows, columns, layer.gate_weights // columns
            continue
        yield ("out" if role in ("o", "out") else role), rows, columns, 0


@dataclass(frozen=True, slots=True)
class TrellisBytes:
    """Sums over the coded matrices: of the package (codes, scales and gains, gains of the training pass), and of the
    runtime (tapes, which leave `dense_weights` in 16 bits, and row scales).
    """

    weights: int = 0
    codes: int = 0
    scales_and_gains: int = 0
    post_gains: int = 0
    tapes: int = 0
    row_scales: int = 0
    dense_weights: int = 0


def trellis_bytes(spec: ModelSpec) -> TrellisBytes:
    """What the released mixture takes for `spec`'s matrices.

    Raises:
        ValueError: the release is of another model.
    """
    if not is_released_for(spec):
        raise ValueError(f"Mirai S is not released for {spec.name}")
    by_role: dict[str, list[tuple[int, int, int]]] = {}
    for layer in spec.layers:
        for role, rows, columns, dense in _roles(layer):
            by_role.setdefault(role, []).append((rows, columns, dense))
    parts = [_matrix(one, layout) for role, found in by_role.items() for one, layout in _with_layouts(role, found)]
    return TrellisBytes(*(sum(values) for values in zip(*parts, strict=True)))


def _with_layouts(role: str, matrices: Sequence[tuple[int, int, int]]) -> Iterator[tuple[tuple[int, int, int], Layout]]:
    layouts = [layout for layout, n in RELEASE[role].items() for _ in range(n)]
    return zip(matrices, layouts, strict=True)


def _matrix(matrix: tuple[int, int, int], name: Layout) -> tuple[int, ...]:
    """The fields of `TrellisBytes` for one matrix."""
    rows, columns, dense = matrix
    layout, kept = LAYOUTS[name], matrix[0] - dense
    return (
        rows * columns,
        rows * layout.row_bytes(columns),
        rows * (layout.scale_bytes + GAIN_BYTES),
        rows * POST_GAIN_BYTES,
        kept * layout.tape_bytes(columns),
        kept * ROW_SCALE_BYTES,
        dense * columns,
    )
