"""Learned rounding: the closed form against autograd of the formula as it is printed, and numbers known by hand. The kernel itself: test_kernels.py."""

from __future__ import annotations

import pytest
import torch

from kernels import rounding
from tests.kernels.interpreted import draw_rounding, relative


def printed(given: tuple[torch.Tensor, ...], weight: float, beta: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(recon, regulariser, gradient) in float64: the formula, differentiated by torch."""
    v, floor, scale, zero, target, metric = (x.double() for x in given)
    width = v.shape[1] // scale.shape[1]
    scale, zero = scale.repeat_interleave(width, 1), zero.repeat_interleave(width, 1)
    v.requires_grad_()
    h = torch.clip(1.2 * torch.sigmoid(v) - 0.1, 0, 1)
    error = scale * (torch.clip(floor + h + zero, 0, 7) - zero) - target
    recon = ((error @ metric) * error).sum(1)
    regulariser = weight * (1 - (2 * h - 1).abs() ** beta).sum(1)
    (gradient,) = torch.autograd.grad((recon + regulariser).sum(), v)
    return recon.detach(), regulariser.detach(), gradient


@pytest.mark.parametrize(("weight", "beta"), [(0.0, 20.0), (1.0, 20.0), (1.5, 7.3), (0.01, 2.0), (300.0, 2.0)])
@pytest.mark.parametrize("shape", [(1, 16, 1), (23, 48, 3), (7, 5, 5), (9, 256, 1)])
def test_the_closed_form_is_what_autograd_gives(shape: tuple[int, ...], weight: float, beta: float) -> None:
    given = draw_rounding(shape, torch.float32, torch.Generator().manual_seed(7))
    found, wanted = rounding.op(*given, bits=3, weight=weight, beta=beta), printed(given, weight, beta)
    for part, ours, theirs in zip(rounding.Objective._fields, found, wanted, strict=True):
        assert ours.dtype == torch.float32
        assert relative(ours, theirs) <= 1e-4, part
    assert float(wanted[2].abs().max()) > 0.01
    if shape[0] > 7:  # what is drawn reaches both cut-offs
        assert bool((wanted[2] == 0).any())


def test_the_look_ahead_chooses_where_the_local_objective_ties() -> None:
    """H of three columns, weights 0.4, grid {0, 1}, cluster {0, 1}: figures of the method's worked example, by elimination by hand."""
    h = torch.tensor([[2.0, 1.2, 0.6], [1.2, 2.0, 0.8], [0.6, 0.8, 1.0]])
    ahead = h[:2, :2] - h[:2, 2:] @ h[2:, :2] / h[2, 2]
    assert torch.allclose(ahead, torch.tensor([[1.64, 0.72], [0.72, 1.36]]))
    candidates = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    v, zeros = 20 * (2 * candidates - 1), torch.zeros(4, 2)
    for metric, wanted in ((h[:2, :2], [1.024, 0.464, 0.464, 2.304]), (ahead, [0.7104, 0.4064, 0.4624, 1.5984])):
        found = rounding.op(v, zeros, torch.ones(4, 1), torch.zeros(4, 1), zeros + 0.4, metric, bits=1, weight=1.0, beta=2.0)
        assert found.recon.tolist() == pytest.approx(wanted, rel=1e-5)
        assert found.regulariser.tolist() == [0.0] * 4  # decided weights cost nothing
        assert not found.gradient.any()  # and no longer move


def test_a_soft_start_at_the_weights_themselves_moves_only_by_the_regulariser() -> None:
    """Without a correction the soft weights begin as W_K: the reconstruction is 0 and has no slope."""
    generator = torch.Generator().manual_seed(1)
    weights, scale = torch.randn(6, 32, generator=generator), torch.full((6, 1), 0.3)
    floor = (weights / scale).floor()
    share = (weights / scale - floor).clamp(1e-4, 1 - 1e-4)
    v = torch.logit((share + rounding.MARGIN) / rounding.STRETCH)
    assert torch.allclose(rounding.rectified_sigmoid(v), share, atol=1e-6)
    zero = (-floor.amin(1, keepdim=True)).clamp(min=0)
    given = (v, floor, scale, zero, weights, torch.eye(32))
    still = rounding.op(*given, bits=8, weight=0.0, beta=20.0)
    assert float(still.recon.max()) < 1e-6
    assert float(still.gradient.abs().max()) < 1e-4
    pushed = rounding.op(*given, bits=8, weight=1.0, beta=2.0).gradient
    undecided = (share - 0.5).abs().clamp(max=0.499) > 0.01
    assert bool(((pushed < 0) == (share > 0.5))[undecided].all())  # descent moves each weight to its nearer side


def test_half_precision_weights_are_read_as_they_are() -> None:
    v, floor, scale, zero, target, metric = draw_rounding((4, 32, 2), torch.bfloat16, torch.Generator().manual_seed(2))
    half, full = (rounding.op(v, floor, scale, zero, t, metric, bits=3, weight=1.0, beta=4.0) for t in (target, target.float()))
    assert all(torch.equal(a, b) for a, b in zip(half, full, strict=True))


def test_no_graph_is_kept() -> None:
    v, *rest = draw_rounding((4, 16, 1), torch.float32, torch.Generator().manual_seed(3))
    found = rounding.op(v.requires_grad_(), *rest, bits=3, weight=1.0, beta=4.0)
    assert not any(x.requires_grad for x in found)


def test_shapes_and_numbers_that_do_not_fit_are_refused() -> None:
    v, floor, scale, zero, target, metric = draw_rounding((4, 16, 2), torch.float32, torch.Generator().manual_seed(4))
    with pytest.raises(ValueError, match="do not fit"):
        rounding.op(v, floor[:2], scale, zero, target, metric, bits=3, weight=1.0, beta=2.0)
    with pytest.raises(ValueError, match="do not fit"):
        rounding.op(v, floor, scale, zero, target, metric[:8, :8], bits=3, weight=1.0, beta=2.0)
    with pytest.raises(ValueError, match="G dividing 16"):
        rounding.op(v, floor, scale.repeat(1, 2)[:, :3], zero.repeat(1, 2)[:, :3], target, metric, bits=3, weight=1.0, beta=2.0)
    with pytest.raises(ValueError, match="G dividing 16"):
        rounding.op(v, floor, scale[:, 0], zero[:, 0], target, metric, bits=3, weight=1.0, beta=2.0)
    with pytest.raises(ValueError, match="bits is 9"):
        rounding.op(v, floor, scale, zero, target, metric, bits=9, weight=1.0, beta=2.0)
    with pytest.raises(ValueError, match=r"beta is 0\.5"):
        rounding.op(v, floor, scale, zero, target, metric, bits=3, weight=1.0, beta=0.5)
    with pytest.raises(ValueError, match="wider than 256"):
        rounding.launch(*draw_rounding((1, 272, 1), torch.float32, torch.Generator().manual_seed(5)), bits=3, weight=1.0, beta=2.0)


def test_a_cluster_wider_than_a_program_takes_the_reference() -> None:
    given = draw_rounding((3, 272, 1), torch.float32, torch.Generator().manual_seed(5))
    found = rounding.op(*given, bits=3, weight=1.0, beta=2.0)
    assert relative(found.gradient, printed(given, 1.0, 2.0)[2]) <= 1e-4
