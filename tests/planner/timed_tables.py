"""Made-up kernel timings whose sums are plain: each part costs a known number of microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twofold.planner.timed import names
from twofold.profiles.activations import Activations
from twofold.profiles.figures import measured
from twofold.profiles.hardware import KernelTiming
from twofold.profiles.model_spec import ModelSpec

ROWS = (1, 2, 5, 9, 17, 64)
CONTEXTS = (64, 512, 4096)
Cost = Callable[[str, int, int], float]
"""(operation, size: weights, heads' work times context, values; rows) → microseconds."""


def timing(
    op: str,
    shape: str,
    bits: int,
    rows: int,
    us: float,
    *,
    isa: str = "avx2",
    threads: int = 2,
    spread: float = 0.0,
    activations: Activations = "int16",
) -> KernelTiming:
    figure = measured(us, "us", "made up", n=7, spread=spread)
    return KernelTiming(
        op=op, shape=shape, bits=bits, rows=rows, isa=isa, threads=threads, latency_us=figure, activations=activations
    )


def plain_cost(op: str, size: int, rows: int) -> float:
    """A fixed part and one for each row; draft passes cost half."""
    half = 0.5 if op in (names.LINEAR_BASE, names.HEAD_BASE) else 1.0
    return half * size * 1e-4 * (3 + rows)


def table(
    spec: ModelSpec,
    cost: Cost = plain_cost,
    *,
    bits: Iterable[int] = (6,),
    isa: str = "avx2",
    threads: int = 2,
    activations: Activations = "int16",
) -> tuple[KernelTiming, ...]:
    """Timings of all parts of `spec`."""
    return tuple(
        timing(op, shape, width, rows, cost(op, size, rows), isa=isa, threads=threads, activations=activations)
        for op, shape, width, size in _parts(spec, tuple(bits))
        for rows in ROWS
    )


def _parts(spec: ModelSpec, bits: tuple[int, ...]) -> Iterator[tuple[str, str, int, int]]:
    groups = {names.linear_shape(group): group for layer in spec.layers for group in layer.groups}
    for shape, group in groups.items():
        size = group.in_features * group.out_features
        for width in bits:
            yield names.LINEAR, shape, width, size
        yield names.LINEAR_BASE, shape, names.BASE_BITS, size
    head = spec.head.in_features * spec.head.out_features
    yield names.HEAD, names.linear_shape(spec.head), 8, head
    yield names.HEAD_BASE, names.linear_shape(spec.head), names.BASE_BITS, head
    for layer in {names.attention_heads(layer): layer for layer in spec.layers}.values():
        for context in CONTEXTS:
            work = layer.n_heads * (layer.k_head_dim + layer.v_head_dim) * context
            for kv in names.KV_BITS.values():
                shape = names.attention_shape(names.attention_heads(layer), context)
                yield names.ATTENTION, shape, kv, work * (16 + kv) // 32
    for kv in names.KV_BITS.values():
        yield names.LAYER_ROWS, names.row_values(spec), kv, int(names.row_values(spec))
    yield names.GUESS, str(spec.vocab_size), names.BASE_BITS, spec.vocab_size
    yield names.CHOOSE, str(spec.vocab_size), names.FLOAT_BITS, spec.vocab_size
    yield names.STEP, names.FIXED, names.FLOAT_BITS, 1000
