"""What one pass costs in one case of a machine's rates: draft, verify, prefill.

A pass is a sum over fused Linears of max(card work, host work + transfer) plus a hand-off each where the residual is
in RAM. Equal Linears are counted, not repeated: a model has a handful of shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twofold.planner import codecs
from twofold.planner.knobs import Knobs
from twofold.planner.kv import cache_bytes
from twofold.planner.per_spec import per_spec
from twofold.planner.rates import PLANES, Rates
from twofold.profiles.model_spec import LinearGroup, ModelSpec


@dataclass(frozen=True, slots=True)
class LinearWork:
    """One shape of fused Linear: bytes of base and residual, weights, width in and out, where the residual is."""

    base: int
    residual: int
    weights: int
    in_features: int
    out_features: int
    in_ram: bool

    @classmethod
    def of(cls, group: LinearGroup, bits: int, in_ram: bool) -> LinearWork:
        return cls(
            codecs.base_bytes(group),
            codecs.residual_bytes(group, bits),
            sum(member.n_weights for member in group.members),
            group.in_features,
            group.out_features,
            in_ram,
        )

    def host_seconds(self, rows: int, rate: Rates) -> float | None:
        """The CPU's part: the residual from RAM once or its arithmetic, whichever is longer, and the transfer."""
        if rate.ram_bytes_s is None or rate.link_bytes_s is None:
            return None
        compute = self.weights * (PLANES // 2) * rows / rate.cpu_macs_s
        link = rows * (2 * self.in_features + 4 * self.out_features) / rate.link_bytes_s
        return max(self.residual / rate.ram_bytes_s, compute) + link


@per_spec
def _shapes(spec: ModelSpec, bits: int) -> list[tuple[frozenset[str], LinearWork, LinearWork]]:
    """Names of the fused Linears of each shape, and its work with the residual on the card and in RAM."""
    names: dict[LinearWork, set[str]] = {}
    for group in spec.groups:
        names.setdefault(LinearWork.of(group, bits, False), set()).add(group.name)
    return [(frozenset(same), work, replace(work, in_ram=True)) for work, same in names.items()]


@dataclass(frozen=True, slots=True)
class Work:
    """What the passes of one set of knobs read. All experts count, so times of such models are upper bounds."""

    knobs: Knobs
    n_layers: int
    linears: tuple[tuple[LinearWork, int], ...]
    kv_fresh: int
    kv_full: int
    base: int
    host_residual: int
    everything: int
    weights: int
    head_residual: int

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
            base=sum(one.base * n for one, n in linears),
            host_residual=sum(one.residual * n for one, n in linears if one.in_ram),
            everything=sum((one.base + one.residual) * n for one, n in linears),
            weights=sum(one.weights * n for one, n in linears),
            head_residual=LinearWork.of(spec.head, knobs.residual_bits, False).residual,
        )

    def _cpu_pass(self, n_bytes: int, planes: int, rows: int, rate: Rates) -> float | None:
        if rate.cpu_bytes_s is None:
            return None
        compute = self.weights * planes * rows / rate.cpu_macs_s
        return max(n_bytes / rate.cpu_bytes_s, compute) + self.n_layers * rate.layer_s

    def draft_seconds(self, kv_bytes: int, rate: Rates) -> float | None:
        """One draft level: the base alone (on the CPU the head is whole), and the cache."""
        if self.knobs.device == "cpu":
            return self._cpu_pass(self.base + self.head_residual + kv_bytes, PLANES // 2, 1, rate)
        if rate.gpu_bytes_s is None:
            return None
        return (self.base + kv_bytes) / rate.gpu_bytes_s + self.n_layers * rate.layer_s

    def verify_seconds(self, kv_bytes: int, rate: Rates) -> float | None:
        """One verify pass over all rows of the tree."""
        rows = self.knobs.rows
        if self.knobs.device == "cpu":
            return self._cpu_pass(self.everything + kv_bytes, PLANES, rows, rate)
        if rate.gpu_bytes_s is None:
            return None
        total = kv_bytes / rate.gpu_bytes_s + self.n_layers * rate.layer_s
        for one, n in self.linears:
            if not one.in_ram:
                total += n * (one.base + one.residual) / rate.gpu_bytes_s
                continue
            host = one.host_seconds(rows, rate)
            if host is None:
                return None
            total += n * (max(one.base / rate.gpu_bytes_s, host) + rate.handoff_s)
        return total

    def host_seconds(self, rate: Rates) -> float | None:
        """The part of a verify pass that the CPU spends on residuals in RAM."""
        total = 0.0
        for one, n in self.linears:
            if one.in_ram:
                host = one.host_seconds(self.knobs.rows, rate)
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
        passes = -(-tokens // self.knobs.prefill_chunk)
        overhead = passes * self.n_layers * rate.layer_s
        if self.knobs.device == "cpu":
            if rate.cpu_bytes_s is None:
                return None
            compute = tokens * self.weights * PLANES / rate.cpu_macs_s
            return max(passes * self.everything / rate.cpu_bytes_s, compute) + overhead
        if rate.prefill_flops is None or rate.link_bytes_s is None:
            return None
        streaming = passes * self.host_residual / rate.link_bytes_s
        return max(streaming, 2 * self.weights * tokens / rate.prefill_flops) + overhead
