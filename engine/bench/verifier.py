"""The verifier's product alone, from memory, as a share of what this machine can do at most.

A working set of many Linears of one shape is swept again and again, so that every weight comes from memory; a sample
goes on where the one before it ended. The roofline is the longer of two times: reading the codes and scales at the
bandwidth, and doing the multiply-adds at the peak of the same round. Rotating and quantising the rows is timed apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.engine.bench.kernels import weight_bytes
from twofold.engine.bench.limits import Kind, MultiplyRate, ReadRate, multiply_rates
from twofold.engine.bench.rounds import Rule, interleave, warm_up
from twofold.engine.checkpoint import CheckpointConfig
from twofold.kernels.cpu import native
from twofold.kernels.naive import ops as naive
from twofold.kernels.naive.packing import pack_base, pack_residual, pack_scales, residual_offset
from twofold.kernels.naive.split_weights import SplitWeights
from twofold.profiles.errors import EngineFailed
from twofold.profiles.figures import Figure
from twofold.profiles.series import Series

ROWS = (1, 4, 8, 16, 32)
SHAPE = (2048, 2048)
SAMPLE_SECONDS = 0.1
Sweep = Callable[[list[Any], NDArray[np.float32], bool, NDArray[np.float32]], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """Distinct Linears of one shape, and the outputs that numpy gives for the first of them."""

    weights: tuple[SplitWeights, ...]
    inputs: NDArray[np.float32]
    expected: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs of one Linear."""
        return self.weights[0].out_features, self.weights[0].in_features

    @property
    def nbytes(self) -> int:
        return sum(weight_bytes(one, True) for one in self.weights)


@dataclass(frozen=True, slots=True)
class ProductTime:
    """A product of `rows` rows with one Linear; `multiply_adds` are those of `instruction` that it needs."""

    rows: int
    isa: str
    threads: int
    read_bytes: int
    multiply_adds: int
    instruction: str
    bound: str
    latency_us: Figure
    prepare_us: Figure
    gb_s: Figure
    multiply_adds_s: Figure
    roofline_share: Figure

    def to_json(self) -> dict[str, Any]:
        figures = ("latency_us", "prepare_us", "gb_s", "multiply_adds_s", "roofline_share")
        plain = ("rows", "isa", "threads", "read_bytes", "multiply_adds", "instruction", "bound")
        return {name: getattr(self, name) for name in plain} | {name: getattr(self, name).to_json() for name in figures}


@dataclass(frozen=True, slots=True)
class PeakRate:
    """Multiply-adds a second of one instruction."""

    isa: str
    instruction: str
    threads: int
    multiply_adds_s: Figure

    def to_json(self) -> dict[str, Any]:
        plain = {"isa": self.isa, "instruction": self.instruction, "threads": self.threads}
        return plain | {"multiply_adds_s": self.multiply_adds_s.to_json()}


@dataclass(frozen=True, slots=True)
class VerifierTimes:
    """One tier: its products, and the limits of the same rounds."""

    products: list[ProductTime]
    peaks: list[PeakRate]
    read_gb_s: Figure


def working_set(
    config: CheckpointConfig, total_bytes: int, widest: int, shape: tuple[int, int] = SHAPE, seed: int = 0
) -> WorkingSet:
    """Random Linears as `config` packs them, of `total_bytes` in all (at least two); they rotate no outputs.

    Raises:
        ValueError: a shape that is not whole tiles, or inputs that are no power of two.
    """
    outputs, inputs = shape
    if outputs % 16 or inputs & (inputs - 1):
        raise ValueError(f"whole tiles of 16 outputs and a power of two of inputs, got {shape}")
    rng = np.random.default_rng(seed)
    first = _random_linear(rng, config, outputs, inputs)
    n = max(2, total_bytes // weight_bytes(first, True))
    names = ("base_codes", "base_scales", "residual_codes", "residual_scales")
    # one slab each, which the system may back with huge pages; every Linear is the first one with its tiles shifted
    slabs = {name: np.empty((n, *getattr(first, name).shape), getattr(first, name).dtype) for name in names}
    linears = []
    for i in range(n):
        parts = {name: slabs[name][i] for name in names}
        for name, part in parts.items():
            shift = i % first.n_tiles
            part[shift:], part[:shift] = _split(getattr(first, name), first.n_tiles - shift)
        linears.append(_like(first, parts))
    x = rng.standard_normal((widest, inputs)).astype(np.float32)
    return WorkingSet(tuple(linears), x, naive.split_linear(x, first, True))


def _split(tiles: NDArray[Any], at: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return tiles[:at], tiles[at:]


def _random_linear(rng: np.random.Generator, config: CheckpointConfig, outputs: int, inputs: int) -> SplitWeights:
    bits, groups = config.residual_bits, -(-inputs // config.group_size)
    highest = 2 * residual_offset(bits)

    def scales(size: float) -> NDArray[np.float16]:
        return pack_scales((rng.uniform(0.5, 1.5, (outputs, groups)) * size).astype(np.float16))

    return SplitWeights(
        in_features=inputs,
        member_rows=(outputs,),
        base_codes=pack_base(rng.integers(0, 4, (outputs, inputs), np.uint8)),
        base_scales=scales(0.01 / inputs**0.5),
        levels=np.array(config.base_levels, np.int8),
        residual_codes=pack_residual(rng.integers(0, highest + 1, (outputs, inputs), np.uint8), bits),
        residual_scales=scales(0.3 / highest / inputs**0.5),
        residual_bits=bits,
        group_size=config.group_size,
        base_planes=config.base_planes,
        residual_planes=config.residual_planes,
        exchange_dtype=config.exchange_dtype,
        input_signs=rng.choice(np.array([-1, 1], np.int8), inputs),
    )


def _like(first: SplitWeights, parts: dict[str, NDArray[Any]]) -> SplitWeights:
    return SplitWeights(
        in_features=first.in_features,
        member_rows=first.member_rows,
        levels=first.levels,
        residual_bits=first.residual_bits,
        group_size=first.group_size,
        base_planes=first.base_planes,
        residual_planes=first.residual_planes,
        exchange_dtype=first.exchange_dtype,
        input_signs=first.input_signs,
        base_codes=parts["base_codes"],
        base_scales=parts["base_scales"],
        residual_codes=parts["residual_codes"],
        residual_scales=parts["residual_scales"],
    )


def multiply_adds(weights: SplitWeights, rows: int, kind: Kind) -> int:
    """Multiply-adds that base and residual product of `rows` rows need: 16-bit ones do both planes at once."""
    planes = 2 if kind == "pairs" else weights.base_planes + weights.residual_planes
    return rows * weights.in_features * weights.out_features * planes


def check_products(linears: WorkingSet, rows: Sequence[int], tier: str, sweep: Sweep) -> None:
    """Compare the very products that are timed with numpy's, for every number of rows.

    Raises:
        EngineFailed: when a bit differs.
    """
    first = _bound(linears.weights[:1])
    for n in rows:
        out = np.full((n, linears.shape[0]), np.nan, np.float32)
        sweep(first, linears.inputs[:n], True, out)
        n_wrong = int(np.count_nonzero(out.view(np.uint32) != linears.expected[:n].view(np.uint32)))
        if n_wrong:
            raise EngineFailed(
                f"no speed is reported: the {tier} product of {n} rows computes other bits than numpy",
                found=f"{n_wrong} of {out.size} outputs differ",
                needed="the same bits",
                hint="twofold doctor, then: pip install --force-reinstall --no-deps .",
            )


def _bound(weights: Sequence[SplitWeights]) -> list[Any]:
    from twofold.kernels.cpu.ops import bound_linear

    return [bound_linear(one) for one in weights]


@dataclass(slots=True)
class _Products:
    """Sampler of seconds a product; keeps what preparing the rows took."""

    linears: list[Any]
    inputs: NDArray[np.float32]
    out: NDArray[np.float32]
    sweep: Sweep
    n_sample: int = 1
    next: int = 0
    prepare: list[float] = field(default_factory=list)

    def calibrate(self) -> None:
        """Choose how many products one sample takes, from a first one (which also pages everything in)."""
        started = time.perf_counter()
        self(0)
        self.n_sample = max(1, min(len(self.linears), int(SAMPLE_SECONDS / (time.perf_counter() - started))))

    def __call__(self, _round: int) -> float:
        chosen = [self.linears[(self.next + i) % len(self.linears)] for i in range(self.n_sample)]
        self.next = (self.next + self.n_sample) % len(self.linears)
        prepare, products = self.sweep(chosen, self.inputs, True, self.out)
        self.prepare.append(prepare)
        return products / self.n_sample


def time_verifier(
    linears: WorkingSet,
    tier: str,
    threads: int,
    rows: Sequence[int],
    read: ReadRate,
    rule: Rule,
    sweep: Sweep | None = None,
) -> VerifierTimes:
    """Check, then time products of every number of rows, with the bandwidth and the peaks in the same rounds.

    The tier and the pool must be in force. `sweep` stands for `_cpu.sweep_products`.

    Raises:
        EngineFailed: when a bit differs from numpy's.
    """
    run = native().sweep_products if sweep is None else sweep
    check_products(linears, rows, tier, run)
    bound = _bound(linears.weights)
    products = {}
    for n in rows:
        products[n] = _Products(bound, linears.inputs[:n], np.empty((n, linears.shape[0]), np.float32), run)
        products[n].calibrate()
    peaks = {(one.kind, one.threads): one for one in multiply_rates(threads)}
    samplers: dict[Any, Callable[[int], float]] = {"read": read, **peaks, **products}
    warm_up(samplers, rule)
    for one in products.values():
        one.prepare.clear()
    found = interleave(samplers, rule)
    limits = _Limits(found["read"], {kind: found[kind, n] for kind, n in peaks if n == threads}, peaks, threads)
    return VerifierTimes(
        [_product_time(linears, tier, n, products[n], found[n], limits) for n in rows],
        [
            PeakRate(tier, one.instruction, n, found[key].figure("MAC/s", "a loop of independent multiply-adds"))
            for key, one in peaks.items()
            for n in (one.threads,)
        ],
        found["read"].figure("GB/s", f"sequential read of {read.meter.bytes / 2**20:.1f} MiB, {threads} threads"),
    )


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the machine did in every round."""

    read: Series
    multiply: dict[Kind, Series]
    rates: dict[tuple[Kind, int], MultiplyRate]
    threads: int


def _product_time(
    linears: WorkingSet, tier: str, rows: int, sampler: _Products, seconds: Series, limits: _Limits
) -> ProductTime:
    first = linears.weights[0]
    read_bytes = weight_bytes(first, True)
    needed = {kind: multiply_adds(first, rows, kind) for kind in limits.multiply}
    # the fewest seconds that one of the tier's instructions needs for them
    kind = min(needed, key=lambda one: needed[one] / limits.multiply[one].median)
    reading = [read_bytes / 1e9 / one for one in limits.read.samples]
    multiplying = [needed[kind] / one for one in limits.multiply[kind].samples]
    shares = tuple(max(r, m) / s for r, m, s in zip(reading, multiplying, seconds.samples, strict=True))
    ended = seconds.ended_by
    shape = f"{linears.shape[0]} x {linears.shape[1]}"
    by = f"products from a working set of {linears.nbytes / 2**20:.1f} MiB ({len(linears.weights)} Linears of {shape})"
    return ProductTime(
        rows=rows,
        isa=tier,
        threads=limits.threads,
        read_bytes=read_bytes,
        multiply_adds=needed[kind],
        instruction=limits.rates[kind, limits.threads].instruction,
        bound="reading" if sum(reading) > sum(multiplying) else "multiplying",
        latency_us=_series(seconds, lambda s: s * 1e6).figure("us", f"{by}, rotation apart"),
        prepare_us=Series(tuple(s * 1e6 for s in sampler.prepare), ended).figure(
            "us", "rotating and quantising the rows, on one thread"
        ),
        gb_s=_series(seconds, lambda s: read_bytes / s / 1e9).figure("GB/s", f"{by}; codes and scales"),
        multiply_adds_s=_series(seconds, lambda s: needed[kind] / s).figure("MAC/s", by),
        roofline_share=Series(shares, ended).figure("1", f"{by}; of the limits in the same round"),
    )


def _series(series: Series, change: Callable[[float], float]) -> Series:
    return Series(tuple(change(one) for one in series.samples), series.ended_by)
