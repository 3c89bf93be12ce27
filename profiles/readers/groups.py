"""The groups that decoder layers are made of, under Hugging Face's names."""

from __future__ import annotations

from typing import Any

from twofold.profiles.model_spec import LinearGroup, LinearSpec, RopeSpec
from twofold.profiles.readers.fields import Fields


def group(name: str, *members: LinearSpec) -> LinearGroup:
    return LinearGroup(name, members)


def attention_groups(
    layer: str,
    *,
    hidden: int,
    q_rows: int,
    kv_rows: int,
    o_inputs: int,
    qkv_bias: bool = False,
    o_bias: bool = False,
    has_v: bool = True,
) -> tuple[LinearGroup, LinearGroup]:
    """`qkv` (q, k and, where it has its own projection, v) and `o` of one attention layer."""
    attn = f"{layer}.self_attn"
    rows = {"q_proj": q_rows, "k_proj": kv_rows} | ({"v_proj": kv_rows} if has_v else {})
    qkv = [LinearSpec(f"{attn}.{name}", hidden, n, qkv_bias) for name, n in rows.items()]
    return (
        group(f"{attn}.qkv", *qkv),
        group(f"{attn}.o", LinearSpec(f"{attn}.o_proj", o_inputs, hidden, o_bias)),
    )


def mlp_groups(
    mlp: str, *, hidden: int, inner: int, copies: int = 1, used_copies: int | None = None, bias: bool = False
) -> tuple[LinearGroup, LinearGroup]:
    """`gate_up` and `down` of one gated MLP, or of `copies` experts of it, `used_copies` for a token."""
    return (
        group(
            f"{mlp}.gate_up",
            LinearSpec(f"{mlp}.gate_proj", hidden, inner, bias, copies, used_copies),
            LinearSpec(f"{mlp}.up_proj", hidden, inner, bias, copies, used_copies),
        ),
        group(f"{mlp}.down", LinearSpec(f"{mlp}.down_proj", inner, hidden, bias, copies, used_copies)),
    )


def head_group(hidden: int, vocab: int, *, bias: bool = False) -> LinearGroup:
    return group("lm_head", LinearSpec("lm_head", hidden, vocab, bias))


def rope_theta(fields: Fields, default: float = 10000.0) -> float:
    """The base: `rope_theta`, or the one inside `rope_parameters` (transformers 5)."""
    if fields.has("rope_theta"):
        return fields.number("rope_theta")
    parameters = fields.mapping("rope_parameters") or {}
    return Fields(parameters, fields.name).number("rope_theta", default)


def rope_scaling(fields: Fields) -> dict[str, Any] | None:
    """The scaling entry with `rope_type` filled in; None for plain RoPE."""
    entry = fields.mapping("rope_scaling") or fields.mapping("rope_parameters") or {}
    kind = entry.get("rope_type") or entry.get("type") or "default"
    if kind == "default":
        return None
    scaling = {key: value for key, value in entry.items() if key not in ("type", "rope_theta")}
    return scaling | {"rope_type": kind}


def rope(fields: Fields, head_dim: int, *, default_theta: float = 10000.0) -> RopeSpec:
    return RopeSpec(rope_theta(fields, default_theta), head_dim, rope_scaling(fields))
