"""What refining the draft takes: operations, values kept of the calibration text, peak memory."""

from __future__ import annotations

from twofold.engine.quantize.options import REFINE_BATCH_TOKENS, REFINE_HEAD_LOGITS, REFINE_HELD_EVERY
from twofold.profiles.model_spec import ModelSpec

DECODER_FLOPS, HEAD_FLOPS = 8, 6
"""Of a pass, per weight and token. Decoder: the draft forward, the same again layer by layer on the way back, and the
gradients of inputs and of weights, two each. Head: the model's logits, the draft's, and the gradient of its rows.
"""

_GROUP = 128
_SCALE_COPIES = 7
"""fp32 values for each scale: as rounded, its logarithm, gradient, two moments, as trained now, the best so far."""
_LOGIT_COPIES = 6
_ACTIVATION_COPIES = 6
"""Of a Linear's input and output while a layer has its gradient: rotations keep what goes in and what comes out."""
_SCORE_COPIES = 8
"""Of the scores of every pair of tokens: from exact and own keys, chosen, masked, weighed, halves, gradients."""


def refine_flops(spec: ModelSpec, tokens: int, passes: int) -> float:
    """The model once over all tokens, `passes` times the training, and the held texts before and after each pass."""
    decoder, head = spec.n_decoder_weights, spec.vocab_size * spec.hidden_size
    held = tokens / REFINE_HELD_EVERY
    judging = (passes + 1) * held * (2.0 * decoder + 4.0 * head)
    training = passes * (tokens - held) * (float(DECODER_FLOPS) * decoder + float(HEAD_FLOPS) * head)
    return 2.0 * decoder * tokens + training + judging


def refine_store_bytes(spec: ModelSpec, tokens: int) -> int:
    """K and V of every layer and the last hidden rows of the calibration text, fp32."""
    kv = sum(layer.n_kv_heads * (layer.k_head_dim + layer.v_head_dim) for layer in spec.layers)
    return 4 * tokens * (kv + spec.hidden_size)


def bases_bytes(spec: ModelSpec) -> int:
    """The bases between the walks: a byte a weight, and scales twice in 16 bits."""
    return spec.n_decoder_weights + 4 * spec.n_decoder_weights // _GROUP


def refine_peak_bytes(spec: ModelSpec, tokens: int) -> int:
    """Training at its worst, without the process itself and what is kept of the text: the head, scales and their
    moments, the inputs of all layers, a layer with its gradient, and logits.
    """
    rows = min(REFINE_BATCH_TOKENS, tokens)
    head = 4 * spec.vocab_size * spec.hidden_size
    scales = 4 * _SCALE_COPIES * spec.n_decoder_weights // _GROUP
    inputs = 4 * rows * spec.hidden_size * (spec.n_layers + 1)
    logits = 4 * _LOGIT_COPIES * max(spec.vocab_size, min(REFINE_HEAD_LOGITS, rows * spec.vocab_size))
    layer = 0
    for one in spec.layers:
        widths = [group.in_features + sum(m.out_features for m in group.members) for group in one.groups]
        weights = [sum(m.n_weights for m in group.members) for group in one.groups]
        kept = 4 * rows * (_ACTIVATION_COPIES * sum(widths) + _SCORE_COPIES * one.n_heads * rows) + sum(weights)
        layer = max(layer, kept + 3 * 4 * max(weights))
    return head + scales + inputs + max(layer, logits)
