"""Tune: measure trial 0, search, race the best against each other, and let the winner fight trial 0.

The result is never slower than trial 0 by what can be told here: a winner is kept only where a paired, interleaved
comparison on fresh samples shows it faster by more than the noise. Points that do not fit are never run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from twofold.planner.search.space import Point, Space
from twofold.planner.search.study import Outcome, SearchResult, search
from twofold.planner.tuning.duel import Duel, duel
from twofold.planner.tuning.meter import Estimate, Meter, Target, spread

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

Stage = Literal["trial 0", "search", "race", "A/B"]
OnProgress = Callable[[Stage, float], None]
"""(what is under way, how much of it is done, 0 to 1)."""

TRIALS = 80
BASELINE_ROUNDS = 12
_BASELINE_LEAST = 4
SEARCH_ERROR = 0.015
RACE_ERRORS = (0.008, 0.005, 0.0035)
RACERS = 12
POLISHES = 6
_ALIKE = 0.003
"""Racers that are closer than this are not told apart."""
_HOPELESS = 1.1
"""A point that takes this much longer than the best so far is not sampled again."""
_SHARES: dict[Stage, float] = {"trial 0": 0.1, "search": 0.6, "race": 0.75, "A/B": 1.0}
"""Of the time that there is, when each stage has to be over."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What tuning found. `plan` is the point to use: the winner where it won, else trial 0's.

    Attributes:
        baseline_turns: repeated turns of trial 0 at the start, in seconds.
        noise_floor: relative spread (standard deviation) of those.
        duel: the A/B of `candidate` against trial 0; None where no other point looked faster.
        search: what the search tried.
        n_samples: passes and steps that were measured in all.
        n_others: plans other than trial 0 that were measured; 0: nothing was compared, and nothing is tuned.
        seconds: the bound of the whole run; `is_out_of_time`: whether it left no more to try.
    """

    baseline: Point
    candidate: Point
    is_tuned: bool
    baseline_turns: tuple[float, ...]
    noise_floor: float
    duel: Duel | None
    search: SearchResult
    n_samples: int
    n_others: int
    seconds: float | None = None
    is_out_of_time: bool = False

    @property
    def point(self) -> Point:
        return self.candidate if self.is_tuned else self.baseline


@dataclass(slots=True)
class Tuner:
    """One run of tuning; what was measured stays readable after an interruption.

    `seconds` bounds the whole run (None: no bound); a stage that runs out of time goes on with what it has.
    `on_finalists` hears of trial 0 and its challenger before they are compared.
    """

    space: Space
    target: Target
    baseline: Point
    n_trials: int = TRIALS
    seconds: float | None = None
    seed: int = 0
    storage: BaseStorage | None = None
    study_name: str = "tune"
    on_progress: OnProgress = lambda *_: None
    on_finalists: Callable[[Point, Point], None] = lambda *_: None
    clock: Callable[[], float] = time.monotonic
    meter: Meter = field(init=False)
    n_tried: int = field(default=0, init=False)
    _started: float = field(default=0.0, init=False)
    _best: float = field(default=math.inf, init=False)
    _others: set[Point] = field(default_factory=set, init=False)

    def run(self) -> TuneResult:
        """All of it.

        Raises:
            ValueError: trial 0 does not fit, or is not in the space.
            KeyboardInterrupt: whenever it comes; trials that were finished are in the storage.
        """
        if self.target.shortfall_mib(self.baseline) > 0:
            raise ValueError("trial 0 does not fit")
        self.meter, self._started = Meter(self.target), self.clock()
        turns = self._measure_baseline()
        found = self._search()
        leader = self._race(found)
        is_out_of_time = self._is_over("race")
        result = None
        if leader != self.baseline:
            self.on_finalists(self.baseline, leader)
            result = duel(
                self.meter,
                self.baseline,
                leader,
                noise=spread(turns),
                is_over=lambda: self._is_over("A/B"),
                on_round=lambda done, most: self.on_progress("A/B", done / most),
            )
        return TuneResult(
            baseline=self.baseline,
            candidate=leader,
            is_tuned=result is not None and result.is_won,
            baseline_turns=turns,
            noise_floor=spread(turns),
            duel=result,
            search=found,
            n_samples=self.meter.n_samples,
            n_others=len(self._others),
            seconds=self.seconds,
            is_out_of_time=is_out_of_time,
        )

    def _is_over(self, stage: Stage) -> bool:
        return self.seconds is not None and self.clock() - self._started >= self.seconds * _SHARES[stage]

    def _measure_baseline(self) -> tuple[float, ...]:
        turns: list[float] = []
        for done in range(BASELINE_ROUNDS):
            turns.append(self.meter.turn(self.baseline))
            self.on_progress("trial 0", (done + 1) / BASELINE_ROUNDS)
            if done + 1 >= _BASELINE_LEAST and self._is_over("trial 0"):
                break
        self.meter.noise = max(self._piece_noise(), 0.002)
        return tuple(turns)

    def _piece_noise(self) -> float:
        pieces = self.target.pieces(self.baseline)
        return max(spread(self.meter.samples[piece.key]) for piece in pieces)

    def _seconds(self, point: Point) -> float:
        found = self.meter.estimate(point)
        return found.seconds if found is not None else math.inf

    def _search(self) -> SearchResult:
        first = self._seconds(self.baseline)
        self._best = first

        def objective(point: Point) -> Outcome:
            """Relative to trial 0 of this run: so that trials of other days and machines compare."""
            shortfall = self.target.shortfall_mib(point)
            if shortfall > 0:
                return Outcome(None, shortfall)
            found = self._known(point, SEARCH_ERROR, "search")
            return Outcome(found.seconds / first, shortfall)

        def on_trial(done: int, _: Outcome) -> None:
            self.n_tried = done
            self.on_progress("search", min(1.0, done / self.n_trials))

        return search(
            self.space,
            objective,
            self.baseline,
            n_trials=self.n_trials,
            seed=self.seed,
            storage=self.storage,
            study_name=self.study_name,
            on_trial=on_trial,
            is_over=lambda: self._is_over("search"),
        )

    def _known(self, point: Point, error: float, stage: Stage) -> Estimate:
        until = self.clock() + self._slice(stage)
        found = self.meter.refine(
            point,
            error,
            give_up_above=_HOPELESS * self._best,
            is_over=lambda: self._is_over(stage) or (self.seconds is not None and self.clock() > until),
        )
        self._best = min(self._best, found.high)
        if point != self.baseline:
            self._others.add(point)
        return found

    def _slice(self, stage: Stage) -> float:
        """Seconds for one point: where samples are long, many points are worth more than one that is known well. Never
        all that is left: trial 0 alone tells nothing.
        """
        if self.seconds is None:
            return math.inf
        left = self._started + self.seconds * _SHARES[stage] - self.clock()
        return max(0.0, left) / max(2, self.n_trials // 4 - self.n_tried // 4)

    def _race(self, found: SearchResult) -> Point:
        """The fastest of what was tried, told apart as well as samples allow; its untried neighbours join in."""
        points = {point for point, outcome in found.tried if outcome.is_feasible} | {self.baseline}
        leader = self._heat(points)
        for polish in range(POLISHES):
            self.on_progress("race", (polish + 1) / (POLISHES + 1))
            around = (*self.space.neighbours(leader), *self.space.lines(leader))
            new = [one for one in dict.fromkeys(around) if one not in points]
            new = [one for one in new if self.target.shortfall_mib(one) <= 0]
            if not new or self._is_over("race"):
                break
            for point in new:
                self._known(point, SEARCH_ERROR, "race")
                if self._is_over("race"):
                    break
            points |= {point for point in new if self.meter.estimate(point) is not None}
            before, leader = leader, self._heat(points)
            if leader == before:
                break
        self.on_progress("race", 1.0)
        return leader

    def _heat(self, points: set[Point]) -> Point:
        """Sharpen the best few, again and again, dropping those that are surely slower."""
        for error in RACE_ERRORS:
            order = sorted(points, key=self._order)
            best = self.meter.estimate(order[0])
            assert best is not None
            racers = [one for one in order[:RACERS] if self._low(one) <= best.high * (1 - _ALIKE)]
            if len(racers) <= 1 or self._is_over("race"):
                break
            for point in racers:
                self.meter.refine(point, error, is_over=lambda: self._is_over("race"))
        return min(points, key=self._order)

    def _low(self, point: Point) -> float:
        found = self.meter.estimate(point)
        return found.low if found is not None else math.inf

    def _order(self, point: Point) -> tuple[float, tuple[int | str, ...]]:
        """By seconds; of points whose pieces are the same the simpler one."""
        simple = (point.draft_nodes, point.draft_depth, point.threads, point.prefill_chunk, point.kv_type)
        return self._seconds(point), simple
