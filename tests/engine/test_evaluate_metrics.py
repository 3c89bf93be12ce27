"""Distances, baselines and ranks against direct definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from twofold.engine.evaluate import metrics, ranks
from twofold.engine.evaluate.baselines import int8_g32, one_ulp_noise


def test_kl_is_the_definition_and_zero_for_equal_logits() -> None:
    p, q = (torch.tensor([[0.0, x]], dtype=torch.float64) for x in (math.log(3.0), 0.0))
    kl, mismatch = metrics.token_distances(p, q)
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert kl[0] == pytest.approx(expected, rel=1e-12)
    # Equal logits: the lowest id is the argmax, so q's choice is 0 and p's is 1.
    assert mismatch.tolist() == [True]
    same, _ = metrics.token_distances(p, p)
    assert same[0] == 0.0


def test_logits_that_are_not_finite_are_refused() -> None:
    good = torch.zeros(2, 3)
    bad = good.clone()
    bad[1, 2] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        metrics.token_distances(good, bad)


def test_bootstrap_covers_the_mean_and_shrinks_with_texts() -> None:
    rng = np.random.default_rng(3)

    def interval(n_texts: int) -> tuple[float, float]:
        text = np.repeat(np.arange(n_texts), 50)
        return metrics.bootstrap_interval(1.0 + rng.normal(size=n_texts)[text], text)

    few, many = interval(10), interval(400)
    assert few[0] < 1.0 < few[1]
    assert many[1] - many[0] < (few[1] - few[0]) / 3


@pytest.mark.parametrize("inputs", [32, 64, 50, 7])
def test_int8_groups_are_within_half_a_step(inputs: int) -> None:
    weight = torch.randn(5, inputs, generator=torch.Generator().manual_seed(1))
    error = (int8_g32(weight) - weight).abs()
    for start in range(0, inputs, 32):
        block = weight[:, start : start + 32]
        step = block.abs().amax(dim=1, keepdim=True) / 127
        assert (error[:, start : start + 32] <= 0.501 * step + 127 * step * 2**-11).all()
    assert int8_g32(torch.zeros(2, inputs)).eq(0).all()


def test_one_ulp_noise_moves_to_true_neighbours_only() -> None:
    weight = torch.tensor([[1.0, -2.0, 0.0, 0.15625, -3.0e-5] * 400])
    moved = one_ulp_noise(weight, torch.Generator().manual_seed(0))
    bits, moved_bits = weight.bfloat16().view(torch.int16).int(), moved.bfloat16().view(torch.int16).int()
    difference = moved_bits - bits
    assert difference.abs().max() == 1
    assert moved[weight == 0].eq(0).all()
    shares = [(difference[weight != 0] == step).float().mean().item() for step in (-1, 0, 1)]
    assert all(abs(share - 1 / 3) < 0.05 for share in shares)


def test_rank_counts_higher_logits_and_orders_ties_by_id() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]]).repeat(4, 1)
    assert ranks.rank_of(logits, torch.arange(4)).tolist() == [3, 0, 1, 2]
    assert ranks.recalls(np.array([0, 1, 5, 20])) == [0.25, 0.5, 0.5, 0.75, 0.75]
    assert sum(ranks.rank_frequencies(np.array([0, 1, 5, 20]))) == pytest.approx(0.75)


@pytest.mark.parametrize("depth", [1, 3, 100])
def test_mixed_attention_chooses_the_half_per_query_and_key(depth: int) -> None:
    generator = torch.Generator().manual_seed(depth)
    n, heads, kv_heads, dim = 9, 4, 2, 8

    def rand(n_heads: int) -> torch.Tensor:
        return torch.randn(n, n_heads, dim, generator=generator)

    q, exact, draft = rand(heads), (rand(kv_heads), rand(kv_heads)), (rand(kv_heads), rand(kv_heads))
    got = ranks.mixed_attention(q, exact, draft, depth, 0.3)
    for p in range(n):
        for head in range(heads):
            half = [exact if j < p - depth + 1 else draft for j in range(p + 1)]
            keys = torch.stack([half[j][0][j, head // 2] for j in range(p + 1)])
            values = torch.stack([half[j][1][j, head // 2] for j in range(p + 1)])
            weights = torch.softmax(keys @ q[p, head] * 0.3, dim=0)
            torch.testing.assert_close(got[p, head], weights @ values, rtol=1e-5, atol=1e-6)
