"""Where a machine's kernel timings come from: measured here, or reported by a profile of another machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from twofold.planner.timed.kernels import Kernels
from twofold.profiles.hardware import KernelTiming


@dataclass(frozen=True, slots=True, eq=False)
class KernelSource:
    """Timings with their origin. Those of a profile are reported, whatever it says of them: none was measured here."""

    timings: tuple[KernelTiming, ...]
    is_own: bool
    label: str = ""
    _made: dict[tuple[str, int], Kernels | None] = field(default_factory=dict)

    def kernels(self, isa: str, threads: int) -> Kernels | None:
        """Those of a tier and number of threads; None where they do not make up a pass."""
        if (isa, threads) not in self._made:
            self._made[isa, threads] = Kernels.of(self.timings, isa, threads)
        return self._made[isa, threads]

    def words(self, kernels: Kernels) -> str:
        """`sums of kernels measured here (avx2, 2 threads, n 7, spread 1.5 %)`."""
        whence = "measured here" if self.is_own else f"reported by {self.label}"
        threads = "1 thread" if kernels.threads == 1 else f"{kernels.threads} threads"
        at_least = f"n ≥ {kernels.n}, spread {100 * kernels.spread:.1f} %"
        return f"sums of kernels {whence} ({kernels.isa}, {threads}, {at_least})"
