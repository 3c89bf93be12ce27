"""Rounding with error feedback: equal to textbook GPTQ, better than rounding to nearest, exact reconstruction."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from twofold.engine.quantize import gptq
from twofold.engine.quantize.gptq import Rounded, round_base, round_residual
from twofold.engine.quantize.hessian import Feedback, Hessian
from twofold.engine.quantize.lloyd_max import GAUSSIAN

GROUP = 128


@pytest.fixture(autouse=True, params=["native", "torch"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs over the native kernel and over torch."""
    if request.param == "torch":
        monkeypatch.setattr(gptq, "_native_round_columns", lambda: None)
    elif gptq._native_round_columns() is None:
        pytest.skip("no native module")
    return str(request.param)


def _inputs(n: int, k: int, seed: int = 0) -> Tensor:
    """Correlated inputs [n, k]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator) @ (torch.randn(k, k, generator=generator) / k**0.5)


def _weights(k: int, rows: int, seed: int = 1) -> Tensor:
    return torch.randn(k, rows, generator=torch.Generator().manual_seed(seed)) * 0.03


def _feedback(x: Tensor) -> Feedback:
    hessian = Hessian(x.shape[1])
    hessian.add(x[: len(x) // 3])
    hessian.add(x[len(x) // 3 :])
    return hessian.factor()


def _none(k: int) -> Feedback:
    return Feedback(torch.eye(k))


def _loss(error: Tensor, x: Tensor) -> float:
    return float((x @ error).square().sum())


def _values(rounded: Rounded, levels: Tensor) -> Tensor:
    k = rounded.codes.shape[0]
    return levels[rounded.codes.long()] * rounded.scales.float().repeat_interleave(GROUP, 0)[:k]


BASE_LEVELS = torch.tensor(GAUSSIAN.integers, dtype=torch.float32)


def _textbook(weights: Tensor, x: Tensor) -> Tensor:
    """GPTQ by the inverse Hessian's Cholesky factor, right-looking, in fp64: the base's values [K, rows]."""
    w = weights.T.double().clone()
    h = (x.T @ x / len(x)).double()
    h.diagonal().add_(0.01 * h.diagonal().mean())
    upper = torch.linalg.cholesky(torch.linalg.inv(h), upper=True)
    q = torch.zeros_like(w)
    for start in range(0, w.shape[1], GROUP):
        stop = min(start + GROUP, w.shape[1])
        block = w[:, start:stop]
        reach = block.abs().amax(1) * gptq.OUTLIER_REACH / GAUSSIAN.outer
        by_rms = block.square().mean(1).sqrt() * GAUSSIAN.step_per_rms
        scale = torch.maximum(by_rms, reach).float().half().double()
        for k in range(start, stop):
            size = w[:, k] / scale
            q[:, k] = torch.where(size.abs() > 6.5, 10.0, 3.0) * size.sign() * scale
            w[:, k + 1 :] -= ((w[:, k] - q[:, k]) / upper[k, k])[:, None] * upper[k, k + 1 :]
    return q.T.float()


@pytest.mark.parametrize(("k", "rows"), [(128, 5), (192, 33), (200, 16), (576, 64)])
def test_base_is_textbook_gptq(k: int, rows: int) -> None:
    x, weights = _inputs(2000, k), _weights(k, rows)
    rounded = round_base(weights.clone(), _feedback(x), GAUSSIAN, GROUP)
    same = torch.isclose(_values(rounded, BASE_LEVELS), _textbook(weights, x), rtol=1e-3, atol=1e-6)
    # fp32 against fp64 may tip a weight that lies on a threshold, and what follows in its row.
    assert float(same.float().mean()) > 0.97


@pytest.mark.parametrize("k", [16, 100, 128, 576])
def test_codes_and_scales_reconstruct_weights_minus_error(k: int) -> None:
    x, weights = _inputs(700, k), _weights(k, 21)
    base = round_base(weights.clone(), _feedback(x), GAUSSIAN, GROUP)
    assert base.codes.dtype == torch.uint8
    assert base.scales.shape == (-(-k // GROUP), 21)
    assert base.scales.dtype == torch.float16
    torch.testing.assert_close(_values(base, BASE_LEVELS), weights - base.error, rtol=0, atol=1e-7)
    left = base.error.clone()
    residual = round_residual(base.error, _feedback(x), 6, GROUP)
    assert int(residual.codes.max()) <= 62
    torch.testing.assert_close(_values(residual, torch.arange(-31.0, 32)), left - residual.error, rtol=0, atol=1e-7)


def test_base_without_feedback_has_the_error_of_four_levels() -> None:
    weights = _weights(512, 500)
    error = round_base(weights.clone(), _none(512), GAUSSIAN, GROUP).error
    assert float(error.square().mean() / weights.square().mean()) == pytest.approx(0.1175, abs=0.004)


def test_residual_error_halves_with_every_bit() -> None:
    x, weights = _inputs(1500, 256), _weights(256, 200)
    left = round_base(weights.clone(), _feedback(x), GAUSSIAN, GROUP).error
    rms = [
        float(round_residual(left.clone(), _none(256), bits, GROUP).error.square().mean().sqrt())
        for bits in range(4, 9)
    ]
    for wide, narrow in zip(rms[1:], rms, strict=False):
        assert narrow / wide == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize("stage", ["base", "residual"])
def test_feedback_beats_rounding_to_nearest_on_correlated_inputs(stage: str) -> None:
    x, weights = _inputs(3000, 320), _weights(320, 64)

    def loss(feedback: Feedback) -> float:
        if stage == "base":
            return _loss(round_base(weights.clone(), feedback, GAUSSIAN, GROUP).error, x)
        return _loss(round_residual(weights.clone(), feedback, 4, GROUP).error, x)

    assert loss(_feedback(x)) < 0.75 * loss(_none(320))


def test_rows_do_not_see_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are rounded together, each comes out as it would alone (within fp32 products)."""
    monkeypatch.setattr("twofold.engine.quantize.gptq.SLICE_ROWS", 16)
    x, weights = _inputs(900, 128), _weights(128, 50)
    feedback = _feedback(x)
    together = round_base(weights.clone(), feedback, GAUSSIAN, GROUP)
    monkeypatch.setattr("twofold.engine.quantize.gptq.SLICE_ROWS", 8192)
    alone = round_base(weights.clone(), feedback, GAUSSIAN, GROUP)
    assert together.codes.shape == alone.codes.shape == (128, 50)
    assert float((together.codes == alone.codes).float().mean()) > 0.98


def test_zero_weights_give_zero_and_no_nan() -> None:
    weights = torch.zeros(40, 3)
    rounded = round_base(weights.clone(), _none(40), GAUSSIAN, GROUP)
    assert not rounded.error.any()
    assert not rounded.scales.any()
    residual = round_residual(rounded.error, _none(40), 6, GROUP)
    assert bool((residual.codes == 31).all())


@pytest.mark.parametrize("bits", [0, 1, 9, -3])
def test_impossible_widths_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        round_residual(torch.zeros(4, 4), _none(4), bits, GROUP)


def test_dead_inputs_are_rounded_to_nearest() -> None:
    x = _inputs(500, 64)
    x[:, 10] = 0
    feedback = _feedback(x)
    assert not feedback.block(slice(10, 11), slice(0, 64)).triu(11).any()
    weights = _weights(64, 9)
    rounded = round_base(weights.clone(), feedback, GAUSSIAN, GROUP)
    assert bool(torch.isfinite(rounded.error).all())
    scale = rounded.scales[0].float()
    assert bool((rounded.error[10].abs() <= torch.maximum(45 * scale, weights[10].abs() - 126 * scale)).all())


def test_factor_reconstructs_the_damped_hessian() -> None:
    x = _inputs(800, 300)
    k = x.shape[1]
    feedback = _feedback(x)
    h = x.T @ x / len(x)
    h.diagonal().add_(0.01 * h.diagonal().mean())
    unit = feedback.block(slice(0, k), slice(0, k)).triu(1) + torch.eye(k)
    inverse = torch.linalg.inv(unit.double())
    diagonal = inverse @ h.double() @ inverse.T
    off = diagonal - torch.diag(diagonal.diagonal())
    assert float(off.abs().max()) < 1e-4 * float(diagonal.diagonal().max())


def test_hessians_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ValueError, match="no inputs"):
        Hessian(4).factor()
    broken = Hessian(4)
    broken.add(torch.full((2, 4), float("nan")))
    with pytest.raises(ValueError, match="not finite"):
        broken.factor()


@pytest.mark.parametrize(("k", "rows"), [(200, 33), (576, 70)])
def test_native_and_torch_agree(implementation: str, monkeypatch: pytest.MonkeyPatch, k: int, rows: int) -> None:
    if implementation == "torch":
        pytest.skip("compared once")
    feedback = _feedback(_inputs(1500, k))
    results = []
    for _ in range(2):
        base = round_base(_weights(k, rows), feedback, GAUSSIAN, GROUP)
        results.append((base, round_residual(base.error.clone(), feedback, 6, GROUP)))
        monkeypatch.setattr(gptq, "_native_round_columns", lambda: None)
    for native, by_torch in zip(*results, strict=True):
        # A weight on a threshold may tip, and what follows in its row.
        assert float((native.codes == by_torch.codes).float().mean()) > 0.97
        assert float(native.error.square().mean()) == pytest.approx(float(by_torch.error.square().mean()), rel=0.01)
