"""Quality of a plan or a file: its class, and the KL divergence where somebody measured it.

A class orders what nobody measured on the model at hand: q8 is what int8 in groups of 32 gives; int8 activations leave
it as it is, since Q8_0 is run with them. A KL is only ever somebody's measurement of the same model; there is no
formula from bits to KL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from twofold.planner.plan import KvType
from twofold.profiles.activations import USUAL, Activations
from twofold.profiles.figures import Figure, reported, unknown

QualityClass = Literal["q8", "q6", "q4"]
RANK: dict[str, int] = {"q8": 2, "q6": 1, "q4": 0}

_BITS_CLASS: dict[int, QualityClass] = {8: "q8", 7: "q8", 6: "q8", 5: "q6", 4: "q4"}
_QUANT_CLASS: dict[str, QualityClass] = {"Q8_0": "q8", "Q6_K": "q6", "Q4_K_M": "q4"}

_GEMMA = "reported for this model: 32 chat texts, the weights dequantised in torch, against bf16"
_QWEN = "reported for this model: WikiText-2, 81,880 tokens, the weights dequantised in torch, against bf16"
_SMOL = "twofold eval of smollm2 on two cores of an AMD EPYC: 5,517 held-out tokens, three seeds, against its Q4_1 file"
_SMOL_INT8 = "against_llama_cpp.py on two cores of an AMD EPYC: 5,517 held-out tokens, one seed, against its Q4_1 file"
_INT8 = "; int8 in groups of 32, Q8_0-class"
# By model, then by residual width or GGUF type: KL in nats, and who says so.
_KNOWN: dict[str, dict[int | str, tuple[float, str]]] = {
    "google/gemma-4-12B-it": {
        6: (0.0020, _GEMMA), 7: (0.00089, _GEMMA), 8: (0.00087, _GEMMA), "Q8_0": (0.0017, _GEMMA + _INT8)
    },
    "Qwen/Qwen3.5-4B": {8: (0.000205, _QWEN), "Q8_0": (0.000327, _QWEN + _INT8)},
    "HuggingFaceTB/SmolLM2-135M-Instruct": {6: (0.00101, _SMOL), "Q8_0": (0.00109, _SMOL + _INT8)},
    "smollm2": {6: (0.00101, _SMOL), "Q8_0": (0.00109, _SMOL + _INT8)},
}  # fmt: skip
# The same of twofold's own widths where activations are int8; a figure above is of int16 ones (or of fp32 in torch).
_KNOWN_INT8: dict[str, dict[int, tuple[float, str]]] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": {6: (0.00187, _SMOL_INT8)},
    "smollm2": {6: (0.00187, _SMOL_INT8)},
}
OTHER_ACTIVATIONS = "other_activations"
"""Where a checkpoint keeps what `twofold eval` measured under other activations than its own, by their names."""


def plan_class(bits: int, k_type: KvType, v_type: KvType) -> QualityClass:
    """The class that residual width and cache types belong to."""
    return "q4" if "q4_0" in (k_type, v_type) else _BITS_CLASS[bits]


def quant_class(quant: str, kv_type: KvType) -> QualityClass | None:
    """The class of a GGUF type and cache type; None for a file whose types are its own."""
    found = _QUANT_CLASS.get(quant)
    return "q4" if found is not None and kv_type == "q4_0" else found


def known_kl(model: str, what: int | str, k_type: KvType, v_type: KvType, activations: Activations = USUAL) -> Figure:
    """The KL of a residual width or GGUF type of `model` where it was measured; the cache's rounding is never in it."""
    if activations == USUAL:
        found, how = _KNOWN.get(model, {}).get(what), "twofold eval"
    else:
        found = _KNOWN_INT8.get(model, {}).get(what) if activations == "int8" and isinstance(what, int) else None
        how = f"twofold eval --activations {activations}"
    if found is None:
        return unknown("nats", f"not measured for this model: {how} does, once it is quantised")
    kl, by = found
    cache = "" if k_type == v_type == "f16" else f"; without the rounding of a K {k_type}, V {v_type} cache"
    return reported(kl, "nats", by + cache)


def measured_under(measured: Mapping[str, Any], own: Activations, asked: Activations) -> Mapping[str, Any]:
    """What `twofold eval` left in a checkpoint for the activations asked; `own` are those that it was made with."""
    others = measured.get(OTHER_ACTIVATIONS)
    found = measured if asked == own else others.get(asked) if isinstance(others, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def checkpoint_kl(measured: Mapping[str, Any]) -> Figure | None:
    """The verifier's KL in such a report; None where there is none."""
    try:
        figure = measured["rows"]["verifier"]["kl"]
        kl, tokens = float(figure["value"]), int(measured["tokens"])
    except (KeyError, TypeError, ValueError):
        return None
    return reported(kl, "nats", f"twofold eval of this checkpoint: {tokens:,} held-out tokens") if kl >= 0 else None
