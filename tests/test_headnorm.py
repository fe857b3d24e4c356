"""Head-wise RMSNorm: the closed forms of the paper's code, and the random block that shows the variance discrepancy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from backends.attention_sink.headnorm import HeadwiseRMSNorm, block_spread, causal_block


def rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()


@pytest.mark.parametrize("shared", [False, True])
def test_gamma_has_the_shape_of_its_variant(shared: bool) -> None:
    norm = HeadwiseRMSNorm(3, 8, shared=shared)
    assert norm.gamma.shape == ((8,) if shared else (3, 8))
    assert norm.shared is shared


@pytest.mark.parametrize("shared", [False, True])
def test_scale_does_not_matter(shared: bool) -> None:
    torch.manual_seed(0)
    norm, o = HeadwiseRMSNorm(4, 16, shared=shared), torch.randn(2, 7, 64)
    assert torch.allclose(norm(37.0 * o), norm(o), atol=1e-5)
    assert torch.allclose(norm(-o), -norm(o))


def test_each_head_is_scaled_by_itself() -> None:
    torch.manual_seed(0)
    norm, o = HeadwiseRMSNorm(2, 8), torch.randn(5, 16)
    other = o.clone()
    other[:, 8:] *= 100
    assert torch.allclose(norm(other), norm(o), atol=1e-5)
    assert not torch.allclose(torch.nn.functional.rms_norm(other, [16]), torch.nn.functional.rms_norm(o, [16]), atol=0.1)


@pytest.mark.parametrize("shared", [False, True])
def test_the_root_mean_square_of_every_output_is_gamma(shared: bool) -> None:
    torch.manual_seed(0)
    norm = HeadwiseRMSNorm(3, 32, shared=shared)
    with torch.no_grad():
        norm.gamma.fill_(0.7)
    found = rms(norm(torch.randn(4, 9, 96) * (0.1 + torch.rand(4, 9, 1))).unflatten(-1, (3, 32)))
    assert torch.allclose(found, torch.full_like(found, 0.7), rtol=1e-3)


def test_it_equals_the_formula_in_numpy() -> None:
    rng = np.random.default_rng(0)
    o, gamma = rng.normal(size=(6, 2, 5)), rng.normal(size=(2, 5))
    norm = HeadwiseRMSNorm(2, 5).double()
    with torch.no_grad():
        norm.gamma.copy_(torch.from_numpy(gamma))
    wanted = gamma * o / np.sqrt((o**2).mean(-1, keepdims=True) + 1e-6)
    assert norm(torch.from_numpy(o.reshape(6, 10))).detach().numpy() == pytest.approx(wanted.reshape(6, 10), rel=1e-5)


def test_its_gradient_is_the_numerical_one() -> None:
    torch.manual_seed(0)
    norm = HeadwiseRMSNorm(2, 3)
    o = torch.randn(2, 6, requires_grad=True)
    direction, small = torch.randn(2, 6), 1e-3
    (norm(o) * direction).sum().backward()
    step = torch.randn(2, 6)
    with torch.no_grad():
        numerical = ((norm(o + small * step) - norm(o - small * step)) * direction).sum() / (2 * small)
    assert o.grad is not None
    assert float((o.grad * step).sum()) == pytest.approx(float(numerical), rel=1e-2)


def test_a_zero_head_stays_zero_and_finite() -> None:
    assert torch.equal(HeadwiseRMSNorm(2, 4)(torch.zeros(3, 8)), torch.zeros(3, 8))


def test_another_width_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="2 heads of 4 need 8"):
        HeadwiseRMSNorm(2, 4)(torch.zeros(3, 9))


@pytest.mark.parametrize("shared", [False, True])
def test_initialisation_gives_the_scale_of_the_first_token(shared: bool) -> None:
    """N(0, 1) inputs, weights 0.02, d = 768: gamma is about 0.02 * sqrt(768) = 0.554."""
    generator = torch.Generator().manual_seed(0)
    w_q, w_k, w_v = (torch.randn(768, 768, generator=generator) * 0.02 for _ in range(3))
    norm = HeadwiseRMSNorm(12, 64, shared=shared)
    norm.initialise(w_q, w_k, w_v, generator)
    assert float(norm.gamma.detach().mean()) == pytest.approx(0.554, rel=0.1)
    if not shared:
        assert float(norm.gamma.detach().std(-1).max()) == 0.0  # one number a head
        assert norm.gamma[:, 0].unique().numel() == 12


def test_the_block_averages_what_it_sees() -> None:
    torch.manual_seed(0)
    x, w_v = torch.randn(5, 8), torch.randn(8, 8)
    o = causal_block(x, torch.zeros(8, 8), torch.zeros(8, 8), w_v, heads=2)  # no scores: even attention
    values = x @ w_v.T
    for t in range(5):
        assert torch.allclose(o[t], values[: t + 1].mean(0), atol=1e-5)


def test_spread_falls_as_one_over_root_t_and_the_norm_holds_it() -> None:
    """The notebook's toy: d = 768, 12 heads, weights 0.02 / sqrt(24), inputs of unit root mean square: 0.1131 / sqrt(t + 1)."""
    found = block_spread(64)
    assert float(found.theory[0]) == pytest.approx(0.1131, abs=1e-4)
    assert float(found.theory[15]) == pytest.approx(0.1131 / 4, abs=1e-4)
    assert (found.plain / found.theory).numpy() == pytest.approx(np.ones(64), abs=0.06)
    assert (found.normalised / found.gamma).numpy() == pytest.approx(np.ones(64), abs=0.03)
    slope = np.polyfit(np.log(np.arange(1, 65)), np.log(found.plain.numpy()), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.02)


def test_the_block_is_repeatable_and_refuses_heads_that_do_not_divide() -> None:
    first, second = (block_spread(8, width=32, heads=4, draws=2, seed=3) for _ in range(2))
    assert torch.equal(first.plain, second.plain)
    assert math.isfinite(first.gamma)
    with pytest.raises(ValueError, match="5 heads do not divide"):
        block_spread(8, width=32, heads=5)
