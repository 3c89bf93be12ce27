"""The search itself: Optuna's TPE over a `Space`, the analytic default first, infeasible points as constraints, then
the neighbours of the best point found (one knob, one step), until none is better or the trials are used up.

What comes back is never worse than trial 0: it is the best feasible trial by the objective's own figures, and trial 0
where none is better. The optimum of an enumeration is never handed in.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.planner.search.space import Point, Space
from twofold.profiles.errors import InvalidOption
from twofold.profiles.text import one_line

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

TRIALS = 200
_SHORTFALL = "shortfall_mib"
_STARTUP_TRIALS = 24
GLOBAL_SHARE = 0.5
"""Of the trials, those that the sampler proposes; the rest look around the best of them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a point gives: seconds of a turn (None: it was not run, as it does not fit), and the MiB that are missing.

    `shortfall_mib` ≤ 0 means that it fits, with that much to spare.
    """

    seconds: float | None
    shortfall_mib: float

    @property
    def is_feasible(self) -> bool:
        return self.seconds is not None and self.shortfall_mib <= 0


Objective = Callable[[Point], Outcome]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best point with its outcome, trial 0's, and how many points were tried and did not fit."""

    best: Point
    outcome: Outcome
    baseline: Point
    baseline_outcome: Outcome
    n_trials: int
    n_infeasible: int

    @property
    def gain(self) -> float:
        """How much faster the best is than trial 0: 0.1 is a tenth. 0 where trial 0 itself does not fit."""
        if not self.baseline_outcome.is_feasible or self.outcome.seconds is None:
            return 0.0
        return float(self.baseline_outcome.seconds or 0.0) / self.outcome.seconds - 1


def journal(path: Path) -> BaseStorage:
    """The default storage: Optuna's journal in one file, which several processes may append to.

    Raises:
        InvalidOption: when the file is no journal, or another process keeps it locked.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return JournalStorage(JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path))))
    except Exception as error:
        raise InvalidOption(
            f"the study file cannot be used: {path}",
            found=one_line(f"{type(error).__name__}: {error}", 160),
            needed="a journal that Optuna wrote",
            hint=f"move it away: mv {path} {path}.old",
        ) from error


def storage_from_url(url: str) -> BaseStorage:
    """A storage that several machines share: `postgresql://…`, `mysql://…`, `sqlite:///…` or `redis://…`.

    Raises:
        InvalidOption: when it does not answer, or its driver is not installed.
    """
    from optuna.storages import JournalStorage, get_storage
    from optuna.storages.journal import JournalRedisBackend

    try:
        if url.startswith(("redis://", "rediss://")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "experimental", which concerns Optuna's interface and not the data
                return JournalStorage(JournalRedisBackend(url))
        return get_storage(url)
    except Exception as error:
        driver = isinstance(error, ImportError)
        raise InvalidOption(
            f"the study's storage cannot be used: {_without_password(url)}",
            found=one_line(f"{type(error).__name__}: {_without_password(str(error))}", 160),
            needed="a driver for it" if driver else "a storage that answers",
            hint="pip install sqlalchemy psycopg2-binary (PostgreSQL), or redis" if driver else "leave out --storage",
        ) from error


def _without_password(text: str) -> str:
    import re

    return re.sub(r"(://[^:/@\s]*):[^@/\s]+@", r"\1:***@", text)


def search(
    space: Space,
    objective: Objective,
    baseline: Point,
    *,
    n_trials: int = TRIALS,
    seed: int = 0,
    storage: BaseStorage | None = None,
    study_name: str = "plan",
    on_trial: Callable[[int, Outcome], None] = lambda *_: None,
) -> SearchResult:
    """Try `baseline`, then what the sampler proposes; points that were tried already are not computed again.

    Raises:
        ValueError: when the baseline is not in the space.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=_STARTUP_TRIALS)
    study = optuna.create_study(storage=storage, study_name=study_name, sampler=sampler, load_if_exists=True)
    known = functools.cache(objective)
    found: list[tuple[Point, Outcome]] = []

    def run(trial: Trial) -> float:
        point = space.suggest(trial)
        outcome = known(point)
        trial.set_constraint(_SHORTFALL, outcome.shortfall_mib)
        found.append((point, outcome))
        on_trial(len(found), outcome)
        # A point that does not fit has no time: its constraint already ranks it below every point that does.
        return outcome.seconds if outcome.seconds is not None else float("1e9")

    if not _was_tried(study, space, baseline):
        study.enqueue_trial(space.enqueued(baseline))
    study.optimize(run, n_trials=max(1, round(n_trials * GLOBAL_SHARE)))
    while len(found) < n_trials:
        best, _ = _best(found, baseline, known(baseline))
        tried = {point for point, _ in found}
        around = [point for point in space.neighbours(best) if point not in tried][: n_trials - len(found)]
        if not around:
            break
        for point in around:
            study.enqueue_trial(space.enqueued(point))
        study.optimize(run, n_trials=len(around))
    best, outcome = _best(found, baseline, known(baseline))
    n_infeasible = sum(not one.is_feasible for _, one in found)
    return SearchResult(best, outcome, baseline, known(baseline), len(found), n_infeasible)


def _was_tried(study: Study, space: Space, point: Point) -> bool:
    """Whether a shared study has the point already (a storage may hold others' trials)."""
    wanted = space.enqueued(point)

    def has(trial: FrozenTrial) -> bool:
        return wanted in (trial.params, trial.system_attrs.get("fixed_params"))

    return any(has(trial) for trial in study.get_trials(deepcopy=False))


def _best(found: list[tuple[Point, Outcome]], baseline: Point, first: Outcome) -> tuple[Point, Outcome]:
    """The fastest feasible trial; the baseline where none is faster."""
    best, outcome = baseline, first
    for point, one in found:
        if one.is_feasible and (not outcome.is_feasible or float(one.seconds or 0) < float(outcome.seconds or 0)):
            best, outcome = point, one
    return best, outcome
