"""`bench --kernels`: split Linears alone, as GB/s of weights read, for every shape, width and instruction set.

A sample sweeps over all layers' weights of one shape, so that they come from memory as in a real pass (a single layer
of a small model would stay in the cache).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.backend import Backend, choose_backend
from twofold.engine.bench.rounds import Rule, interleave, warm_up
from twofold.engine.bench.self_check import SelfCheck, check_kernels
from twofold.engine.checkpoint import Checkpoint
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.figures import Figure
from twofold.profiles.series import Series

SAMPLE_SECONDS = 2.0
TIER_SECONDS = 20.0
"""Limits of sampling one Linear, and of the verifier's product or attention on a tier."""
WARM_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One Linear's product: `weight_bytes` are codes and scales read per call."""

    group: str
    in_features: int
    out_features: int
    rows: int
    residual: bool
    isa: str
    threads: int
    weight_bytes: int
    latency_us: Figure
    gb_s: Figure

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "shape": [self.out_features, self.in_features],
            "rows": self.rows,
            "residual": self.residual,
            "isa": self.isa,
            "threads": self.threads,
            "weight_bytes": self.weight_bytes,
            "latency_us": self.latency_us.to_json(),
            "gb_s": self.gb_s.to_json(),
        }


@dataclass(frozen=True, slots=True)
class _Sweep:
    """All layers' weights of one shape, with inputs for the widest pass."""

    group: str
    weights: tuple[SplitWeights, ...]
    inputs: NDArray[np.float32]

    def bytes_read(self, residual: bool) -> int:
        return sum(weight_bytes(one, residual) for one in self.weights)


def weight_bytes(weights: SplitWeights, residual: bool) -> int:
    """Bytes of codes and scales that one product reads."""
    base = weights.base_codes.nbytes + weights.base_scales.nbytes
    return base + (weights.residual_codes.nbytes + weights.residual_scales.nbytes if residual else 0)


def kernel_rule(repeats: int | None, seconds: float) -> Rule:
    """How long kernels are sampled; with `repeats` as many rounds, and no more to warm up."""
    warm = WARM_ROUNDS if repeats is None else min(WARM_ROUNDS, repeats)
    return Rule(repeats=repeats, max_seconds=seconds, min_rounds=5, warm_rounds=warm)


def n_shapes(checkpoint: Checkpoint) -> int:
    """Distinct Linears, each of which is a sweep."""
    return len({_short(group.name) for group in checkpoint.spec.groups})


def time_kernels(
    checkpoint: Checkpoint,
    tiers: Sequence[str],
    threads: int,
    widths: Sequence[int],
    repeats: int | None = None,
    tell: Callable[[str, float], None] = lambda *_: None,
) -> tuple[list[KernelTime], SelfCheck]:
    """Time every distinct shape under every tier; each tier is checked against numpy first.

    Raises:
        EngineFailed: a tier computes other bits than numpy. InvalidOption: a tier that this machine lacks.
    """
    sweeps = _sweeps(checkpoint, max(widths))
    found: list[KernelTime] = []
    check: SelfCheck | None = None
    for tier in tiers:
        backend = choose_backend("cpu", threads, tier)
        tell(f"checking {tier}", 0)
        check = check_kernels(checkpoint, backend.ops, range(1, 6))
        for done, sweep in enumerate(sweeps):
            tell(f"Linears on {tier}", done / len(sweeps))
            rule = kernel_rule(repeats, SAMPLE_SECONDS)
            found += _time_sweep(sweep, backend, tier, threads, widths, rule)
    if check is None:
        raise ValueError("no tier to time")
    return found, check


def _sweeps(checkpoint: Checkpoint, widest: int) -> list[_Sweep]:
    groups = checkpoint.spec.groups
    names = dict.fromkeys(_short(group.name) for group in groups)
    rng = np.random.default_rng(0)
    sweeps = []
    for short in names:
        same = tuple(checkpoint.group(group.name) for group in groups if _short(group.name) == short)
        inputs = rng.standard_normal((widest, same[0].in_features)).astype(np.float32)
        sweeps.append(_Sweep(short, same, inputs))
    return sweeps


def _short(name: str) -> str:
    """`model.layers.7.mlp.down` → `mlp.down`."""
    parts = name.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), -1)
    return ".".join(parts[number + 1 :])


def _time_sweep(
    sweep: _Sweep, backend: Backend, tier: str, threads: int, widths: Sequence[int], rule: Rule
) -> list[KernelTime]:
    out = np.empty((max(widths), sweep.weights[0].out_features), np.float32)
    keys = [(width, residual) for width in widths for residual in (True, False)]
    samplers = {key: partial(_sample, sweep, backend.ops, out, *key) for key in keys}
    warm_up(samplers, rule)
    return [_kernel_time(sweep, tier, threads, key, series) for key, series in interleave(samplers, rule).items()]


def _sample(sweep: _Sweep, ops: Any, out: NDArray[np.float32], rows: int, residual: bool, _round: int) -> float:
    inputs, output = sweep.inputs[:rows], out[:rows]
    start = time.perf_counter()
    for weights in sweep.weights:
        ops.split_linear(inputs, weights, residual, out=output)
    return time.perf_counter() - start


def _kernel_time(sweep: _Sweep, tier: str, threads: int, key: tuple[int, bool], seconds: Series) -> KernelTime:
    (rows, residual), n, first = key, len(sweep.weights), sweep.weights[0]
    read = sweep.bytes_read(residual)
    latency = Series(tuple(one / n * 1e6 for one in seconds.samples), seconds.ended_by)
    speed = Series(tuple(read / one / 1e9 for one in seconds.samples), seconds.ended_by)
    by = f"a sweep over {n} layers' weights ({read / 2**20:.1f} MiB), rotations included"
    return KernelTime(
        group=sweep.group,
        in_features=first.in_features,
        out_features=first.out_features,
        rows=rows,
        residual=residual,
        isa=tier,
        threads=threads,
        weight_bytes=read // n,
        latency_us=latency.figure("us", by),
        gb_s=speed.figure("GB/s", by),
    )
