"""What the CPU engine keeps beside weights and cache: to the byte where it has a wiring for the model, else a range.

`twofold.engine.allocations` counts the engine's own arrays; tests hold the two together.
"""

from __future__ import annotations

from twofold.kernels.naive.packing import tiles
from twofold.planner import codecs
from twofold.planner.knobs import Knobs
from twofold.planner.pass_buffers import body_values, head_values
from twofold.planner.per_spec import per_spec
from twofold.planner.terms import Term, estimate, exact
from twofold.profiles.model_spec import ModelSpec, RopeSpec
from twofold.profiles.units import MIB

HEAD_ROWS = 32
"""Rows of logits that the engine reserves at least (evaluating reads several at once)."""
ROPE_BLOCK = 256
"""RoPE tables are made for whole blocks of positions."""

# Of kernels/cpu: positions of one attention part, (row, head) pairs that share a sweep, a score row, values of a block,
# floats of parts that may be kept at once, and by how much a thread's buffer is made larger than needed.
_CHUNK, _QUERIES, _SCORES, _BLOCK, _MOST_PARTS, _SLACK = 128, 32, 144, 32, 1 << 21, 1.25
# Ids that the draft's head weighs again in full, for each row of a level.
_SHORTLIST = 32


def chunk_rows(knobs: Knobs) -> int:
    """Rows of the widest pass: a chunk of a prompt, or a checked tree."""
    return max(min(knobs.prefill_chunk, knobs.context_tokens), knobs.rows)


def cpu_buffers(spec: ModelSpec, knobs: Knobs) -> list[Term]:
    """Logits, activations, RoPE tables, the state of a pass, and scratch."""
    rows, head_rows = chunk_rows(knobs), max(knobs.rows, HEAD_ROWS)
    logits = exact(
        "logits",
        "ram",
        head_rows * head_values(spec) * 4,
        f"{head_rows} rows × ({spec.vocab_size} logits + 2 × {spec.hidden_size} + 1) × 4 B",
    )
    return [
        logits,
        _activations(spec, rows),
        _rope_tables(spec, knobs, rows),
        _pass_state(knobs, rows),
        _product_scratch(spec, knobs, rows, head_rows),
        _thread_scratch(spec, knobs),
    ]


def _pass_state(knobs: Knobs, rows: int) -> Term:
    """What a pass reads beside buffers, and the text that drafts are looked up in."""
    n_bytes, by = 20 * rows, f"{rows} rows × (token 8 B + position 8 B + parent 4 B)"
    if knobs.lookup_nodes:
        n_bytes, by = n_bytes + 4 * knobs.context_tokens, f"{by}; {knobs.context_tokens} tokens of the text × 4 B"
    return exact("pass_state", "ram", n_bytes, by)


@per_spec
def _widest(spec: ModelSpec) -> tuple[int, int]:
    """Most inputs and most outputs of a fused Linear, the head aside."""
    groups = [group for group in spec.groups if group is not spec.head]
    widest_in = max((group.in_features for group in groups), default=spec.hidden_size)
    return widest_in, max((group.out_features for group in groups), default=spec.hidden_size)


def _activations(spec: ModelSpec, rows: int) -> Term:
    values = body_values(spec)
    if values is not None:
        by = f"{rows} rows × {values} values × 4 B: intermediate results, shared by those of one size"
        return exact("activations", "ram", rows * values * 4, by)
    widest_in, widest_out = _widest(spec)
    per_row = 4 * (4 * spec.hidden_size + 2 * widest_out + widest_in)
    mib = rows * per_row / MIB
    by = f"{rows} rows × about {per_row} B: the engine has no wiring for this model yet"
    return estimate("activations", "ram", (0.5 * mib, mib, 2.0 * mib), by)


def _rope_tables(spec: ModelSpec, knobs: Knobs, rows: int) -> Term:
    ropes: list[RopeSpec] = []
    for layer in spec.layers:
        if layer.rope is not None and layer.rope not in ropes:
            ropes.append(layer.rope)
    row = sum(2 * (rope.rotary_dim // 2) * 4 for rope in ropes)
    positions = -(-(knobs.context_tokens + knobs.rows) // ROPE_BLOCK) * ROPE_BLOCK
    by = f"{row} B × ({positions} positions in whole blocks of {ROPE_BLOCK} + {rows} rows of a pass)"
    return exact("rope_tables", "ram", row * (positions + rows), by)


def _product_scratch(spec: ModelSpec, knobs: Knobs, rows: int, head_rows: int) -> Term:
    """The rows of the widest product, rotated and quantised (for base and residual apart where they read other planes),
    and its padded results.
    """
    values = sums = padded = 0
    for group in spec.groups:
        is_head = group is spec.head
        n = head_rows if is_head else rows
        scale_groups = -(-group.in_features // codecs.GROUP_SIZE) * n
        sums, values = max(sums, scale_groups), max(values, scale_groups * codecs.GROUP_SIZE)
        direct = is_head and group.out_features % 16 == 0 and not any(member.bias for member in group.members)
        if not direct:
            padded = max(padded, n * 16 * sum(tiles(member.out_features) * member.copies for member in group.members))
    n_bytes = len(set(knobs.planes)) * (4 * values + 8 * sums) + 4 * padded
    by = "int16 and int8 values, sums and units of the widest rows; fp32 results padded to tiles of 16"
    return exact("product_scratch", "ram", n_bytes, by)


def _thread_scratch(spec: ModelSpec, knobs: Knobs) -> Term:
    """What threads hold for rotations and attention, which grows with what they have computed so far."""
    heads = max((layer.n_heads for layer in spec.layers), default=1)
    kv_heads = min((layer.n_kv_heads for layer in spec.layers if layer.n_kv_heads), default=1)
    dim = max((max(layer.k_head_dim, layer.v_head_dim) for layer in spec.layers), default=0)
    padded = -(-dim // _BLOCK) * _BLOCK
    widest_in, widest_out = _widest(spec)
    one_thread = 2 * widest_in + widest_out
    one_thread += int(_SLACK * (_QUERIES * _SCORES + 16 * padded + 2 * _QUERIES * (padded + 2)))
    rows, chunks = chunk_rows(knobs), -(-(knobs.context_tokens + knobs.rows) // _CHUNK)
    queries = int(_SLACK * rows * heads * (padded + 16))
    few = max(1, min(rows, 4 * knobs.threads * _QUERIES // max(1, kv_heads * max(1, heads // kv_heads))))
    parts = [min(_MOST_PARTS, heads * n * chunks * (padded + 2)) for n in (1, few)]
    chosen = _chosen_bytes(spec, knobs)
    low = 4 * one_thread
    likely = 4 * (knobs.threads * one_thread + queries + int(_SLACK * parts[0])) + chosen
    high = 4 * (knobs.threads * one_thread + queries + int(_SLACK * parts[1])) + 2 * chosen
    by = f"{knobs.threads} threads × rotations and attention of heads of {dim}; {chunks} chunks; a shortlist"
    return Term("thread_scratch", "ram", max(low, likely), low, max(low, likely, high), by)


def _chosen_bytes(spec: ModelSpec, knobs: Knobs) -> int:
    """The head's tiles that a draft's shortlist touches, copied side by side: one tile an id, a few rows a level."""
    if not knobs.draft_nodes:
        return 0
    n_tiles = min(tiles(spec.vocab_size), _SHORTLIST * min(knobs.draft_nodes, 4))
    a_tile = codecs.split_bytes(16, spec.hidden_size, 2) + codecs.split_bytes(16, spec.hidden_size, knobs.residual_bits)
    return n_tiles * a_tile
