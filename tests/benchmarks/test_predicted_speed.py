"""Predicted against measured: what is compared, by which prompts, and when the benchmark says no."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import predicted_speed
import pytest
from predicted_speed import BAR, CHOICE_BAR, Case, all_prompts, cases, choice, compare

from twofold.planner.acceptance import RankStatistics, tree_shape
from twofold.planner.knobs import Knobs
from twofold.planner.timed.kernels import Kernels
from twofold.planner.timed.passes import TimedPasses, timed_passes
from twofold.profiles.model_spec import ModelSpec
from twofold.profiles.readers.shipped import shipped_spec

RANKS = RankStatistics((0.7, 0.1, 0.05), 1.0, "test")


@pytest.fixture
def spec() -> ModelSpec:
    found = shipped_spec("HuggingFaceTB/SmolLM2-135M")
    assert found is not None
    return found


@pytest.fixture
def passes(spec: ModelSpec, timed_tables: Any) -> Callable[[Case], TimedPasses]:
    def make(case: Case) -> TimedPasses:
        knobs = Knobs.of(case.plan(2, spec.context_length)).with_(cpu_isa="avx2")
        found = timed_passes(spec, knobs, Kernels.of(timed_tables.table(spec, bits=(6, 8)), "avx2", 2))
        assert found is not None
        return found

    return make


def measured(case: Case, passes: TimedPasses, slower: float = 1.0) -> Case:
    """The case with ten steps that take `slower` times what is predicted, and give the tokens that are expected."""
    shape = tree_shape(RANKS, case.nodes, case.depth)
    case.lengths = [case.context + i for i in range(10)]
    case.seconds = [slower * passes.step(shape, case.context + 4).likely] * 10
    case.tokens = [shape.tokens] * 10  # type: ignore[list-item]  # a mean, as expected
    case.by_prompt = [1.0, 2.0]
    return case


def test_eight_plans_of_two_widths_three_caches_and_three_contexts() -> None:
    found = cases(6, 8, 4096)
    assert len(found) == len({case.name for case in found}) == 8
    assert {case.bits for case in found} == {6, 8} and {case.kv for case in found} == {"f16", "q8_0", "q4_0"}
    assert {case.context for case in found} == {512, 1024, 4096} and {case.nodes for case in found} == {0, 2, 4, 8, 16}
    group = [case for case in found if case.in_choice]
    assert len({(case.bits, case.kv, case.context) for case in group}) == 1 and group[0].nodes == 0


def test_counted_prompts_are_not_the_measured_ones() -> None:
    found = all_prompts()
    half = len(found) // 2
    assert half >= 32 and not set(found[:half]) & set(found[half:])
    assert found == all_prompts()


@pytest.mark.parametrize("slower, right", [(1.0, True), (1.09, True), (1.12, False), (0.92, True), (0.89, False)])
def test_a_plan_is_within_the_bar_or_not(passes: Callable[[Case], TimedPasses], slower: float, right: bool) -> None:
    for case in cases(6, 8, 4096):
        row = compare(measured(case, passes(case), slower), passes(case), RANKS)
        assert row["within_bar"] is right
        assert row["tok_s"]["ratio"] == pytest.approx(slower, abs=1e-3)
        assert row["step_ms"]["ratio"] == pytest.approx(1 / slower, abs=1e-3)
        assert row["tokens_per_check"]["ratio"] == 1
        assert set(row["not_timed"]) <= {"contexts beyond 4096 are carried on"}
    assert BAR == 0.1


def _rows(found: list[Case], predicted: list[float], real: list[float]) -> list[dict[str, Any]]:
    figures = zip(found, predicted, real, strict=True)
    return [{"plan": case.name, "tok_s": {"predicted": p, "measured": m}} for case, p, m in figures]


@pytest.mark.parametrize(
    "predicted, real, chosen, right",
    [
        ([40, 30, 20, 10], [40, 30, 20, 10], 0, True),
        ([40, 50, 20, 10], [40, 44, 45, 10], 1, True),
        ([40, 50, 20, 10], [40, 44, 50, 10], 1, False),
        ([40, 41, 20, 10], [40, 41, 20, 10], 0, True),  # a gain too small to draft for
    ],
)
def test_the_choice_is_held_against_the_best_of_its_group(
    predicted: list[float], real: list[float], chosen: int, right: bool
) -> None:
    found = cases(6, 8, 4096)
    rows = _rows(found, [*predicted, 99, 99, 99, 99], [*real, 99, 99, 99, 99])
    answer = choice(rows, found)
    assert answer["chosen"] == found[chosen].name and answer["within_bar"] is right
    assert CHOICE_BAR == 0.05


def test_a_prompt_lies_behind_an_earlier_conversation_of_the_wanted_length(quantizable_folder: Any) -> None:
    from twofold.engine.text import ChatTemplate, Tokenizer

    tokenizer = Tokenizer.from_folder(quantizable_folder)
    texts = predicted_speed.Texts(tokenizer, ChatTemplate.from_tokenizer(tokenizer))
    short, long, other = (texts.tokens(text, n) for text, n in (("One?", 64), ("One?", 9000), ("Other?", 9000)))
    assert len(short) < 200 and 6000 < len(long) <= 9000
    common = next(i for i, (a, b) in enumerate(zip(long, other, strict=False)) if a != b)
    assert common > 0.9 * len(long)  # what came before is read once for all prompts


def test_without_timings_it_says_what_to_run(spec: ModelSpec) -> None:
    from twofold.planner.timed.source import KernelSource

    with pytest.raises(SystemExit, match="--time-kernels"):
        predicted_speed.predict(cases(6, 8, 4096)[0], spec, KernelSource((), True), 3, spec.context_length)


def test_cases_start_without_measurements() -> None:
    assert all(
        not getattr(case, one.name)
        for case in cases(6, 8, 64)
        for one in dataclasses.fields(case)
        if "list" in str(one.type)
    )
