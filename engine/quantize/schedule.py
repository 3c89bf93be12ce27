"""The steps of a quantisation: what is done between two notes in the work folder, and in what order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Task = Literal["both", "base", "refine", "residual"]
"""What a step rounds. `both`: a layer's base and residual. A refined draft is made in two walks over the layers, the
bases first (`base`), then, with their scales trained (`refine`), the residuals (`residual`). The head is always `both`.
"""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`layer` of a step is a decoder layer, or `n_layers` for the head (and for `refine`, which is of all layers)."""

    n_layers: int
    refine_passes: int = 0

    @property
    def n_steps(self) -> int:
        return (2 * self.n_layers + 2) if self.refine_passes else self.n_layers + 1

    def step(self, number: int) -> tuple[Task, int]:
        """The task and the layer of a step, counted from 0."""
        if not self.refine_passes:
            return "both", number
        if number <= self.n_layers:
            return ("base" if number < self.n_layers else "refine"), number
        layer = number - self.n_layers - 1
        return ("residual" if layer < self.n_layers else "both"), layer

    def from_step(self, number: int) -> Iterator[tuple[Task, int]]:
        """What is left behind the first `number` steps."""
        return (self.step(i) for i in range(max(0, number), self.n_steps))

    @property
    def refine_step(self) -> int:
        """The number of the step that trains the scales; behind it the streams start anew."""
        return self.n_layers
