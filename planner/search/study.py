"""The search itself: Optuna's TPE over a `Space`, the analytic default first, infeasible points as constraints, then
the neighbours of the best point found (one knob, one step), until none is better or the trials are used up.

What comes back is never worse than trial 0: it is the best feasible trial by the objective's own figures, and trial 0
where none is better. The optimum of an enumeration is never handed in. In a storage that others share, their trials
steer the sampler, and the best of them are tried here before they count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twofold.planner.search.space import Point, Space
from twofold.planner.search.storage import storage_failures
from twofold.profiles.errors import InvalidOption
from twofold.profiles.text import one_line

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

TRIALS = 200
_SHORTFALL = "shortfall_mib"
_SIGNATURE = "twofold"
_STARTUP_TRIALS = 24
GLOBAL_SHARE = 0.5
"""Of the trials, those that the sampler proposes; the rest look around the best of them."""
OTHERS = 8
"""How many of the best trials of other processes are tried here."""
_NO_TIME = 1e9


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
    """The best point with its outcome, trial 0's, how many points were tried and did not fit, and all that was tried.

    `n_others` counts points that another process had found, which were tried here too.
    """

    best: Point
    outcome: Outcome
    baseline: Point
    baseline_outcome: Outcome
    n_trials: int
    n_infeasible: int
    n_others: int = 0
    tried: tuple[tuple[Point, Outcome], ...] = ()

    @property
    def gain(self) -> float:
        """How much faster the best is than trial 0: 0.1 is a tenth. 0 where trial 0 itself does not fit."""
        if not self.baseline_outcome.is_feasible or self.outcome.seconds is None:
            return 0.0
        return float(self.baseline_outcome.seconds or 0.0) / self.outcome.seconds - 1


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
    is_over: Callable[[], bool] = lambda: False,
) -> SearchResult:
    """Try `baseline`, then what the sampler proposes; points that were tried already are not computed again.

    `is_over` is asked after every trial: true ends the search early.

    Raises:
        ValueError: when the baseline is not in the space.
        InvalidOption: when the storage holds another study under this name. TwofoldError: when it fails.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    known = functools.cache(objective)
    found: list[tuple[Point, Outcome]] = []
    first = space.enqueued(baseline)

    def run(trial: Trial) -> float:
        point = space.suggest(trial)
        outcome = known(point)
        trial.set_constraint(_SHORTFALL, outcome.shortfall_mib)
        found.append((point, outcome))
        on_trial(len(found), outcome)
        if is_over():
            trial.study.stop()
        # A point that does not fit has no time: its constraint already ranks it below every point that does.
        return outcome.seconds if outcome.seconds is not None else _NO_TIME

    with storage_failures(study_name):
        study = open_study(space, storage, study_name, seed)
        if not _was_tried(study, first):
            study.enqueue_trial(first)
        study.optimize(run, n_trials=max(1, round(n_trials * GLOBAL_SHARE)))
        others = [point for point in _of_others(study, space, found) if not is_over()]
        found.extend((point, known(point)) for point in others)
        n_own = len(found) - len(others)
        while n_own < n_trials and not is_over():
            best, _ = _best(found, baseline, known(baseline))
            tried = {point for point, _ in found}
            around = [point for point in space.neighbours(best) if point not in tried][: n_trials - n_own]
            if not around:
                break
            for point in around:
                study.enqueue_trial(space.enqueued(point))
            study.optimize(run, n_trials=len(around))
            n_own += len(around)
    best, outcome = _best(found, baseline, known(baseline))
    n_own = len(found) - len(others)
    n_infeasible = sum(not one.is_feasible for _, one in found)
    return SearchResult(best, outcome, baseline, known(baseline), n_own, n_infeasible, len(others), tuple(found))


def open_study(space: Space, storage: BaseStorage | None, name: str, seed: int) -> Study:
    """The study of this name, made where there is none.

    Raises:
        InvalidOption: it was made for another space or purpose.
    """
    import optuna

    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=_STARTUP_TRIALS)
    study = optuna.create_study(storage=storage, study_name=name, sampler=sampler, load_if_exists=True)
    if storage is None:
        return study
    signature = space.signature
    held = study.user_attrs.get(_SIGNATURE)
    is_new = held is None and not study.get_trials(deepcopy=False)
    if is_new:
        study.set_user_attr(_SIGNATURE, signature)
    elif held != signature or study.direction != optuna.study.StudyDirection.MINIMIZE:
        raise InvalidOption(
            f"the storage holds another study under the name {one_line(name, 120)!r}",
            found=one_line(f"choices {held}" if held is not None else "a study that twofold did not make", 160),
            needed=one_line(f"choices {signature}", 160),
            hint="name another storage, or delete that study: optuna delete-study",
        )
    return study


def _was_tried(study: Study, wanted: dict[str, int | str]) -> bool:
    """Whether a shared study has the point already (a storage may hold others' trials)."""

    def has(trial: FrozenTrial) -> bool:
        return wanted in (trial.params, trial.system_attrs.get("fixed_params"))

    return any(has(trial) for trial in study.get_trials(deepcopy=False))


def _of_others(study: Study, space: Space, found: list[tuple[Point, Outcome]]) -> list[Point]:
    """The best points that other processes, or earlier runs, left in the study and that were not tried here."""
    import optuna

    tried = {point for point, _ in found}
    limit = min((one.seconds for _, one in found if one.is_feasible and one.seconds is not None), default=math.inf)
    ranked: dict[Point, float] = {}
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        point = space.point_of(trial.params)
        value = trial.values[0] if trial.values else math.inf
        if point is None or point in tried or not value < 1.05 * limit:
            continue
        if all(missing <= 0 for missing in trial.constraints.values()):
            ranked[point] = min(value, ranked.get(point, math.inf))
    return sorted(ranked, key=lambda point: ranked[point])[:OTHERS]


def _best(found: list[tuple[Point, Outcome]], baseline: Point, first: Outcome) -> tuple[Point, Outcome]:
    """The fastest feasible trial; the baseline where none is faster."""
    best, outcome = baseline, first
    for point, one in found:
        if one.is_feasible and (not outcome.is_feasible or float(one.seconds or 0) < float(outcome.seconds or 0)):
            best, outcome = point, one
    return best, outcome
