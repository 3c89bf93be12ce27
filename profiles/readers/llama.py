"""The Llama shape: llama, mistral, qwen2, qwen3, which planning and the engine both understand, and the same with
experts (mixtral, qwen3_moe), for planning.
"""

from __future__ import annotations

from dataclasses import dataclass

from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import LayerKind, LayerSpec, LinearGroup, ModelSpec
from twofold.profiles.readers.fields import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_VOCABULARY, Fields
from twofold.profiles.readers.groups import attention_groups, head_group, mlp_groups, rope

RUNNABLE_ROPE = ("linear", "llama3")
WITH_EXPERTS = ("mixtral", "qwen3_moe")


@dataclass(frozen=True, slots=True)
class _Attention:
    n_heads: int
    n_kv_heads: int
    head_dim: int


def llama_spec(fields: Fields, architecture: str) -> ModelSpec:
    """The spec of a Llama-shaped model.

    Raises:
        UnsupportedModel: experts in an architecture that should have none: their bytes are not known.
        CorruptFile: a configuration that cannot be used.
    """
    if architecture not in WITH_EXPERTS:
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
        qk_norm=architecture.startswith("qwen3"),
        intermediate_size=fields.integer("intermediate_size"),
        runnable_reason=_cannot_run(fields, architecture, layers[0]),
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
    qk_norms = 2 * attention.head_dim if architecture.startswith("qwen3") else 0
    mlp, router = _mlp(fields, architecture, f"{name}.mlp", index, hidden)
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
            *mlp,
        ),
        n_heads=attention.n_heads,
        n_kv_heads=attention.n_kv_heads,
        k_head_dim=attention.head_dim,
        v_head_dim=attention.head_dim,
        window=window,
        dense_weights=2 * hidden + qk_norms + router,
        rope=rope(fields, attention.head_dim),
    )


def _mlp(fields: Fields, architecture: str, name: str, index: int, hidden: int) -> tuple[tuple[LinearGroup, ...], int]:
    """The MLP, or all experts of the layer; and the router's weights."""
    if not _has_experts(fields, architecture, index):
        inner, bias = fields.integer("intermediate_size"), fields.flag("mlp_bias", False)
        return mlp_groups(name, hidden=hidden, inner=inner, bias=bias), 0
    n = fields.integer("num_experts" if fields.has("num_experts") else "num_local_experts", high=MAX_EXPERTS)
    inner = fields.integer("intermediate_size" if architecture == "mixtral" else "moe_intermediate_size")
    used = fields.used_experts(n, "num_experts_per_tok")
    return mlp_groups(f"{name}.experts", hidden=hidden, inner=inner, copies=n, used_copies=used), hidden * n


def _has_experts(fields: Fields, architecture: str, index: int) -> bool:
    if architecture not in WITH_EXPERTS:
        return False
    step = fields.integer("decoder_sparse_step", 1, high=MAX_LAYERS)
    dense = fields.values.get("mlp_only_layers") or ()
    return (index + 1) % step == 0 and index not in dense


def _cannot_run(fields: Fields, architecture: str, layer: LayerSpec) -> str | None:
    """Why the engine cannot run this model, or None."""
    if architecture in WITH_EXPERTS:
        return f"the engine has no graph for {architecture} (experts)"
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
