"""Major page faults while decoding: weights that are read from disk again, because memory is short.

Every step reads all weights, so after the first ones nothing is left to read for the first time but single rows of the
embedding. What faults beyond that was dropped from memory since.
"""

from __future__ import annotations

WARM_STEPS = 2
"""Steps after loading that may read anything for the first time."""

USUAL_FAULTS = 16
"""In a step, beside a row of the embedding for each of its tokens. Rereading weights faults once in about 128 KiB, or
once in 2 MiB where files lie in huge pages.
"""


def _major_faults() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


class RereadWatch:
    """Counts the steps that reread weights; `begin` and `end` enclose a step."""

    def __init__(self) -> None:
        self.steps = 0
        self._seen = 0
        self._begin = 0

    def begin(self) -> None:
        self._begin = _major_faults()

    def end(self, n_tokens: int) -> None:
        """`n_tokens`: how many tokens the step's passes looked up."""
        self._seen += 1
        if self._seen > WARM_STEPS and _major_faults() - self._begin > USUAL_FAULTS + n_tokens:
            self.steps += 1
