"""Speed knobs against text and logits: what is compared, that it is equal, and that a difference is found."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twofold.engine import engine as engine_module
from twofold.engine.accept import Accepted, ChooseAt, accept
from twofold.engine.backend import _native
from twofold.engine.draft import Draft
from twofold.engine.engine import Engine
from twofold.engine.parity.compare import compare
from twofold.engine.parity.record import Record
from twofold.engine.parity.variants import CHUNKS, SHAPES, THREADS, Variant, all_variants, plain, some_variants
from twofold.planner.plan import Plan
from twofold.profiles.errors import EngineFailed

TIERS = ("generic", "avx2")
Loader = Callable[[Plan], Engine]


@pytest.fixture(autouse=True)
def tier_as_it_was() -> Iterator[None]:
    yield
    ops, _ = _native()
    if ops is not None:
        from twofold.kernels.cpu import native

        native().force_isa("")


@pytest.fixture
def tiers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if _native()[0] is None:
        pytest.skip("the native kernels are not built")
    from twofold.kernels.cpu import native

    monkeypatch.delenv("TWOFOLD_CPU_ISA", raising=False)
    return list(native().available_tiers())


@pytest.fixture
def load(make_checkpoint: Callable[..., Path]) -> Loader:
    folder = make_checkpoint()
    return lambda plan: Engine.load(folder, plan, kernels="cpu")


def prompts(*lengths: int) -> list[list[int]]:
    rng = np.random.default_rng(6)
    return [rng.integers(0, 117, length).tolist() for length in lengths]


def test_each_knob_alone_and_random_combinations() -> None:
    chosen = some_variants(TIERS)
    first = plain(TIERS)
    assert chosen[0] == first == Variant("none", 1, "avx2", 32) and len(set(chosen)) == len(chosen)
    for name, values in (("drafts", SHAPES), ("threads", THREADS), ("cpu_isa", TIERS), ("prefill_chunk", CHUNKS)):
        assert all(replace(first, **{name: value}) in chosen for value in values)
    n_alone = 1 + 6 + 2 + 1 + 1
    assert len(chosen) == n_alone + 10 and chosen == some_variants(TIERS) != some_variants(TIERS, seed=1)
    everything = all_variants(TIERS)
    assert everything[0] == first and len(set(everything)) == len(everything) == 7 * 3 * 2 * 2
    assert set(chosen) <= set(everything)


@pytest.mark.parametrize("activations", ["int16", "int8"])
def test_every_knob_alone_and_ten_combinations_give_one_text(
    load: Loader, make_plan: Callable[..., Plan], tiers: list[str], activations: str
) -> None:
    variants, shares = some_variants(tiers), []
    plan = make_plan(context_tokens=400, activations=activations)
    texts = prompts(300, 40, 33, 75)
    found = list(compare(plan, variants, texts, 64, load, lambda done, total: shares.append(done / total)))
    assert [one.variant for one in found] == variants
    assert all(one.tokens == 2 * 4 * 64 for one in found) and shares[-1] == 1
    speed = {one.variant: one.tokens_per_check for one in found}
    assert speed[variants[0]] == 1 and speed[replace(variants[0], drafts="tree of 32")] > 1


def test_activations_are_no_speed_knob(load: Loader, make_plan: Callable[..., Plan], tiers: list[str]) -> None:
    def loaded(plan: Plan) -> Engine:
        return load(plan.model_copy(update={"activations": "int8"}) if plan.prefill_chunk == 256 else plan)

    variants = [plain(tiers), replace(plain(tiers), prefill_chunk=256)]
    with pytest.raises(EngineFailed, match="a speed knob changed the result"):
        list(compare(make_plan(context_tokens=200), variants, prompts(40), 30, loaded))


def test_a_wrong_walk_is_found(
    load: Loader, make_plan: Callable[..., Plan], tiers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy_walk(draft: Draft, choose_at: ChooseAt) -> Accepted:
        """Takes a first child on trust."""
        found = accept(draft, choose_at)
        if len(found.path) == 1 and draft.children(0):
            return Accepted((0, 1), (draft.tokens[1], choose_at(1, [draft.tokens[1]])))
        return found

    monkeypatch.setattr(engine_module, "accept", greedy_walk)
    variants = [plain(tiers), replace(plain(tiers), drafts="chain of 4")]
    comparing = compare(make_plan(context_tokens=200), variants, prompts(40), 30, load)
    assert next(comparing).tokens == 60
    with pytest.raises(EngineFailed, match=r"drafts: chain of 4, 1 thread.*prompt 1\): the text differs") as error:
        next(comparing)
    assert "token" in (error.value.found or "") and error.value.hint


def test_other_logits_are_found_where_the_text_is_the_same(
    load: Loader, make_plan: Callable[..., Plan], tiers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def off_by_a_bit(plan: Plan) -> Engine:
        engine = load(plan)
        if plan.prefill_chunk == 256:
            run = engine._whole_pass

            def nudged(tokens: Any, parents: Any) -> Any:
                tape = run(tokens, parents)
                lowest = int(tape.result[0].argmin())
                tape.result[0, lowest] = np.nextafter(tape.result[0, lowest], np.float32(-np.inf))
                return tape

            monkeypatch.setattr(engine, "_whole_pass", nudged)
        return engine

    variants = [plain(tiers), replace(plain(tiers), prefill_chunk=256)]
    comparing = compare(make_plan(context_tokens=200), variants, prompts(40), 5, off_by_a_bit)
    next(comparing)
    with pytest.raises(EngineFailed, match="the same token, but other logits") as error:
        next(comparing)
    assert (error.value.found or "").startswith("token 1: ")


def test_an_interrupted_comparison_goes_on_where_it_stopped(
    load: Loader, make_plan: Callable[..., Plan], tiers: list[str], tmp_path: Path
) -> None:
    plan, texts, variants = make_plan(context_tokens=200), prompts(40, 9), all_variants(tiers)[:7]
    whole = list(compare(plan, variants, texts, 12, load))
    path, loaded = tmp_path / "parity.json", []

    def counted(plan: Plan) -> Engine:
        loaded.append(plan)
        return load(plan)

    identity = {"build": "a", "tokens": 12}
    first = Record.open(path, identity)
    for one in itertools.islice(compare(plan, variants, texts, 12, counted, expected=first.expected), 3):
        first.add(one)
    again = Record.open(path, identity)
    assert again.done == whole[:3] and again.expected == first.expected and len(again.expected) == 4
    left = [variant for variant in variants if variant not in {one.variant for one in again.done}]
    for one in compare(plan, left, texts, 12, counted, expected=again.expected):
        again.add(one)
    assert again.done == whole and len(loaded) == len(variants)
    assert Record.open(path, identity).done == whole
    assert Record.open(path, identity | {"build": "b"}).done == []
    again.close()
    assert not path.exists()
    again.close()


def test_a_resumed_comparison_still_finds_a_difference(
    load: Loader, make_plan: Callable[..., Plan], tiers: list[str], tmp_path: Path
) -> None:
    plan, texts, variants = make_plan(context_tokens=200), prompts(40), all_variants(tiers)[:2]
    record = Record.open(tmp_path / "parity.json", {})
    record.add(next(compare(plan, variants, texts, 5, load, expected=record.expected)))
    other = make_plan(context_tokens=200, k_type="q4_0", v_type="q4_0")
    resumed = Record.open(tmp_path / "parity.json", {})
    with pytest.raises(EngineFailed, match="a speed knob changed the result"):
        next(compare(other, variants[1:], texts, 5, load, expected=resumed.expected))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema_version": 1}', '{"schema_version": 1, "identity": {}, "done": 3}']
)
def test_a_damaged_record_counts_for_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "parity.json"
    path.write_text(text)
    record = Record.open(path, {})
    assert record.done == [] and record.expected == {}
    assert Record.open(None, {}).path is None
