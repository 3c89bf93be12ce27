"""Weights of a GGUF file by what its name says: a llama.cpp quantisation, or one of the low-bit releases."""

from __future__ import annotations

from dataclasses import dataclass

from twofold.planner import codecs, ternary, trellis
from twofold.planner.llama_cpp import QUANTS, WEIGHTS_SPREAD, LlamaWeights, llama_weights
from twofold.profiles.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class NamedWeights:
    """Bytes of a file's weights, how far files of this name are apart (a share), and what they were counted from.

    `draft_head` is the least and the most that its draft head takes on the card, where that is known.
    """

    weights: LlamaWeights
    spread: float
    by: str
    draft_head: tuple[int, int] | None = None


def named_weights(spec: ModelSpec, name: str) -> NamedWeights | None:
    """What a file of `spec` called `name` holds; None where the name says nothing that is known."""
    text = name.upper()
    if "MIRAI" in text and trellis.is_released_for(spec):
        return NamedWeights(mirai_weights(spec), 0.0, "Mirai S: runtime tapes, row scales, 3-bit head, 16-bit gates")
    kind = next((kind for kind in ternary.TERNARY if kind in text), "PTQ1_0" if "BONSAI" in text else None)
    if kind is not None and all(one.in_features % ternary.BLOCK == 0 for one in spec.groups):
        graft = ternary.GRAFT_BYTES if "MTP" in text and trellis.is_released_for(spec) else None
        return NamedWeights(ternary_weights(spec, kind), 0.0, f"{kind} blocks, gates in 16 bits, norms in 32", graft)
    quant = next((quant for quant in QUANTS if quant in text), None)
    if quant is None:
        return None
    by = f"{quant} blocks of every tensor on the card; files of this name differ"
    return NamedWeights(llama_weights(spec, quant), WEIGHTS_SPREAD[quant], by)


def mirai_weights(spec: ModelSpec) -> LlamaWeights:
    """Mirai S in its llama.cpp file; the embedding is decoded to 16 bits and stays on the host.

    Raises:
        ValueError: the release is of another model.
    """
    found = trellis.trellis_bytes(spec)
    dense = sum(codecs.dense_bytes(spec, layer) // codecs.F16_BYTES for layer in spec.layers)
    kept = 2 * found.dense_weights + 4 * (dense - found.dense_weights) + codecs.norm_bytes(spec)
    head = trellis.head_tape_bytes(spec) + trellis.rotation_bytes(spec)
    card = found.tapes + found.row_scales + kept + head
    return LlamaWeights(card, codecs.embedding_bytes(spec), _even(spec, card - head))


def ternary_weights(spec: ModelSpec, kind: ternary.TernaryType) -> LlamaWeights:
    """A ternary file; an untied embedding stays on the host."""
    found = ternary.ternary_bytes(spec, kind)
    card = found.total - (found.table if found.tables == 2 else 0)
    return LlamaWeights(card, found.table, _even(spec, card - found.table))


def _even(spec: ModelSpec, total: int) -> tuple[int, ...]:
    """Bytes of each layer, where only the sum is known."""
    return (total // max(1, spec.n_layers),) * spec.n_layers
