"""What one pass costs in one case of a machine's rates: draft, verify, prefill.

A pass is a sum over fused Linears of max(card work, host work + transfer) plus a hand-off each where the residual is
in RAM. Equal Linears are counted, not repeated: a model has a handful of shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twofold.kernels.naive.split_linear import DRAFT_PLANES
from twofold.planner import codecs
from twofold.planner.knobs import Knobs
from twofold.planner.kv import cache_bytes
from twofold.planner.per_spec import per_spec
from twofold.planner.rates import PRODUCTS, Rates
from twofold.profiles.model_spec import LinearGroup, ModelSpec


@dataclass(frozen=True, slots=True)
class LinearWork:
    """One shape of fused Linear: bytes of base and residual, weights, width in and out, where the residual is.

    Of experts the bytes and weights are those of all; a pass reads those that its rows are expected to choose.
    """

    base: int
    residual: int
    weights: int
    in_features: int
    out_features: int
    in_ram: bool
    copies: int = 1
    used_copies: int = 1

    @classmethod
    def of(cls, group: LinearGroup, bits: int, in_ram: bool) -> LinearWork:
        return cls(
            codecs.base_bytes(group),
            codecs.residual_bytes(group, bits),
            sum(member.n_weights for member in group.members),
            group.in_features,
            group.out_features,
            in_ram,
            group.members[0].copies,
            group.used_copies,
        )

    def share(self, rows: int) -> float:
        """The share of its bytes that a pass of `rows` rows reads."""
        return 1.0 - float((1.0 - self.used_copies / self.copies) ** rows)

    @property
    def used_weights(self) -> float:
        """Weights that one row is multiplied with."""
        return self.weights * self.used_copies / self.copies

    def host_seconds(self, rows: int, planes: int, rate: Rates) -> float | None:
        """The CPU's part: the residual from RAM once or its arithmetic, whichever is longer, and the transfer of so
        many int8 planes and of fp32 sums.
        """
        if rate.ram_bytes_s is None or rate.link_bytes_s is None:
            return None
        compute = self.used_weights * PRODUCTS[planes] * rows / rate.cpu_macs_s
        link = rows * self.used_copies * (planes * self.in_features + 4 * self.out_features) / rate.link_bytes_s
        return max(self.residual * self.share(rows) / rate.ram_bytes_s, compute) + link


@per_spec
def _shapes(spec: ModelSpec, bits: int) -> list[tuple[frozenset[str], LinearWork, LinearWork]]:
    """Names of the fused Linears of each shape, and its work with the residual on the card and in RAM."""
    names: dict[LinearWork, set[str]] = {}
    for group in spec.groups:
        names.setdefault(LinearWork.of(group, bits, False), set()).add(group.name)
    return [(frozenset(same), work, replace(work, in_ram=True)) for work, same in names.items()]


@dataclass(frozen=True, slots=True)
class Work:
    """What the passes of one set of knobs read. `used_weights` are those that one row is multiplied with."""

    knobs: Knobs
    n_layers: int
    linears: tuple[tuple[LinearWork, int], ...]
    kv_fresh: int
    kv_full: int
    used_weights: float

    @classmethod
    def of(cls, spec: ModelSpec, knobs: Knobs, fresh_tokens: int) -> Work:
        resident = frozenset(knobs.resident)
        linears = tuple(
            (work, n)
            for names, on_card, in_ram in _shapes(spec, knobs.residual_bits)
            for work, n in ((on_card, len(names & resident)), (in_ram, len(names - resident)))
            if n
        )
        fresh = cache_bytes(spec, min(fresh_tokens, knobs.context_tokens), knobs.k_type, knobs.v_type)
        full = cache_bytes(spec, knobs.context_tokens, knobs.k_type, knobs.v_type)
        return cls(
            knobs=knobs,
            n_layers=spec.n_layers,
            linears=linears,
            kv_fresh=fresh.total,
            kv_full=full.total,
            used_weights=sum(one.used_weights * n for one, n in linears),
        )

    def base_read(self, rows: int) -> float:
        """Bytes of the base that a pass of `rows` rows reads."""
        return sum(one.base * one.share(rows) * n for one, n in self.linears)

    def residual_read(self, rows: int, *, in_ram_only: bool = False) -> float:
        """Bytes of residuals that a pass of `rows` rows reads, wherever they are or in RAM only."""
        return sum(one.residual * one.share(rows) * n for one, n in self.linears if one.in_ram or not in_ram_only)

    @property
    def products(self) -> float:
        """Multiplications of a weight in a CPU pass with base and residual."""
        return sum(PRODUCTS[planes] for planes in self.knobs.planes)

    def _cpu_pass(self, n_bytes: float, products: float, rows: int, rate: Rates) -> float | None:
        if rate.cpu_bytes_s is None:
            return None
        compute = self.used_weights * products * rows / rate.cpu_macs_s
        return max(n_bytes / rate.cpu_bytes_s, compute) + self.n_layers * rate.layer_s

    def draft_seconds(self, kv_bytes: int, rate: Rates) -> float | None:
        """One draft level: the base alone over one plane, and the cache. The few rows of the head that are weighed in
        full are not counted: a hundredth of SmolLM2's base, less of a larger one.
        """
        if self.knobs.device == "cpu":
            return self._cpu_pass(self.base_read(1) + kv_bytes, PRODUCTS[DRAFT_PLANES], 1, rate)
        if rate.gpu_bytes_s is None:
            return None
        return (self.base_read(1) + kv_bytes) / rate.gpu_bytes_s + self.n_layers * rate.layer_s

    def verify_seconds(self, kv_bytes: int, rate: Rates) -> float | None:
        """One verify pass over all rows of the tree."""
        rows = self.knobs.tree_rows
        if self.knobs.device == "cpu":
            n_bytes = self.base_read(rows) + self.residual_read(rows) + kv_bytes
            return self._cpu_pass(n_bytes, self.products, rows, rate)
        if rate.gpu_bytes_s is None:
            return None
        total = kv_bytes / rate.gpu_bytes_s + self.n_layers * rate.layer_s
        for one, n in self.linears:
            share = one.share(rows)
            if not one.in_ram:
                total += n * (one.base + one.residual) * share / rate.gpu_bytes_s
                continue
            host = one.host_seconds(rows, self.knobs.planes[1], rate)
            if host is None:
                return None
            total += n * (max(one.base * share / rate.gpu_bytes_s, host) + rate.handoff_s)
        return total

    def host_seconds(self, rate: Rates) -> float | None:
        """The part of a verify pass that the CPU spends on residuals in RAM."""
        total = 0.0
        for one, n in self.linears:
            if one.in_ram:
                host = one.host_seconds(self.knobs.tree_rows, self.knobs.planes[1], rate)
                if host is None:
                    return None
                total += n * host
        return total

    def step_seconds(self, levels: int, kv_bytes: int, rate: Rates) -> float | None:
        """A draft pass per tree level and one verify pass."""
        verify = self.verify_seconds(kv_bytes, rate)
        draft = self.draft_seconds(kv_bytes, rate) if levels else 0.0
        return None if verify is None or draft is None else verify + levels * draft

    def prefill_seconds(self, tokens: int, rate: Rates) -> float | None:
        """Until the first token after a prompt of `tokens`: bytes moved or arithmetic, whichever is longer."""
        rows = min(tokens, self.knobs.prefill_chunk)
        passes = -(-tokens // self.knobs.prefill_chunk)
        overhead = passes * self.n_layers * rate.layer_s
        if self.knobs.device == "cpu":
            if rate.cpu_bytes_s is None:
                return None
            compute = tokens * self.used_weights * self.products / rate.cpu_macs_s
            read = self.base_read(rows) + self.residual_read(rows)
            return max(passes * read / rate.cpu_bytes_s, compute) + overhead
        if rate.prefill_flops is None or rate.link_bytes_s is None:
            return None
        streaming = passes * self.residual_read(rows, in_ram_only=True) / rate.link_bytes_s
        return max(streaming, 2 * self.used_weights * tokens / rate.prefill_flops) + overhead
