"""The Llama shape: llama, mistral, qwen2, qwen3. What planning and the engine both understand."""

from __future__ import annotations

from dataclasses import dataclass

from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import LayerKind, LayerSpec, ModelSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.groups import attention_groups, head_group, mlp_groups, rope

RUNNABLE_ROPE = ("linear", "llama3")


@dataclass(frozen=True, slots=True)
class _Attention:
    n_heads: int
    n_kv_heads: int
    head_dim: int


def llama_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec of a dense Llama-shaped model.

    Raises:
        UnsupportedModel: experts, or another feature whose bytes this reader does not know.
        CorruptFile: a configuration that cannot be used.
    """
    _refuse_experts(fields)
    hidden = fields.integer("hidden_size")
    attention = _attention(fields, hidden)
    n_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    windows = _windows(fields, architecture, n_layers)
    layers = tuple(_layer(fields, architecture, index, hidden, attention, windows[index]) for index in range(n_layers))
    context = fields.integer("max_position_embeddings", 2048, high=MAX_CONTEXT)
    return ModelSpec(
        name=fields.name,
        architecture=architecture,
        layers=layers,
        head=head_group(hidden, fields.integer("vocab_size", high=MAX_VOCABULARY)),
        hidden_size=hidden,
        vocab_size=fields.integer("vocab_size", high=MAX_VOCABULARY),
        context_length=context,
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.text("hidden_act", "silu"),
        facts_source="",
        qk_norm=architecture == "qwen3",
        intermediate_size=fields.integer("intermediate_size"),
        runnable_reason=_cannot_run(fields, layers[0]),
    )


def _refuse_experts(fields: Fields) -> None:
    for key in ("num_local_experts", "num_experts", "n_routed_experts"):
        if fields.has(key) and fields.integer(key, low=0) > 1:
            raise UnsupportedModel(
                f"cannot estimate {fields.name}: experts in a Llama-shaped model",
                found=f"{key} = {fields.values[key]}",
                needed="a dense model",
            )


def _attention(fields: Fields, hidden: int) -> _Attention:
    n_heads = fields.integer("num_attention_heads", high=4096)
    n_kv = fields.integer("num_key_value_heads", n_heads, high=4096)
    head_dim = fields.integer("head_dim", max(hidden // n_heads, 1), high=4096)
    if n_heads % n_kv:
        raise fields.damaged("num_key_value_heads", f"a divisor of {n_heads} heads")
    if head_dim % 2:
        raise fields.damaged("head_dim", "an even number")
    return _Attention(n_heads, n_kv, head_dim)


def _windows(fields: Fields, architecture: str, n_layers: int) -> list[int | None]:
    """The sliding window of each layer, None for a growing cache."""
    # transformers reads a mistral without the key as one with a window of 4096, and null as none.
    absent = architecture == "mistral" and "sliding_window" not in fields.values
    if architecture not in ("mistral", "qwen2", "qwen3") or not (absent or fields.has("sliding_window")):
        return [None] * n_layers
    window = fields.integer("sliding_window", 4096, high=MAX_CONTEXT)
    if architecture == "mistral":
        return [window] * n_layers
    if not fields.flag("use_sliding_window", False):
        return [None] * n_layers
    kinds = fields.layer_kinds(n_layers, ("full_attention", "sliding_attention"))
    if kinds is None:
        first = fields.integer("max_window_layers", 28, low=0, high=MAX_LAYERS)
        return [window if index >= first else None for index in range(n_layers)]
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _layer(
    fields: Fields, architecture: str, index: int, hidden: int, attention: _Attention, window: int | None
) -> LayerSpec:
    name = f"model.layers.{index}"
    bias = fields.flag("attention_bias", False)
    qk_norms = 2 * attention.head_dim if architecture == "qwen3" else 0
    kind: LayerKind = "growing" if window is None else "sliding"
    return LayerSpec(
        index=index,
        kind=kind,
        groups=(
            *attention_groups(
                name,
                hidden=hidden,
                q_rows=attention.n_heads * attention.head_dim,
                kv_rows=attention.n_kv_heads * attention.head_dim,
                o_inputs=attention.n_heads * attention.head_dim,
                qkv_bias=bias or architecture == "qwen2",
                o_bias=bias,
            ),
            *mlp_groups(
                f"{name}.mlp",
                hidden=hidden,
                inner=fields.integer("intermediate_size"),
                bias=fields.flag("mlp_bias", False),
            ),
        ),
        n_heads=attention.n_heads,
        n_kv_heads=attention.n_kv_heads,
        k_head_dim=attention.head_dim,
        v_head_dim=attention.head_dim,
        window=window,
        dense_weights=2 * hidden + qk_norms,
        rope=rope(fields, attention.head_dim),
    )


def _cannot_run(fields: Fields, layer: LayerSpec) -> str | None:
    """Why the engine cannot run this model, or None."""
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        return f"the engine has no {activation} activation (silu only)"
    assert layer.rope is not None
    kind = (layer.rope.scaling or {}).get("rope_type", "default")
    if kind != "default" and kind not in RUNNABLE_ROPE:
        return f"the engine has no {kind!r} RoPE scaling (default, linear and llama3 only)"
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        return "the engine rotates whole heads only (partial_rotary_factor is set)"
    return None
