"""Speeds that the time model works with: what a machine's figures become in the slow, likely and fast case.

Bandwidths are multiplied by efficiency ranges taken from reported figures; nothing here is a measured kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twofold.planner.machine import CardBudget, HostBudget
from twofold.profiles.figures import Figure, reasoned

Triple = tuple[float, float, float]
"""(slow, likely, fast)."""
Cases = tuple["Rates", "Rates", "Rates"]
"""A machine's rates in each case."""

# Reported 2-bit GPU kernels read at 35 to 74 % of the card's bandwidth (hashed trellis on a 3090 35 %, ternary on a
# 3060 64 %, integer trellis on a 4080 74 %).
GPU_EFFICIENCY: Triple = (0.35, 0.55, 0.74)
# A packed residual kernel against the machine's read bandwidth: reported at the memory wall up to 16 rows (4.29 GB in
# 108 to 125 ms, 34 to 40 GB/s, on RAM that was measured at 33 to 38). Kernels that are not written for it fall short.
RESIDUAL_EFFICIENCY: Triple = (0.65, 1.0, 1.05)
# The whole CPU pass (base, residual, attention, everything between) against the same.
CPU_PASS_EFFICIENCY: Triple = (0.3, 0.6, 0.9)
# The link figure is practical already; small transfers fall short of it.
LINK_EFFICIENCY: Triple = (0.8, 0.95, 1.0)
# One hand-off between card and host: flag, wait, wake.
HANDOFF_S: Triple = (60e-6, 25e-6, 10e-6)
# Everything of a layer that is no weight read: norms, rotations, attention start-up, launches inside a graph.
LAYER_OVERHEAD_S: Triple = (60e-6, 30e-6, 15e-6)
# Prefill of reported 27B runs: 54 TFLOP/s on 936 GB/s and 15 TFLOP/s on 360 GB/s, hence 40 to 58 FLOP per byte of
# bandwidth.
PREFILL_FLOP_PER_BYTE: Triple = (25.0, 40.0, 60.0)
# int8 multiply-adds per second and core, by kernel tier: clock × width × a broad efficiency. (A reported fp32 kernel
# of 16 AVX-512 cores did 42e9 per core; an int8 dot product does four multiply-adds where that does one.)
MACS_PER_CORE: dict[str, Triple] = {
    "generic": (0.4e9, 1.2e9, 4e9),
    "avx2": (8e9, 25e9, 55e9),
    "avx512": (30e9, 120e9, 250e9),
    "avx512vbmi": (40e9, 165e9, 300e9),
}
# What the products of a row take, by the int8 planes that carry it, in multiplications of a weight: weights are decoded
# once for both planes. Measured with base and residual under AVX2, cycles for 32 weights with one plane and with two:
# 8.4 and 12.5 at one row, 7.2 and 11 at four, 6.5 and 9 at 32. Two are what the figures above were taken for.
PRODUCTS = {1: 4 / 3, 2: 2.0}
UNKNOWN_MACS: Triple = (MACS_PER_CORE["generic"][0], MACS_PER_CORE["avx2"][1], MACS_PER_CORE["avx512vbmi"][2])
UNKNOWN_CORES: Triple = (4.0, 8.0, 16.0)


@dataclass(frozen=True, slots=True)
class Rates:
    """One case. Bytes per second, multiply-adds per second, seconds. None where the machine's figure is unknown."""

    gpu_bytes_s: float | None
    ram_bytes_s: float | None
    cpu_bytes_s: float | None
    cpu_macs_s: float
    link_bytes_s: float | None
    prefill_flops: float | None
    handoff_s: float
    layer_s: float


def _bounds(figure: Figure) -> Triple | None:
    """A figure's slow, likely and fast value: its own bounds, its spread, or the value thrice."""
    if not figure.is_known or isinstance(figure.value, bool | str | list):
        return None
    value = figure.number
    spread = (figure.spread or 0.0) / 2
    low = figure.low if figure.low is not None else value - spread
    high = figure.high if figure.high is not None else value + spread
    return (max(low, value * 0.1), value, high)


def _scaled(figure: Figure | None, efficiency: Triple, unit: float = 1e9) -> tuple[float | None, ...]:
    bounds = _bounds(figure) if figure is not None else None
    if bounds is None:
        return (None, None, None)
    return tuple(bound * share * unit for bound, share in zip(bounds, efficiency, strict=True))


def rates(card: CardBudget | None, host: HostBudget | None) -> Cases:
    """The slow, likely and fast case of one card and its host."""
    gpu = _scaled(card.bandwidth_gb_s if card else None, GPU_EFFICIENCY)
    link = _scaled(card.link_gb_s if card else None, LINK_EFFICIENCY)
    flops = _scaled(card.bandwidth_gb_s if card else None, PREFILL_FLOP_PER_BYTE)
    ram_figure = host.ram_read_gb_s if host else None
    ram = _scaled(ram_figure, RESIDUAL_EFFICIENCY)
    cpu = _scaled(ram_figure, CPU_PASS_EFFICIENCY)
    tier = host.isa_tier if host else None
    macs = MACS_PER_CORE.get(tier, UNKNOWN_MACS) if tier else UNKNOWN_MACS
    cores = (_bounds(host.cores) if host else None) or UNKNOWN_CORES

    def case(i: int) -> Rates:
        return Rates(gpu[i], ram[i], cpu[i], macs[i] * cores[i], link[i], flops[i], HANDOFF_S[i], LAYER_OVERHEAD_S[i])

    return case(0), case(1), case(2)


def case_figure(
    values: Sequence[float | None], unit: str, by: str, *, scale: float = 1.0, digits: int = 4
) -> Figure | None:
    """The slow, likely and fast case as one figure, times `scale`; None where a case is not known."""
    slow, likely, fast = values
    if slow is None or likely is None or fast is None:
        return None
    low, high = sorted((slow * scale, fast * scale))
    return reasoned(round(likely * scale, digits), unit, by, low=round(low, digits), high=round(high, digits))
