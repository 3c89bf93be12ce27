"""The tuner on simulated surfaces: what it returns against trial 0 and against the best there is.

`python benchmarks/tuning_surface.py`: 200 seeds of six families of machines, 3 % noise on every sample. Exit code 1: a
plan that is truly more than 1 % slower than trial 0 came back, or less than 90 % of the gain where 10 % and more can be
had. Gains are shares of trial 0's true seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass

from surfaces import FAMILIES, Reading, Surface

from twofold.planner.tuning.tuner import TRIALS, Tuner

MOST_LOSS = 0.01
LEAST_SHARE = 0.9
WORTH_IT = 0.1


@dataclass(frozen=True)
class Case:
    """One run. `gain` and `available` are shares of trial 0's true time saved; `share` is one over the other."""

    family: str
    seed: int
    gain: float
    available: float
    is_tuned: bool
    samples: int
    seconds: float

    @property
    def share(self) -> float:
        return self.gain / self.available if self.available > 0 else 1.0

    @property
    def is_judged(self) -> bool:
        return self.available >= WORTH_IT

    @property
    def misses(self) -> list[str]:
        found = [f"{100 * -self.gain:.1f} % slower than trial 0"] if self.gain < -MOST_LOSS else []
        if self.is_judged and self.share < LEAST_SHARE:
            found.append(f"{100 * self.share:.1f} % of a gain of {100 * self.available:.1f} %")
        return found


def run_case(family: str, seed: int, noise: float, reading: Reading, n_trials: int) -> Case:
    surface = Surface(family, seed, noise=noise, reading=reading)
    started = time.process_time()
    found = Tuner(surface.space, surface, surface.baseline, n_trials=n_trials, seed=seed).run()
    spent = time.process_time() - started
    first = surface.true_seconds(surface.baseline)
    return Case(
        family,
        seed,
        1 - surface.true_seconds(found.point) / first,
        1 - surface.best() / first,
        found.is_tuned,
        surface.n_samples,
        spent,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--reading", choices=("pieces", "turns"), default="pieces")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--format", choices=("human", "json"), default="human")
    given = parser.parse_args(arguments)
    wanted = [
        (family, seed, given.noise, given.reading, given.trials)
        for family in FAMILIES
        for seed in range(given.first, given.first + given.seeds)
    ]
    columns = zip(*wanted, strict=True)
    if given.workers == 1:
        cases = list(map(run_case, *columns))
    else:
        with ProcessPoolExecutor(given.workers) as pool:
            cases = list(pool.map(run_case, *columns, chunksize=8))
    if given.format == "json":
        print(json.dumps([asdict(case) for case in cases]))
    else:
        show(cases)
    return 1 if any(case.misses for case in cases) else 0


def show(cases: Sequence[Case]) -> None:
    columns = f"{'cases':>6}{'≥ 10 %':>8}{'worst share':>13}{'median':>8}{'worst loss':>12}{'samples':>9}{'s':>6}"
    print(f"{'family':<20}{columns}")
    for family in FAMILIES:
        own = [case for case in cases if case.family == family]
        judged = [case.share for case in own if case.is_judged]
        worst, middle = (min(judged), statistics.median(judged)) if judged else (float("nan"),) * 2
        loss = max(0.0, *(-case.gain for case in own))
        samples = statistics.median(case.samples for case in own)
        spent = statistics.mean(case.seconds for case in own)
        print(
            f"{family:<20}{len(own):>6}{len(judged):>8}{worst:>13.3f}{middle:>8.3f}{100 * loss:>10.2f} %"
            f"{samples:>9.0f}{spent:>6.2f}"
        )
    missed = [case for case in cases if case.misses]
    for case in missed:
        print(f"missed: {case.family}, seed {case.seed}: {'; '.join(case.misses)}")
    print(f"{len(missed)} of {len(cases)} cases missed")


if __name__ == "__main__":
    sys.exit(main())
