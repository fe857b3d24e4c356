"""The pure diffusion dY = sqrt(2 lambda [Hessian of phi*(Y)]^-1) dB over one step, three ways (sections 4.2 and 4.4 of the card)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from backends.mirror_mfld.domains import Domain, Simplex, normal


def euler_maruyama(domain: Domain, y: Tensor, h: float, inner: int = 1, generator: torch.Generator | None = None) -> Any:
    """Points after Y <- Y + sqrt(2 h / inner) [Hessian of phi at grad phi*(Y)]^(1/2) xi, ``inner`` times.

    y: (..., N, *shape), the dual points after the drift, so the Hessian is the one there; h = lambda * eta. The plain scheme: with an
    entropy as mirror map it sends particles to the corners (section 11 of the card).
    """
    p = domain.primal(y)
    for _ in range(inner):
        y = y + math.sqrt(2 * h / inner) * domain.hessian_root(p, domain.dual_noise(p, generator))
        p = domain.primal(y)
    return p


def floored_step(domain: Domain, y: Tensor, h: float, inner: int = 1, generator: torch.Generator | None = None, floor: float | None = None) -> Any:
    """As ``euler_maruyama``, but shares or eigenvalues below ``floor`` (h where None) are first raised to it, in Y and in the Hessian."""
    least = h if floor is None else floor
    for _ in range(inner):
        p = domain.floor(domain.primal(y), least)
        y = domain.dual(p) + math.sqrt(2 * h / inner) * domain.hessian_root(p, domain.dual_noise(p, generator))
    return domain.primal(y)


def wright_fisher_step(domain: Simplex, x: Tensor, h: float, exponent: Any = 0.0, generator: torch.Generator | None = None) -> Tensor:
    """J_i ~ Poisson(x_i / h), G_i ~ Gamma(1 + exponent_i + J_i), x <- G / sum G (section 4.4 of the card).

    x: (..., N, m) on the simplex; h = lambda * eta > 0; exponent = beta / lambda > -1/2, a number or one a share (m,), absorbs a barrier
    -lambda sum exponent_i E log x_i. Leaves the law with density prod x_i^exponent_i exactly as it is, whatever h. Drawn without the two
    steps: such a G is half of a noncentral chi-square number with 2 (1 + exponent) degrees of freedom and noncentrality 2 x_i / h, which
    is (Z + sqrt(2 x_i / h))^2 plus a central one. Raises ValueError for h or an exponent outside.
    """
    powers = torch.as_tensor(exponent, dtype=torch.float64)
    if not (math.isfinite(h) and h > 0) or not bool((powers > -0.5).all()):
        raise ValueError(f"h must be above 0 and every exponent above -0.5, not {h} and {exponent}")
    shifted = normal(x.shape, generator, x.device).add_(torch.sqrt(x * (2 / h))).square_()
    if not bool(powers.any()):
        central = normal(x.shape, generator, x.device).square_()
    else:
        # torch.distributions takes no generator of its own, and a run must not touch the global one.
        central = 2 * torch._standard_gamma((0.5 + powers.to(x.device)).expand_as(x).contiguous(), generator=generator)  # type: ignore[call-arg]
    drawn = shifted.add_(central)
    return drawn.div_(domain.total(drawn))
