"""The tuner on simulated machines: the bar on a few seeds of every family (`benchmarks/tuning_surface.py` runs 200)."""

from __future__ import annotations

from pathlib import Path

import pytest
from surfaces import FAMILIES, Surface
from tuning_surface import main, run_case

from twofold.planner.search.journal import journal
from twofold.planner.search.space import Point
from twofold.planner.tuning.meter import Piece
from twofold.planner.tuning.tuner import TRIALS, Tuner


class Timed(Surface):
    """A surface whose samples take the time that they say."""

    now_seconds = 0.0

    def sample(self, point: Point, piece: Piece) -> float:
        seconds = super().sample(point, piece)
        self.now_seconds += seconds
        return seconds


@pytest.mark.parametrize("seed", [2, 87, 137])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gain_is_reached_and_nothing_is_lost(family: str, seed: int) -> None:
    case = run_case(family, seed, 0.03, "pieces", TRIALS)
    assert case.misses == []


@pytest.mark.parametrize("family", ["dispatch", "flat"])
def test_whole_turns_as_samples_do_too(family: str) -> None:
    assert run_case(family, 5, 0.03, "turns", TRIALS).misses == []


def test_a_miss_ends_the_benchmark_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--seeds", "1", "--trials", "4", "--noise", "0.8"])
    missed = int(capsys.readouterr().out.splitlines()[-1].partition(" ")[0])
    assert code == (1 if missed else 0)


def test_the_same_seed_gives_the_same_plan() -> None:
    def run() -> object:
        surface = Surface("dispatch", 3)
        found = Tuner(surface.space, surface, surface.baseline, n_trials=30, seed=4).run()
        return found.point, found.n_samples

    assert run() == run()


def test_what_does_not_fit_is_never_run_and_says_by_how_much() -> None:
    surface = Surface("tight memory", 1)  # its `sample` fails for a point that does not fit
    found = Tuner(surface.space, surface, surface.baseline, n_trials=60).run()
    unfit = [(point, outcome) for point, outcome in found.search.tried if not outcome.is_feasible]
    assert found.search.n_infeasible == len(unfit) > 0
    assert all(outcome.seconds is None and outcome.shortfall_mib == surface.shortfall_mib(p) for p, outcome in unfit)
    assert surface.shortfall_mib(found.point) <= 0


def test_trial_0_comes_first_and_gives_the_noise() -> None:
    surface = Surface("multiplier", 7)
    found = Tuner(surface.space, surface, surface.baseline, n_trials=20).run()
    assert found.search.tried[0][0] == surface.baseline
    assert len(found.baseline_turns) >= 10
    assert 0.005 < found.noise_floor < 0.1


def test_trial_0_that_does_not_fit_is_refused() -> None:
    surface = Surface("memory wall", 1)
    surface.shortfall_mib = lambda _: 1.0  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="does not fit"):
        Tuner(surface.space, surface, surface.baseline).run()


def test_time_that_runs_out_still_ends_with_a_comparison() -> None:
    surface = Surface("memory wall", 1)
    slow = Timed("memory wall", 1)
    found = Tuner(slow.space, slow, surface.baseline, seconds=60.0, clock=lambda: slow.now_seconds).run()
    assert found.search.n_trials < TRIALS
    assert slow.now_seconds < 90
    assert surface.true_seconds(found.point) <= 1.01 * surface.true_seconds(surface.baseline)


def test_an_interruption_keeps_what_was_tried_and_the_next_run_uses_it(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"

    class Stopped(Surface):
        def sample(self, point: Point, piece: Piece) -> float:
            if self.n_samples > 80:
                raise KeyboardInterrupt
            return super().sample(point, piece)

    stopped = Stopped("two kinds of cores", 4)
    tuner = Tuner(stopped.space, stopped, stopped.baseline, storage=journal(path), study_name="t")
    with pytest.raises(KeyboardInterrupt):
        tuner.run()
    assert tuner.n_tried > 1
    again = Surface("two kinds of cores", 4)
    found = Tuner(again.space, again, again.baseline, n_trials=3, seed=1, storage=journal(path), study_name="t").run()
    assert found.search.n_others > 0


def test_finalists_are_named_before_they_are_compared() -> None:
    surface, seen = Surface("memory wall", 2), []
    found = Tuner(surface.space, surface, surface.baseline, on_finalists=lambda one, two: seen.append((one, two))).run()
    assert seen == [(found.baseline, found.candidate)]


@pytest.mark.parametrize(("turns", "is_compared"), [(1e-6, False), (40.0, True)])
def test_a_budget_that_trial_0_uses_up_is_told(turns: float, is_compared: bool) -> None:
    """Four trials once gave trial 0 all the time there was; only a budget below its own first turns does now."""
    slow = Timed("memory wall", 1)
    budget = turns * slow.true_seconds(slow.baseline)
    found = Tuner(slow.space, slow, slow.baseline, n_trials=4, seconds=budget, clock=lambda: slow.now_seconds).run()
    assert (found.n_others > 0) is is_compared and found.seconds == budget
    if not is_compared:
        assert found.is_out_of_time and found.search.n_trials == 1 and found.duel is None and not found.is_tuned
