"""Where a machine's kernel timings come from: measured here, or reported by a profile of another machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from twofold.planner.knobs import Knobs
from twofold.planner.timed.kernels import Kernels
from twofold.profiles.activations import Activations, activation_words
from twofold.profiles.hardware import KernelTiming


@dataclass(frozen=True, slots=True, eq=False)
class KernelSource:
    """Timings with their origin. Those of a profile are reported, whatever it says of them: none was measured here."""

    timings: tuple[KernelTiming, ...]
    is_own: bool
    label: str = ""
    _made: dict[tuple[str, int, Activations], Kernels | None] = field(default_factory=dict)

    def kernels(self, isa: str, threads: int, activations: Activations) -> Kernels | None:
        """Those of a tier, number of threads and kind of activations; None where they do not make up a pass."""
        key = isa, threads, activations
        if key not in self._made:
            self._made[key] = Kernels.of(self.timings, *key)
        return self._made[key]

    def kernels_of(self, knobs: Knobs) -> Kernels | None:
        """Those that a plan runs."""
        return self.kernels(knobs.cpu_isa, knobs.threads, knobs.activations)

    def words(self, kernels: Kernels) -> str:
        """`sums of kernels measured here (avx2, 2 threads, n 7, spread 1.5 %)`."""
        whence = "measured here" if self.is_own else f"reported by {self.label}"
        threads = "1 thread" if kernels.threads == 1 else f"{kernels.threads} threads"
        at_least = f"n ≥ {kernels.n}, spread {100 * kernels.spread:.1f} %"
        how = threads + activation_words(kernels.activations, ", ")
        return f"sums of kernels {whence} ({kernels.isa}, {how}, {at_least})"
