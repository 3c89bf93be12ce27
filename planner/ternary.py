"""Bytes of PrismML's ternary types of GGUF files: PTQ1_0, five trits to a byte, and PQ2_0, two bits each.

Both are blocks of 128 weights with one fp16 scale. Every projection, the head and the embedding are ternary; the small
gates of recurrent layers are bf16, everything else fp32. A draft head grafted onto such a file is a copy from another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twofold.planner import codecs
from twofold.profiles.model_spec import ModelSpec

TernaryType = Literal["PTQ1_0", "PQ2_0"]
BLOCK = 128
BLOCK_BYTES: dict[TernaryType, int] = {"PTQ1_0": 28, "PQ2_0": 34}
SCALE_BYTES = 2
TERNARY: tuple[TernaryType, ...] = ("PTQ1_0", "PQ2_0")
GRAFT_BYTES = (351_008_768, 351_008_768 + 715_161_600)
"""The draft head that is grafted onto Qwen3.8-27B's ternary file, without and with an embedding of its own (headers of
the two published files).
"""


@dataclass(frozen=True, slots=True)
class TernaryBytes:
    """Weights and bytes of the decoder's matrices, of head and embedding (each), and of what is not ternary."""

    matrix_weights: int
    matrices: int
    table_weights: int
    table: int
    gates: int
    other_weights: int
    tables: int

    @property
    def total(self) -> int:
        """All tensors of a file without a draft head."""
        return self.matrices + self.tables * self.table + self.gates * 2 + self.other_weights * 4


def ternary_row(columns: int, kind: TernaryType) -> int:
    """Bytes of one row, its last block whole."""
    return -(-columns // BLOCK) * BLOCK_BYTES[kind]


def ternary_bytes(spec: ModelSpec, kind: TernaryType) -> TernaryBytes:
    """What `spec` takes in such a file."""
    members = [member for layer in spec.layers for group in layer.groups for member in group.members]
    norms = codecs.norm_bytes(spec) // codecs.F32_BYTES
    dense = sum(codecs.dense_bytes(spec, layer) // codecs.F16_BYTES for layer in spec.layers)
    gates = sum(layer.gate_weights for layer in spec.layers)
    return TernaryBytes(
        matrix_weights=sum(member.n_weights for member in members),
        matrices=sum(ternary_row(one.in_features, kind) * one.out_features * one.copies for one in members),
        table_weights=spec.vocab_size * spec.hidden_size,
        table=ternary_row(spec.hidden_size, kind) * spec.vocab_size,
        gates=gates,
        other_weights=norms + dense - gates,
        tables=1 if spec.tie_embeddings else 2,
    )
