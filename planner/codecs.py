"""Bytes of weights, to the byte: twofold's own codec and the GGUF types.

twofold's codec is the one of `docs/checkpoint.md`: every member of a group is padded to tiles of 16 rows and to 16
inputs, base codes take 2 bits and residual codes b bits, and each has one fp16 scale per row and scale group of 128
inputs (the last group is shorter, and still has its scale). `copies` > 1 (experts) multiplies a member.
"""

from __future__ import annotations

import functools

from twofold.kernels.naive.packing import BLOCK_INPUTS, TILE_ROWS, blocks, tiles
from twofold.kernels.naive.rotation import block_width, needs_mix
from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec

GROUP_SIZE = 128
HEAD_BITS = 8
"""The LM head's residual width: its error reaches the logits directly and it is read once per pass."""
F16_BYTES = 2
F32_BYTES = 4

# What llama.cpp falls back to where a row is no multiple of a K-quant's 256 weights.
_GGUF_FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL"}


@functools.lru_cache(maxsize=4096)
def split_bytes(out_features: int, in_features: int, bits: int) -> int:
    """Codes of `bits` bits and fp16 scales of one Linear."""
    codes = blocks(in_features) * (TILE_ROWS * BLOCK_INPUTS * bits // 8)
    return tiles(out_features) * codes + split_scale_bytes(out_features, in_features)


def split_scale_bytes(out_features: int, in_features: int) -> int:
    """The scales of it: one in fp16 per row and group of inputs, of whole tiles."""
    return tiles(out_features) * -(-in_features // GROUP_SIZE) * TILE_ROWS * F16_BYTES


def _member_bytes(member: LinearSpec, bits: int) -> int:
    return split_bytes(member.out_features, member.in_features, bits) * member.copies


def base_bytes(group: LinearGroup) -> int:
    """The 2-bit base of a fused Linear: codes and scales."""
    return coded_bytes(group, 2)


def coded_bytes(group: LinearGroup, bits: int) -> int:
    """A fused Linear's codes of `bits` bits, and their scales."""
    return sum(_member_bytes(member, bits) for member in group.members)


def residual_bytes(group: LinearGroup, bits: int) -> int:
    """The residual of a fused Linear in a model that is quantised at `bits`: codes and scales.

    Whatever the width, `quantize` gives the LM head `HEAD_BITS`.
    """
    return coded_bytes(group, HEAD_BITS if group.name == "lm_head" else bits)


def side_bytes(group: LinearGroup, *, is_head: bool) -> int:
    """Sign vectors (I8) and biases (F32) of a fused Linear. The head's rows are not rotated, so it has no output
    signs.
    """
    total = group.in_features
    if not is_head:
        total += sum(member.out_features * member.copies for member in group.members)
    if any(member.bias for member in group.members):
        total += sum(member.out_features * member.copies for member in group.members) * F32_BYTES
    return total


def mixer_bytes(spec: ModelSpec) -> int:
    """Rotation mixers (F32 [m, m]), one per distinct rotated dimension D = m · 2^k that is mixed."""
    dims: set[int] = set()
    for group in spec.groups:
        dims.add(group.in_features)
        if group is not spec.head:
            dims.update(member.out_features for member in group.members)
    return sum((dim // block_width(dim)) ** 2 * F32_BYTES for dim in dims if needs_mix(dim))


def layer_norm_weights(spec: ModelSpec, layer: LayerSpec) -> int:
    """RMSNorm weights of a layer: two (four in Gemma) of the hidden size, and the query and key head norms."""
    per_layer = 4 if spec.architecture.startswith("gemma") else 2
    heads = 2 * layer.k_head_dim if spec.qk_norm and layer.n_heads else 0
    return per_layer * spec.hidden_size + heads


def norm_bytes(spec: ModelSpec) -> int:
    """All RMSNorm weights in fp32, the final one included."""
    return (spec.hidden_size + sum(layer_norm_weights(spec, layer) for layer in spec.layers)) * F32_BYTES


def dense_bytes(spec: ModelSpec, layer: LayerSpec) -> int:
    """Weights of a layer that stay in 16 bits (routers, small gates, convolutions); its norms are counted apart."""
    return max(0, layer.dense_weights - layer_norm_weights(spec, layer)) * F16_BYTES


def embedding_bytes(spec: ModelSpec) -> int:
    """The embedding table(s) in fp16: row look-ups, never in VRAM."""
    return spec.n_embedding_weights * F16_BYTES


def gguf_codec(cols: int, codec: str) -> str:
    """The GGML type that rows of `cols` weights get where `codec` is wanted: llama.cpp's fallback for odd lengths."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    while cols % GGML_QUANT_SIZES[GGMLQuantizationType[codec]][0]:
        codec = _GGUF_FALLBACK.get(codec, "F16")
    return codec


@functools.lru_cache(maxsize=4096)
def gguf_bytes(rows: int, cols: int, codec: str) -> int:
    """A GGUF tensor [rows, cols] stored as `codec` (a GGML type name), with llama.cpp's fallback for odd row lengths.

    Block sizes come from the `gguf` package's own table.
    """
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    sizes: tuple[int, int] = GGML_QUANT_SIZES[GGMLQuantizationType[gguf_codec(cols, codec)]]
    block, size = sizes
    return rows * (cols // block) * size
