"""Bytes per device for one set of knobs, term by term.

Weights, KV and state are exact from metadata; what a process, a driver or a buffer pool takes is reasoned, with a
range. On a card VRAM holds the base, the cache, the residual of the resident fused Linears and the buffers; RAM holds
the embedding and the rest of the residual. On the CPU everything is in RAM.
"""

from __future__ import annotations

from collections.abc import Iterable

from twofold.planner import codecs
from twofold.planner.cpu_buffers import cpu_buffers
from twofold.planner.knobs import Knobs
from twofold.planner.kv import cache_bytes
from twofold.planner.own_runs import OwnRuns, process_mib, process_term
from twofold.planner.per_spec import per_spec
from twofold.planner.terms import Device, DeviceMemory, Term, estimate, exact
from twofold.profiles.model_spec import LinearGroup, ModelSpec
from twofold.profiles.units import MIB

__all__ = ["DeviceMemory", "Term", "checkpoint_bytes", "cpu_memory", "estimate", "exact", "host_memory", "vram_memory"]

# A CUDA context and the constant part of compute buffers: what is left of reported peaks once weights, cache and
# context-proportional buffers are subtracted: 345 to 684 MiB over four runs of files of known weight; the middle of it.
CUDA_CONTEXT_MIB = (345.0, 515.0, 685.0)
# The resident set of the process beside weights and cache, with torch and the host side of a CUDA context.
CUDA_PROCESS_MIB = (700.0, 1500.0, 2600.0)
# Prefill streams host residuals through two buffers; a fused Linear larger than one is streamed by tiles.
STREAM_BUFFER_MIB = 64.0
# Positions that a RoPE table is rounded up to at most.
ROPE_BLOCK = 256


def _residual_total(groups: Iterable[LinearGroup], bits: int) -> int:
    return sum(codecs.residual_bytes(group, bits) for group in groups)


@per_spec
def residual_sizes(spec: ModelSpec, bits: int) -> dict[str, int]:
    """Bytes of each fused Linear's residual, by name, in execution order."""
    return {group.name: codecs.residual_bytes(group, bits) for group in spec.groups}


@per_spec
def _weight_terms(spec: ModelSpec, device: Device) -> list[Term]:
    """Base, rotation and dense weights: always where the passes are computed."""
    base = sum(codecs.base_bytes(group) for group in spec.groups if group is not spec.head)
    side = codecs.mixer_bytes(spec) + sum(codecs.side_bytes(group, is_head=group is spec.head) for group in spec.groups)
    dense = sum(codecs.dense_bytes(spec, layer) for layer in spec.layers)
    terms = [
        exact("base", device, base, "2-bit codes + fp16 scales per 16-row tile and 128 inputs, decoder Linears"),
        exact("head_base", device, codecs.base_bytes(spec.head), "2-bit codes + scales of the LM head"),
        exact("rotation", device, side, "signs (1 B), mixers and biases (4 B)"),
        exact("norms", device, codecs.norm_bytes(spec), "RMSNorm weights in fp32"),
    ]
    if dense:
        terms.append(exact("dense", device, dense, "weights kept in 16 bits (routers, gates, convolutions)"))
    return terms


def _cache_terms(spec: ModelSpec, knobs: Knobs, device: Device) -> list[Term]:
    cache = cache_bytes(
        spec,
        knobs.context_tokens,
        knobs.k_type,
        knobs.v_type,
        largest_pass=knobs.largest_pass,
        live_copies=knobs.live_states,
    )
    kinds = f"K {knobs.k_type}, V {knobs.v_type}"
    terms = [
        exact(
            "kv",
            device,
            cache.growing,
            f"{cache.growing_per_token} B per token × {knobs.context_tokens} tokens ({kinds})",
        )
    ]
    if cache.sliding_per_token:
        by = f"{cache.sliding_per_token} B per token × min(context, window + {knobs.largest_pass}) tokens ({kinds})"
        terms.append(exact("kv_sliding", device, cache.sliding, by))
    if cache.state_per_copy:
        by = f"{cache.state_per_copy} B per copy × {knobs.live_states} live"
        terms.append(exact("recurrent_state", device, cache.recurrent, by))
    longer = cache_bytes(
        spec,
        knobs.context_tokens + knobs.rows,
        knobs.k_type,
        knobs.v_type,
        largest_pass=knobs.largest_pass,
        live_copies=knobs.live_states,
    )
    by = f"{cache.growing_per_token} B per token × {knobs.rows} slots for the rows of the pass being checked"
    if longer.sliding > cache.sliding:
        by += f", and {longer.sliding - cache.sliding} B of sliding layers that have not filled their window"
    terms.append(exact("kv_pass", device, longer.total - cache.total, by))
    return terms


@per_spec
def _widest(spec: ModelSpec) -> tuple[int, int]:
    """Most inputs and most outputs of a row in a fused Linear, the head aside."""
    groups = [group for group in spec.groups if group is not spec.head]
    widest_in = max((group.in_features for group in groups), default=spec.hidden_size)
    return widest_in, max((group.out_features * group.used_copies for group in groups), default=spec.hidden_size)


def _buffer_terms(spec: ModelSpec, knobs: Knobs, device: Device) -> list[Term]:
    rows = knobs.rows
    logits = exact("logits", device, rows * spec.vocab_size * 4, f"{rows} rows × {spec.vocab_size} × 4 B")
    widest_in, widest_out = _widest(spec)
    n_planes = sum(set(knobs.planes))  # base and residual share those of one kind
    per_row = 4 * (3 * spec.hidden_size + 2 * widest_out + 2 * widest_in) + n_planes * widest_in
    mib = knobs.largest_pass * per_row / MIB
    by = f"{knobs.largest_pass} rows × {per_row} B: stream, widest product in fp32 (base and residual), int8 planes"
    return [logits, estimate("activations", device, (0.5 * mib, mib, 2.0 * mib), by)]


def _rope_tables(spec: ModelSpec, knobs: Knobs, device: Device) -> Term:
    """Cosines and sines in fp32 of every position, one table per distinct rotation."""
    ropes = {(layer.rope.theta, layer.rope.rotary_dim) for layer in spec.layers if layer.rope is not None}
    row = sum(rotary_dim * 4 for _theta, rotary_dim in ropes)
    mib = row * (knobs.context_tokens + knobs.rows) / MIB
    by = f"{row} B per position × {knobs.context_tokens + knobs.rows}, in whole blocks"
    return estimate("rope_tables", device, (mib, mib, mib + row * ROPE_BLOCK / MIB), by)


def cpu_memory(spec: ModelSpec, knobs: Knobs, own: OwnRuns | None = None) -> DeviceMemory:
    """Everything in RAM. `own` sessions say what the process itself takes, where there were any."""
    residual = _residual_total(spec.groups, knobs.residual_bits)
    terms = [
        *_weight_terms(spec, "ram"),
        exact(
            "residual",
            "ram",
            residual,
            f"{knobs.residual_bits}-bit codes + fp16 scales of all Linears, {codecs.HEAD_BITS}-bit ones of the head",
        ),
        exact("embedding", "ram", codecs.embedding_bytes(spec), "embedding rows in fp16"),
        *_cache_terms(spec, knobs, "ram"),
        *cpu_buffers(spec, knobs),
        process_term(spec, knobs, own)
        or estimate("process", "ram", process_mib(spec), "interpreter, numpy, terminal; a tokenizer by its vocabulary"),
    ]
    return DeviceMemory("ram", tuple(terms))


def vram_memory(spec: ModelSpec, knobs: Knobs) -> DeviceMemory:
    """What the card holds."""
    sizes = residual_sizes(spec, knobs.residual_bits)
    on_card = frozenset(knobs.resident) & sizes.keys()
    by = f"{knobs.residual_bits}-bit residual of {len(on_card)} of {len(sizes)} fused Linears"
    terms = [
        *_weight_terms(spec, "vram"),
        exact("residual_resident", "vram", sum(sizes[name] for name in on_card), by),
        *_cache_terms(spec, knobs, "vram"),
        *_buffer_terms(spec, knobs, "vram"),
        _rope_tables(spec, knobs, "vram"),
    ]
    if len(on_card) < len(sizes):
        widest = max(width for name, width in _exchange_widths(spec, knobs.planes[1]).items() if name not in on_card)
        by = f"two buffers × {knobs.rows} rows: int8 planes to the host, fp32 sums back"
        terms.append(exact("exchange", "vram", 2 * knobs.rows * widest, by))
        streaming = (2 * STREAM_BUFFER_MIB,) * 3
        terms.append(
            estimate(
                "prefill_stream", "vram", streaming, f"two buffers of {STREAM_BUFFER_MIB:g} MiB for host residuals"
            )
        )
    terms.append(
        estimate(
            "runtime", "vram", CUDA_CONTEXT_MIB, "CUDA context and constant buffers: range of reported peaks' constant"
        )
    )
    return DeviceMemory("vram", tuple(terms))


@per_spec
def _exchange_widths(spec: ModelSpec, planes: int) -> dict[str, int]:
    """Bytes that a row of each fused Linear sends between card and host: int8 planes down, fp32 sums up."""
    return {
        group.name: group.used_copies * (group.in_features * planes + group.out_features * 4) for group in spec.groups
    }


def host_memory(spec: ModelSpec, knobs: Knobs) -> DeviceMemory:
    """What RAM holds beside a card."""
    sizes, widths = residual_sizes(spec, knobs.residual_bits), _exchange_widths(spec, knobs.planes[1])
    in_ram = sizes.keys() - set(knobs.resident)
    widest = max((widths[name] for name in in_ram), default=0)
    residual = sum(sizes[name] for name in in_ram)
    by = f"{knobs.residual_bits}-bit residual of {len(in_ram)} of {len(sizes)} fused Linears"
    terms = [
        exact("residual_host", "ram", residual, by),
        exact("embedding", "ram", codecs.embedding_bytes(spec), "embedding rows in fp16"),
        exact(
            "exchange",
            "ram",
            2 * knobs.rows * widest,
            f"two pinned buffers × {knobs.rows} rows: int8 planes, fp32 sums",
        ),
        estimate("process", "ram", CUDA_PROCESS_MIB, "interpreter, torch, host side of the CUDA context"),
    ]
    return DeviceMemory("ram", tuple(terms))


def checkpoint_bytes(spec: ModelSpec, bits: int) -> int:
    """Size of the twofold checkpoint on disk, tokenizer and headers aside."""
    weights = sum(term.bytes for term in _weight_terms(spec, "ram"))
    return weights + _residual_total(spec.groups, bits) + codecs.embedding_bytes(spec)
