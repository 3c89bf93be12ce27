"""The search against brute force, and the storages that it keeps its trials in."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.planner.machine import MachineBudget, from_card, with_host
from twofold.planner.propose import best_on_card
from twofold.planner.request import Request
from twofold.planner.search.space import Point, Space
from twofold.planner.search.study import Outcome, search
from twofold.planner.search.turn import CardTurn, search_on_card
from twofold.profiles.cards import find_card
from twofold.profiles.model_spec import LayerSpec, LinearGroup, LinearSpec, ModelSpec, RopeSpec

Shipped = Callable[[str], ModelSpec]
SMALL = Space(
    residual_bits=(6, 8),
    kv_types=("f16", "q8_0"),
    draft_nodes=(0, 2, 4, 8, 16),
    max_depth=4,
    prefill_chunks=(64, 256),
    threads=(1,),
    resident_steps=(0, 15, 20),
)


def _model(draw: random.Random) -> ModelSpec:
    """A dense model of 1 to 40 billion weights in few layers, so that enumerating is quick."""
    hidden = draw.choice((4096, 6144, 8192, 12288))
    inner, n_layers = hidden * draw.choice((3, 4)), draw.randint(4, 12)
    heads = hidden // 128

    def layer(index: int) -> LayerSpec:
        name = f"model.layers.{index}"
        kv = draw.choice((4, 8)) * 128
        shapes = {"qkv": (hidden, (hidden, kv, kv)), "o": (hidden, (hidden,))}
        shapes |= {"gate_up": (hidden, (inner, inner)), "down": (inner, (hidden,))}
        groups = tuple(
            LinearGroup(f"{name}.{part}", tuple(LinearSpec(f"{name}.{part}{i}", n_in, n) for i, n in enumerate(outs)))
            for part, (n_in, outs) in shapes.items()
        )
        return LayerSpec(
            index=index,
            kind="growing",
            groups=groups,
            n_heads=heads,
            n_kv_heads=kv // 128,
            k_head_dim=128,
            v_head_dim=128,
            rope=RopeSpec(10000.0, 128),
        )

    return ModelSpec(
        name="test/synthetic",
        architecture="llama",
        layers=tuple(layer(i) for i in range(n_layers)),
        head=LinearGroup("lm_head", (LinearSpec("lm_head", hidden, 32000),)),
        hidden_size=hidden,
        vocab_size=32000,
        context_length=131072,
        tie_embeddings=False,
        rms_eps=1e-6,
        activation="silu",
        facts_source="made for a test",
        intermediate_size=inner,
    )


def _machine(draw: random.Random) -> MachineBudget:
    card = draw.choice(("RTX 3060 12GB", "RTX 4060", "RTX 4070", "RTX 4090", "RTX 5090", "RTX 3090"))
    free = find_card(card).vram_mib.number * draw.uniform(0.3, 0.95)
    machine = from_card(find_card(card), vram_mib=free)
    return with_host(machine, ram_mib=262144, ram_gb_s=draw.uniform(20, 100), isa=draw.choice(("avx2", "avx512")))


def _case(seed: int) -> tuple[CardTurn, Point]:
    draw = random.Random(seed)
    spec, machine = _model(draw), _machine(draw)
    card = machine.cards[0]
    default = best_on_card(spec, machine, card, Request(context_tokens=draw.choice((4096, 16384))), "f16")
    assert machine.host is not None
    turn = CardTurn(spec, default.knobs, card, machine.host, machine.host, 512.0)
    first = replace(turn.point(default.knobs), prefill_chunk=256, draft_nodes=4, draft_depth=4, threads=1)
    return turn, first


@pytest.mark.parametrize("seed", range(30))
def test_the_search_reaches_the_optimum_of_brute_force(seed: int) -> None:
    turn, first = _case(seed)
    every = [(turn(point), point) for point in SMALL.points()]
    feasible = [outcome.seconds for outcome, _ in every if outcome.is_feasible and outcome.seconds is not None]
    found = search(SMALL, turn, first, n_trials=200, seed=seed)
    if not feasible:
        assert not found.outcome.is_feasible and found.best == first
        return
    assert found.outcome.is_feasible and found.outcome.seconds is not None
    assert min(feasible) / found.outcome.seconds >= 0.99
    assert all(device.verdict == "fits" for device in turn.needs(turn.knobs(found.best)).devices)
    assert found.n_trials <= 200


def test_nothing_slower_than_the_default_comes_back() -> None:
    turn, first = _case(3)
    found = search(SMALL, lambda p: Outcome(1.0 if p == first else 2.0, -1.0), first, n_trials=30)
    assert found.best == first and found.gain == 0
    missing = search(SMALL, lambda p: Outcome(None, 7.0), first, n_trials=30)
    assert missing.best == first and missing.n_infeasible == missing.n_trials
    assert turn(first) == turn(first)


def test_the_default_is_the_first_trial_and_the_same_seed_the_same_search() -> None:
    turn, first = _case(5)
    order: list[Point] = []

    def watched(point: Point) -> Outcome:
        order.append(point)
        return turn(point)

    one = search(SMALL, watched, first, n_trials=40, seed=7)
    assert order[0] == first
    assert len(order) == len(set(order))  # no point is computed twice
    assert search(SMALL, turn, first, n_trials=40, seed=7) == one


def test_a_default_outside_the_space_is_refused() -> None:
    _, first = _case(1)
    with pytest.raises(ValueError, match="prefill_chunk"):
        search(SMALL, lambda _: Outcome(1.0, 0.0), replace(first, prefill_chunk=77))


def test_quality_never_goes_below_the_floor(shipped: Shipped) -> None:
    spec = shipped("Qwen/Qwen3-8B")
    machine = with_host(from_card(find_card("RTX 4060")), ram_mib=65536, ram_gb_s=50, isa="avx512")
    request = Request(context_tokens=8192, residual_bits=7, kv_type="f16")
    card = machine.cards[0]
    default = best_on_card(spec, machine, card, request, "f16")
    best, found = search_on_card(spec, default, machine, card, request, 60)
    assert found is not None
    assert (best.knobs.residual_bits, best.knobs.k_type, best.knobs.v_type) == (7, "f16", "f16")
    assert best.verdict == "fits"
