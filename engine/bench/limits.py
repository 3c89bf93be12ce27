"""What this machine can do at most, sampled in the same rounds as what is held against it.

Reading: one sequential band per thread (`ReadMeter`). Multiplying: the very instruction of a tier's product, with its
operands in registers and sums that do not wait for each other. Both are checked: the words read and the products summed
must add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from twofold.kernels.cpu import native
from twofold.profiles.errors import EngineFailed, InvalidOption
from twofold.profiles.units import MIB

Kind = Literal["pairs", "bytes"]
"""16-bit products (both planes of activations at once), or 8-bit ones (a plane at a time)."""
CHUNKS_A_THREAD = 8  # as products are cut, so that a thread that is disturbed holds up neither
_SECONDS = 0.01
_WEIGHT, _ACTIVATION = 3, 5


@dataclass(frozen=True, slots=True)
class MultiplyRate:
    """Sampler of multiply-adds a second by one instruction of the tier in force, on `chunks` shares of the pool."""

    kind: Kind
    instruction: str
    threads: int
    chunks: int
    repetitions: int

    def __call__(self, _round: int) -> float:
        seconds, done = run_multiply_adds(self.kind, self.chunks, self.repetitions)
        return done / seconds


@dataclass(frozen=True, slots=True)
class ReadRate:
    """Sampler of GB/s (10⁹ bytes) of reading a set larger than the caches."""

    threads: int
    meter: Any = field(repr=False)

    def __call__(self, _round: int) -> float:
        seconds = self.meter.sample()
        if self.meter.checksum != self.meter.expected_checksum:
            raise EngineFailed("no speed is reported: the memory read back differs from what was written")
        return float(self.meter.bytes / seconds / 1e9)


def run_multiply_adds(kind: Kind, chunks: int, repetitions: int) -> tuple[float, int]:
    """Seconds and multiply-adds of one run, whose sum is checked.

    Raises:
        EngineFailed: when the sum is not what as many products give.
    """
    seconds, done, checksum = native().multiply_adds(kind, chunks, repetitions, _WEIGHT, _ACTIVATION)
    if checksum != _WEIGHT * _ACTIVATION * done % (1 << 32):
        raise EngineFailed("no speed is reported: the loop of multiply-adds gives a wrong sum", found=str(checksum))
    return seconds, done


def multiply_rates(threads: int) -> list[MultiplyRate]:
    """Samplers for every instruction of the tier in force, on one thread and on all of the pool."""
    counts = sorted({1, threads})
    return [
        MultiplyRate(kind, instruction, n, n if n == 1 else n * CHUNKS_A_THREAD, _repetitions(kind, n))
        for kind, instruction in native().multiply_instructions().items()
        for n in counts
    ]


def _repetitions(kind: Kind, threads: int) -> int:
    repetitions = 256
    while run_multiply_adds(kind, 1, repetitions)[0] < _SECONDS / 4:
        repetitions *= 2
    return repetitions * 4 if threads == 1 else max(1, repetitions * 4 // CHUNKS_A_THREAD)


def read_rate(total_bytes: int, cpus: Sequence[int], threads: int) -> ReadRate:
    """A sampler with `threads` threads, pinned to `cpus` where there is one for each.

    Raises:
        InvalidOption: when the memory cannot be had.
    """
    chosen = list(cpus[:threads]) if len(cpus) >= threads else [-1] * threads
    try:
        return ReadRate(threads, native().ReadMeter(total_bytes, chosen))
    except MemoryError:
        raise InvalidOption(
            "there is no memory for the set to read", found=f"{total_bytes // MIB} MiB", hint="--working-set-mib 64"
        ) from None
