"""The law at rest: mu* is proportional to exp(-delta F(mu*) / lambda) with respect to Lebesgue measure (sections 4.1 and 6 of the card)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.special import ive, logsumexp
from torch import Tensor

from backends.mirror_mfld.domains import Ball, Box, Domain, Simplex, whole_number
from backends.mirror_mfld.functionals import Functional, KernelBasis, MmdToCloud, MomentForm
from backends.mirror_mfld.quadrature import Quadrature, gauss_jacobi, quadrature
from backends.mirror_mfld.spectraplex import Spectraplex

Array = np.ndarray

NODES = {Simplex: 160, Box: 160, Ball: 96, Spectraplex: 96}  # a direction
SLICE_NODES = 96
STEEPEST = 2.0  # power of the wall that the rule itself takes; a higher one is smooth, and its rule would crowd far from where a pull leads
KERNEL_NODES, LANDMARK_NODES = 40, {Simplex: 18, Box: 18, Ball: 11}  # where features are kernels, which are smooth and many
TOLERANCE = 1e-12
NEWTON_LIMIT = 200
SHALLOW = 2e-3  # Armijo's share of the expected fall


@dataclass(frozen=True)
class ExactLaw:
    """mu* of one functional.

    temperature, barrier: lambda, beta; moments: E psi (r,); rule, probability: nodes and their share of mu* (G,); basis: of kernel
    features; log_normaliser: log of the integral of exp(-delta F / lambda). Chart: see ``Domain``.
    """

    domain: Domain
    functional: Functional
    temperature: float
    barrier: float
    moments: Array
    rule: Quadrature
    probability: Array
    basis: KernelBasis | None
    log_normaliser: float

    def expectation(self, values: Array) -> Array:
        """E f from the values (G, ...) of f at the nodes."""
        return np.tensordot(self.probability, values, axes=1)

    @cached_property
    def mean(self) -> Array:
        """(*shape) E x."""
        return self.expectation(self.rule.nodes.numpy())

    @cached_property
    def sd(self) -> Array:
        """(*shape) standard deviation of each coordinate."""
        return np.sqrt(self.expectation((self.rule.nodes.numpy() - self.mean) ** 2))

    @cached_property
    def second_moment(self) -> float:
        """E |x|^2, on the spectraplex the purity E Tr S^2."""
        return float(self.expectation((self.rule.nodes.flatten(1).numpy() ** 2).sum(1)))

    def log_density(self, x: Tensor) -> Array:
        """(G,) log density at points (G, *shape) with respect to the chart's Lebesgue measure; outside, where beta = 0, the formula goes on."""
        inner = _potential(self.form(x), self.moments)
        if self.barrier:
            inside = self.domain.wall_distance(x).numpy() > 0
            inner = inner + np.where(inside, self.barrier * self.domain.barrier(x).numpy(), math.inf)
        return -inner / self.temperature - self.log_normaliser

    def form(self, x: Tensor) -> MomentForm:
        """psi and V at points."""
        found = self.functional.moment_form(x, self.basis)
        assert found is not None  # fixed_point has refused a functional without one
        return found

    @cached_property
    def energy(self) -> float:
        """F(mu*), with the barrier."""
        form = self.form(self.rule.nodes)
        apart = float(((self.moments - form.target) ** 2).sum())
        barrier = self.barrier * float(self.expectation(self.domain.barrier(self.rule.nodes).numpy())) if self.barrier else 0.0
        return form.weight / 2 * apart + float(self.expectation(form.own)) + barrier

    @cached_property
    def entropy(self) -> float:
        """Ent(mu*) = E log density, in nats."""
        form = self.form(self.rule.nodes)
        barrier = self.barrier * float(self.expectation(self.domain.barrier(self.rule.nodes).numpy())) if self.barrier else 0.0
        return -(float(self.expectation(_potential(form, self.moments))) + barrier) / self.temperature - self.log_normaliser

    @cached_property
    def free_energy(self) -> float:
        """F(mu*) + lambda Ent(mu*), the least there is."""
        return self.energy + self.temperature * self.entropy


def _potential(form: MomentForm, moments: Array) -> Array:
    """delta F without barrier at the nodes of a form."""
    return form.weight * (form.psi @ (moments - form.target)) + form.own


def fixed_point(domain: Domain, functional: Functional, temperature: float, barrier: float = 0.0, nodes: int | None = None) -> ExactLaw:
    """mu* by Newton steps on its moments m = E psi, with quadrature for every expectation.

    m solves m = E_m psi with the law exp(-(s <m - t, psi> + V + beta B) / lambda) / Z. This is the gradient of the convex
    |m|^2 / 2 + (lambda / s) log Z(m), so Newton steps with backtracking always arrive. nodes: a direction, 96 on the simplex.

    Raises ValueError for temperature <= 0, barrier < 0, a functional without moments (the network) or a domain without quadrature.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be above 0, not {temperature}")
    if not (math.isfinite(barrier) and barrier >= 0):
        raise ValueError(f"barrier must be at least 0, not {barrier}")
    kernel = isinstance(functional, MmdToCloud)
    base = min(barrier / temperature, STEEPEST)
    rule = quadrature(domain, base, nodes or (KERNEL_NODES if kernel else NODES[type(domain)]))
    basis = functional.basis(quadrature(domain, 0.0, LANDMARK_NODES[type(domain)]).nodes) if kernel else None
    form = functional.moment_form(rule.nodes, basis)
    if form is None:
        raise ValueError("this functional has no exact law: it is not a square of moments")
    log_base = np.log(np.maximum(rule.weights, 1e-320))
    if barrier > base * temperature:
        log_base = log_base - (barrier / temperature - base) * domain.barrier(rule.nodes).numpy()
    moments = _newton(form, log_base, temperature)
    log_weight = log_base - _potential(form, moments) / temperature
    total = float(logsumexp(log_weight))
    return ExactLaw(domain, functional, temperature, barrier, moments, rule, np.exp(log_weight - total), basis, total + rule.log_volume)


def _newton(form: MomentForm, log_base: Array, temperature: float) -> Array:
    if form.weight == 0:
        return np.zeros(0)
    ratio = form.weight / temperature

    def at(m: Array) -> tuple[float, Array]:
        exponent = log_base - _potential(form, m) / temperature
        total = float(logsumexp(exponent))
        return float(m @ m) / 2 + total / ratio, np.exp(exponent - total)

    m = np.exp(log_base - logsumexp(log_base)) @ form.psi
    height, p = at(m)
    for _ in range(NEWTON_LIMIT):
        mean = p @ form.psi
        slope = m - mean
        if float(np.abs(slope).max()) < TOLERANCE:
            return m
        centred = form.psi - mean
        move = np.linalg.solve(np.eye(m.size) + ratio * (centred.T * p) @ centred, slope)
        size, fall = 1.0, float(slope @ move)
        while True:
            tried, p_tried = at(m - size * move)
            # Below the rounding of the height nothing can be compared: there a whole Newton step is right.
            if tried <= height - SHALLOW * size * fall or size < 1e-9 or fall < 1e-12 * (1 + abs(height)):
                break
            size /= 2
        m, height, p = m - size * move, tried, p_tried
    raise ArithmeticError("the fixed point was not reached; the temperature is too low for the quadrature")


def ball_linear_mean(dimension: int, temperature: float, strength: float = 1.0, barrier: float = 0.0) -> float:
    """Mean along c of the law exp(-<c, z> / lambda) (1 - r^2)^(beta / lambda) on the unit ball, |c| = strength.

    -I_(nu + 1)(k) / I_nu(k) with nu = d / 2 + beta / lambda, k = strength / lambda; d = 2, beta = 0 is -I_2 / I_1.
    Raises ValueError for values outside.

    >>> round(ball_linear_mean(2, 0.25), 6)
    -0.658047
    """
    dimension = whole_number(dimension, 1, "dimension")
    if not (temperature > 0 and strength >= 0 and barrier >= 0):
        raise ValueError("temperature must be above 0, strength and barrier at least 0")
    if strength == 0:
        return 0.0
    order, k = dimension / 2 + barrier / temperature, strength / temperature
    if ive(order, k) < 1e-280:  # small arguments: the first term of the continued fraction
        return -k / (2 * (order + 1))
    return -float(ive(order + 1, k) / ive(order, k))


def spectraplex_purity(size: int, exponent: float = 0.0) -> float:
    """E Tr S^2 of the law det(S)^exponent on size x size density matrices: (n + d + 1) / (n d + 2) with n = d + 1 + 2 exponent.

    >>> round(spectraplex_purity(3, 1.0), 4)
    0.5
    """
    d = whole_number(size, 2, "size")
    if not exponent >= 0:
        raise ValueError(f"the exponent must be at least 0, not {exponent}")
    n = d + 1 + 2 * exponent
    return (n + d + 1) / (n * d + 2)


def slices(domain: Domain, coordinate: int, at: Array, exponent: float, nodes: int) -> tuple[Tensor, Array]:
    """Points (K, n, *shape) of the domain where the chart's coordinate is ``at`` (K,), and their weights (K, n).

    The weights integrate against exp(-exponent B) over the slice. On the simplex ``coordinate`` may be any of the shares. Raises ValueError
    where there is no quadrature.
    """
    if isinstance(domain, Simplex):
        if domain.shares > 2:
            rest = quadrature(Simplex(domain.shares - 1), exponent, nodes)
        else:
            rest = Quadrature(torch.ones(1, 1, dtype=torch.float64), np.ones(1), 0.0)
        power = (domain.shares - 1) * (exponent + 1) - 1
        scale = at**exponent * (1 - at) ** power * math.exp(rest.log_volume)
        others = (1 - at)[:, None, None] * rest.nodes.numpy()
        points = np.insert(others, coordinate, at[:, None], axis=2)
        return torch.from_numpy(points), scale[:, None] * rest.weights
    flat: Domain = Ball(2) if isinstance(domain, Spectraplex) and domain.size == 2 else domain
    if not isinstance(flat, Ball | Box) or flat.dimension != 2:
        raise ValueError(f"there are no slices of the {domain.name} of dimension {domain.dimension}")
    line = quadrature(Ball(1), exponent, nodes)
    reach = np.sqrt(1 - at**2) if isinstance(flat, Ball) else np.ones_like(at)
    power = exponent + 0.5 if isinstance(flat, Ball) else exponent
    scale = (1 - at**2) ** power * math.exp(line.log_volume) * (0.25**exponent if flat is not domain else 1.0)
    points = np.insert(reach[:, None, None] * line.nodes.numpy(), coordinate, at[:, None], axis=2)
    x = torch.from_numpy(points)
    return (domain.from_chart(x) if isinstance(domain, Spectraplex) else x), scale[:, None] * line.weights


def marginal(law: ExactLaw, coordinate: int, at: Array, nodes: int = SLICE_NODES) -> Array:
    """Density (K,) of one coordinate of the chart (on the simplex, of any share) at values ``at`` (K,) inside its range."""
    exponent = law.barrier / law.temperature
    base = min(exponent, STEEPEST)
    points, weights = slices(law.domain, coordinate, at, base, nodes)
    flat = points.reshape(-1, *law.domain.shape)
    inner = _potential(law.form(flat), law.moments) / law.temperature
    if exponent > base:
        inner = inner + (exponent - base) * law.domain.barrier(flat).numpy()
    return (weights * np.exp(-inner.reshape(weights.shape) - law.log_normaliser)).sum(1)


def wall_mass(law: ExactLaw, width: float) -> float:
    """Probability that the wall distance is below ``width``; for walls that meet in corners up to terms of width^2."""
    # Graded towards the wall, where the density may have the factor u^(beta / lambda).
    node, weight = gauss_jacobi(16, 0.0, 0.0)
    near, step = width * node**3, 3 * width * node**2 * weight
    if isinstance(law.domain, Simplex):
        return float(sum((marginal(law, i, near) * step).sum() for i in range(law.domain.shares)))
    if isinstance(law.domain, Box):
        return float(sum((marginal(law, i, side * (1 - near)) * step).sum() for i in range(2) for side in (-1.0, 1.0)))
    reach = 2.0 if isinstance(law.domain, Spectraplex) else 1.0  # the smallest eigenvalue is (1 - r) / 2
    angle = 2 * math.pi * np.arange(256) / 256
    radius = 1 - reach * near
    ring = torch.from_numpy(radius[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)).reshape(-1, 2)
    density = np.exp(law.log_density(law.domain.from_chart(ring) if isinstance(law.domain, Spectraplex) else ring)).reshape(16, 256)
    return float((density.mean(1) * 2 * math.pi * radius * reach * step).sum())
