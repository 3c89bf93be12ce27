"""`Kernels`: timings of one machine, tier, number of threads and kind of activations, asked for any shape, width and
number of rows.

A shape that was timed is answered by its own curve. Another one is scaled from those timed (Linears by their weights,
attention by its heads, the rest by its values): its range then reaches from the best to the worst of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twofold.planner.plan import KvType
from twofold.planner.timed import names
from twofold.planner.timed.curve import NOTHING, Estimate, between
from twofold.planner.timed.surface import Points, Surface
from twofold.profiles.activations import USUAL, Activations
from twofold.profiles.figures import Figure
from twofold.profiles.hardware import KernelTiming
from twofold.profiles.model_spec import LayerSpec, LinearGroup

GROUP = 128
"""Inputs of a scale group, as checkpoints are made."""
SCALED = 0.05
"""Least relative uncertainty of what is scaled from another shape."""
_SHAPES = {
    **dict.fromkeys(
        (names.LINEAR, names.LINEAR_BASE, names.HEAD, names.HEAD_BASE), re.compile(r"[1-9]\d{0,8}x[1-9]\d{0,8}")
    ),
    names.ATTENTION: re.compile(r"[1-9]\d{0,5}/[1-9]\d{0,5}x[1-9]\d{0,5}\+[1-9]\d{0,5}@[1-9]\d{0,8}"),
    **dict.fromkeys((names.LAYER_ROWS, names.GUESS, names.CHOOSE), re.compile(r"[1-9]\d{0,8}")),
    names.STEP: re.compile(names.FIXED),
}
"""Of each operation; what a foreign file calls otherwise is left out."""
NEEDED = (names.LINEAR, names.LINEAR_BASE, names.ATTENTION, names.LAYER_ROWS, names.HEAD, names.HEAD_BASE)


def _seconds(figure: Figure) -> Estimate:
    half = (figure.spread or 0.0) / 2
    return Estimate(max(0.0, figure.number - half) / 1e6, figure.number / 1e6, (figure.number + half) / 1e6)


@dataclass(slots=True)
class Kernels:
    """See the module. `tables` are points by operation, shape and width; `n` the fewest samples behind one of them."""

    isa: str
    threads: int
    tables: dict[str, dict[tuple[str, int], Points]] = field(default_factory=dict)
    activations: Activations = USUAL
    n: int = 0
    spread: float = 0.0
    _known: dict[tuple[object, ...], Estimate] = field(default_factory=dict)
    _surfaces: dict[int, dict[str, Surface]] = field(default_factory=dict)
    _others: dict[tuple[str, str, int], Points] = field(default_factory=dict)

    @classmethod
    def of(
        cls, timings: Iterable[KernelTiming], isa: str, threads: int, activations: Activations = USUAL
    ) -> Kernels | None:
        """The timings of a tier with so many threads and these activations; None where they do not make up a pass."""
        found = cls(isa, threads, activations=activations)
        counts, spreads = [], []
        for one in timings:
            figure = one.latency_us
            pattern = _SHAPES.get(one.op)
            of_plan = (one.isa, one.threads, one.activations) == (isa, threads, activations)
            if not of_plan or pattern is None or not pattern.fullmatch(one.shape):
                continue
            if not figure.is_number or figure.number <= 0:
                continue
            found.tables.setdefault(one.op, {}).setdefault((one.shape, one.bits), {})[one.rows] = _seconds(figure)
            counts.append(figure.n or 1)
            spreads.append((figure.spread or 0.0) / figure.number)
        if not all(found.tables.get(op) for op in NEEDED):
            return None
        found.n, found.spread = min(counts), sorted(spreads)[len(spreads) // 2]
        return found

    def linear(self, op: str, group: LinearGroup, bits: int, rows: int) -> Estimate:
        """A fused Linear, or the head, at a residual width."""
        key = (op, names.linear_shape(group), bits, rows)
        if key not in self._known:
            self._known[key] = self._linear(op, group, bits, rows)
        return self._known[key]

    def _linear(self, op: str, group: LinearGroup, bits: int, rows: int) -> Estimate:
        table, shape = self.tables[op], names.linear_shape(group)
        if (shape, bits) in table:
            return self._at(table[shape, bits], rows)
        widths = sorted({width for _, width in table}, key=lambda width: (abs(width - bits), -width))
        gap = None if widths[0] == bits else f"{op}: {bits} bits are taken from {widths[0]}"
        own = table.get((shape, widths[0]))
        found = self._at(own if own is not None else self._other_shape(op, shape, widths[0]), rows)
        if gap is None:
            return found
        # between "time follows the bytes of a weight" and "time does not depend on its width"
        change = (bits + names.BASE_BITS) / (widths[0] + names.BASE_BITS)
        low, high = sorted((1.0, change))
        return Estimate(found.low * low, found.likely, found.high * high, found.gaps | {gap})

    def _other_shape(self, op: str, shape: str, bits: int) -> Points:
        """A shape that was never timed, at the rows that others were. What lies between and beyond is read off these as
        off timings, made never falling: predicted for each number of rows alone, a wider pass could cost less, since
        the shapes timed scatter apart from each other.
        """
        key = op, shape, bits
        if key not in self._others:
            timed = {_sizes(one): points for (one, width), points in self.tables[op].items() if width == bits}
            self._others[key] = {
                rows: other_shape(
                    {sizes: self._at(points, rows) for sizes, points in timed.items()},
                    _sizes(shape),
                    f"{op} of other shapes",
                )
                for rows in sorted({rows for points in timed.values() for rows in points})
            }
        return self._others[key]

    def attention(self, layer: LayerSpec, kv_type: KvType, context: int, rows: int) -> Estimate:
        """Attention of a layer behind `context` committed positions."""
        visible = names.seen(layer, context)
        key = (names.ATTENTION, names.attention_heads(layer), kv_type, visible, rows)
        if key not in self._known:
            self._known[key] = self._attention(layer, names.KV_BITS[kv_type], visible, rows)
        return self._known[key]

    def _attention(self, layer: LayerSpec, bits: int, visible: int, rows: int) -> Estimate:
        by_heads = self._attention_surfaces(bits)
        if not by_heads:
            wider = self._attention(layer, 16, visible, rows) if bits != 16 else NOTHING
            return wider.widened(0.5, f"attention over {bits}-bit caches was not timed")
        own = names.attention_heads(layer)
        if own in by_heads:
            return by_heads[own].at(visible, rows)
        work = layer.n_heads * (layer.k_head_dim + layer.v_head_dim)
        parts = [one.at(visible, rows).times(work / _attention_work(heads)) for heads, one in by_heads.items()]
        return _spanned(parts, "attention of other heads")

    def _attention_surfaces(self, bits: int) -> dict[str, Surface]:
        """By heads, over caches of so many bits."""
        if bits not in self._surfaces:
            by_heads: dict[str, dict[int, Points]] = {}
            for (shape, width), points in self.tables[names.ATTENTION].items():
                heads, _, context = shape.rpartition("@")
                if width == bits and context.isdigit():
                    by_heads.setdefault(heads, {})[int(context)] = points
            self._surfaces[bits] = {heads: Surface(curves) for heads, curves in by_heads.items()}
        return self._surfaces[bits]

    def by_values(self, op: str, values: str, bits: int, rows: int) -> Estimate:
        """What grows with a number of values: row operations, choices; nothing where it was not timed."""
        key = (op, values, bits, rows)
        if key not in self._known:
            self._known[key] = self._by_values(op, values, bits, rows)
        return self._known[key]

    def _by_values(self, op: str, values: str, bits: int, rows: int) -> Estimate:
        table = self.tables.get(op, {})
        if not table:
            return NOTHING.widened(0.0, f"{op}: not timed")
        own = table.get((values, bits))
        if own is not None:
            return self._at(own, rows)
        same = [(shape, points) for (shape, width), points in table.items() if width == bits] or [
            (shape, points) for (shape, _), points in table.items()
        ]
        if values == names.FIXED:
            return self._at(same[0][1], rows)
        near = [(int(shape), self._at(points, rows)) for shape, points in same]
        # between "a cost of its own" and "as its values"
        parts = [part for size, one in near for part in (one, one.times(int(values) / size))]
        return _spanned(parts, f"{op} of other sizes")

    @staticmethod
    def _at(points: Points, rows: int) -> Estimate:
        return points[rows] if rows in points and len(points) == 1 else between(rows, points.items(), "rows")


def _sizes(shape: str) -> tuple[int, int]:
    """Outputs and inputs."""
    outputs, _, inputs = shape.partition("x")
    return int(outputs), int(inputs)


def other_shape(known: Mapping[tuple[int, int], Estimate], wanted: tuple[int, int], gap: str) -> Estimate:
    """A Linear of `wanted` outputs and inputs: so much for each weight and so much for each value rotated, by least
    squares of the relative errors over those `known`; the range is as wide as the worst of them is off.
    """
    features = {sizes: _features(sizes) for sizes in known}
    rows = [(features[sizes][0] / one.likely, features[sizes][1] / one.likely) for sizes, one in known.items()]
    weight, value = _least_squares(rows)

    def at(sizes: tuple[int, int]) -> float:
        return weight * _features(sizes)[0] + value * _features(sizes)[1]

    likely = at(wanted)
    off = max(abs(at(sizes) / one.likely - 1) for sizes, one in known.items())
    spread = max((one.high - one.low) / (2 * one.likely) for one in known.values())
    gaps = frozenset({gap}).union(*(one.gaps for one in known.values()))
    return Estimate(likely, likely, likely, gaps).widened(max(SCALED, off + spread))


def _features(sizes: tuple[int, int]) -> tuple[int, int]:
    """Weights, the last scale group counted as a whole one (which it costs), and values."""
    outputs, inputs = sizes
    return outputs * -(-inputs // GROUP) * GROUP, outputs + inputs


def _least_squares(rows: list[tuple[float, float]]) -> tuple[float, float]:
    """(a, b), neither negative, with a x + b y nearest to 1 over all (x, y); b is 0 where one row says it all."""
    xx, xy, yy = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, y = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = xx * yy - xy * xy
    if len(rows) > 1 and determinant > 1e-9 * xx * yy:
        a, b = (x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant
        if a >= 0 and b >= 0:
            return a, b
    return x / xx, 0.0


def _attention_work(heads: str) -> int:
    """Heads times the widths of K and V, of `9/3x64+64`."""
    n_heads, _, rest = heads.partition("/")
    k_dim, _, v_dim = rest.partition("x")[2].partition("+")
    return int(n_heads) * (int(k_dim) + int(v_dim))


def _spanned(parts: list[Estimate], gap: str) -> Estimate:
    """Several guesses of one thing: their mean, and the range of all of them."""
    likely = sum(one.likely for one in parts) / len(parts)
    gaps = frozenset({gap}).union(*(one.gaps for one in parts))
    low, high = min(one.low for one in parts), max(one.high for one in parts)
    return Estimate(low, likely, high, gaps).widened(SCALED)
