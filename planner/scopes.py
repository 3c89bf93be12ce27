"""Bits per weight by scope: what is counted decides whether a file is called one of 2.4 or of 2.5 bits.

From the codes alone to the whole file; each scope holds the one before it. Weights are those that the scope codes.
"""

from __future__ import annotations

from dataclasses import dataclass

from twofold.planner import codecs, ternary, trellis
from twofold.planner.llama_cpp import QUANTS, member_codec
from twofold.profiles.figures import Figure, reasoned
from twofold.profiles.model_spec import LinearSpec, ModelSpec

TWOFOLD, MIRAI_S = "twofold", "Mirai S"
CODECS = (TWOFOLD, *QUANTS, MIRAI_S, *ternary.TERNARY)

# Bits of codes and minimums-free rest of a GGUF block: what a weight takes without its block's scales.
_CODE_BITS = {"Q8_0": 8, "Q6_K": 6, "Q4_K": 4, "Q5_0": 5, "Q5_1": 5, "Q4_0": 4, "IQ4_NL": 4, "F16": 16}
# What the published package has beside its tensors: 8 bytes of length and the header of about 1,460 tensors.
_PACKAGE_HEADER = 260_832


@dataclass(frozen=True, slots=True)
class Scope:
    """One row: what is counted, its bytes and the weights that they stand for."""

    what: str
    bytes: int
    weights: int

    @property
    def bits(self) -> float:
        return self.bytes * 8 / self.weights

    @property
    def figure(self) -> Figure:
        return reasoned(round(self.bits, 4), "bits/weight", f"{self.bytes} B × 8 / {self.weights} weights")

    def to_json(self) -> dict[str, object]:
        return {"what": self.what, "bytes": self.bytes, "weights": self.weights, "bits": self.figure.to_json()}


def bits_per_weight(spec: ModelSpec, codec: str, residual_bits: int = 6) -> tuple[Scope, ...]:
    """The scopes of `spec` stored with `codec`, the narrowest first.

    Args:
        codec: one of `CODECS`: `twofold` (base and a residual of `residual_bits`), a GGUF quantisation, `Mirai S` (for
            the model that it is released for), or a ternary type.

    Raises:
        ValueError: another codec, or a release of another model.
    """
    if codec == TWOFOLD:
        return _twofold(spec, residual_bits)
    if codec == MIRAI_S:
        return _mirai(spec)
    if codec in ternary.TERNARY:
        return _ternary(spec, next(kind for kind in ternary.TERNARY if kind == codec))
    if codec in QUANTS:
        return _gguf(spec, codec)
    raise ValueError(f"no codec {codec!r}: one of {', '.join(CODECS)}")


def codecs_for(spec: ModelSpec) -> tuple[str, ...]:
    """The codecs that `spec` can be counted in."""
    is_ternary = all(one.in_features % ternary.BLOCK == 0 for one in _members(spec))
    return tuple(
        codec
        for codec in CODECS
        if (codec != MIRAI_S or trellis.is_released_for(spec)) and (codec not in ternary.TERNARY or is_ternary)
    )


def _members(spec: ModelSpec) -> list[LinearSpec]:
    return [member for layer in spec.layers for group in layer.groups for member in group.members]


def _others(spec: ModelSpec) -> tuple[int, int]:
    """Norm weights, and the other weights that no codec touches (gates, routers, convolutions)."""
    dense = sum(codecs.dense_bytes(spec, layer) for layer in spec.layers) // codecs.F16_BYTES
    return codecs.norm_bytes(spec) // codecs.F32_BYTES, dense


def _twofold(spec: ModelSpec, bits: int) -> tuple[Scope, ...]:
    groups = [group for layer in spec.layers for group in layer.groups]
    n = spec.n_decoder_weights
    scales = sum(codecs.split_scale_bytes(one.out_features, one.in_features) * one.copies for one in _members(spec))
    base = sum(codecs.base_bytes(group) for group in groups)
    residual = sum(codecs.residual_bytes(group, bits) for group in groups)
    head = codecs.base_bytes(spec.head) + codecs.residual_bytes(spec.head, bits)
    side = codecs.mixer_bytes(spec) + sum(codecs.side_bytes(one, is_head=one is spec.head) for one in spec.groups)
    norms, dense = _others(spec)
    table = spec.vocab_size * spec.hidden_size
    coded = n + table + spec.n_embedding_weights
    whole = base + residual + head + codecs.embedding_bytes(spec)
    rest = side + codecs.norm_bytes(spec) + dense * codecs.F16_BYTES
    return (
        Scope("codes of the 2-bit base", base - scales, n),
        Scope("base with its scales: what drafts", base, n),
        Scope(f"codes of base and {bits}-bit residual", base + residual - 2 * scales, n),
        Scope("base and residual with scales: what verifies", base + residual, n),
        Scope("and the head, split too, and the embedding in 16 bits", whole, coded),
        Scope("the whole checkpoint: signs, mixers, norms, gates", whole + rest, coded + norms + dense),
    )


def _gguf(spec: ModelSpec, quant: str) -> tuple[Scope, ...]:
    codes = scaled = 0
    for layer in spec.layers:
        for group in layer.groups:
            for member in group.members:
                kind = codecs.gguf_codec(member.in_features, member_codec(member, layer, spec.n_layers, quant))
                codes += member.n_weights * _CODE_BITS[kind] // 8
                scaled += codecs.gguf_bytes(member.out_features, member.in_features, kind) * member.copies
    n, tables = spec.n_decoder_weights, 1 if spec.tie_embeddings else 2
    table = spec.vocab_size * spec.hidden_size
    is_mixture = quant == "Q4_K_M"
    head = codecs.gguf_bytes(spec.vocab_size, spec.hidden_size, "Q6_K" if is_mixture else quant)
    own = codecs.gguf_bytes(spec.vocab_size, spec.hidden_size, "Q4_K" if is_mixture else quant)
    extra = spec.extra_embedding_weights
    top = head + (0 if tables == 1 else own) + extra * own // table
    norms, dense = _others(spec)
    return (
        Scope("codes", codes, n),
        Scope("with the blocks' scales", scaled, n),
        Scope("and embedding and head", scaled + top, n + tables * table + extra),
        Scope("all tensors: norms, gates and routers in 32 bits", scaled + top + 4 * (norms + dense),
              n + tables * table + extra + norms + dense),
    )  # fmt: skip


def _mirai(spec: ModelSpec) -> tuple[Scope, ...]:
    found = trellis.trellis_bytes(spec)
    vocab, hidden = spec.vocab_size, spec.hidden_size
    scaled = found.codes + found.scales_and_gains
    top = vocab * (trellis.embedding_row(hidden) + trellis.head_row(hidden))
    norms, dense = _others(spec)
    rest = norms + dense - found.dense_weights
    coded = found.weights + 2 * vocab * hidden
    whole = scaled + top + found.post_gains + 4 * rest + trellis.package_table_bytes(spec) + _PACKAGE_HEADER
    return (
        Scope("trellis codes", found.codes, found.weights),
        Scope("with row scales and gains", scaled, found.weights),
        Scope("and 2-bit embedding and 3-bit head", scaled + top, coded),
        Scope("the whole package: codebooks, rotations, RoPE tables", whole, coded + rest),
        Scope("runtime tapes in llama.cpp's file", found.tapes, found.weights - found.dense_weights),
    )


def _ternary(spec: ModelSpec, kind: ternary.TernaryType) -> tuple[Scope, ...]:
    found = ternary.ternary_bytes(spec, kind)
    blocks = found.matrices // ternary.BLOCK_BYTES[kind]
    tables = found.tables * found.table
    weights = found.matrix_weights + found.tables * found.table_weights
    return (
        Scope("trits", found.matrices - blocks * ternary.SCALE_BYTES, found.matrix_weights),
        Scope("with the blocks' scales", found.matrices, found.matrix_weights),
        Scope("and embedding and head", found.matrices + tables, weights),
        Scope("all tensors: gates in 16 bits, norms in 32", found.total, weights + found.gates + found.other_weights),
    )
