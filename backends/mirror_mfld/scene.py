"""From params to a problem: domain, functional, exact law where there is one, first cloud, and notes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from backends.contract import InputError, Upload
from backends.mirror_mfld.card import Params
from backends.mirror_mfld.domains import Ball, Box, Domain, Simplex
from backends.mirror_mfld.dynamics import Diffusion, Settings
from backends.mirror_mfld.functionals import Functional, Linear, MeanMatching, MmdToCloud, SpectraplexMatching
from backends.mirror_mfld.network import XorNetwork, xor_data
from backends.mirror_mfld.spectraplex import Spectraplex
from backends.runtime.tables import listed, read_table

SHARES = 3
SUM_SLACK = 1e-3  # of three typed shares, which are then divided by their sum
XOR_ROWS = 200
TARGET_POINTS = 200
PURE_SHARE = 0.87  # of the target matrix; the rest is uniform
MATRIX_WORK = 5_000_000  # particles times d cubed: above it a step takes longer than Stop may
PAIR_LIMIT = 3000  # particles of an all-pairs functional
INSIDE = 1 - 1e-6
STIFF = 1.0  # median of the noise of one step over |y|
_DATA_STREAM, _START_STREAM = 101, 102  # of the seed; the dynamics have 0 to 99
SAFE: dict[str, Diffusion] = {"simplex": "exact", "spectraplex": "em-floor", "ball": "em", "box": "em"}


@dataclass(frozen=True)
class Scene:
    """One problem. handle: q in the chart or shares, None where nothing is dragged; target: points of a target cloud; start: first cloud."""

    domain: Domain
    functional: Functional
    settings: Settings
    start: Tensor
    data: str
    handle: np.ndarray | None = None
    target: Tensor | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)


def generator(seed: int, stream: int) -> torch.Generator:
    """A stream of its own for each use of one seed."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, stream]).generate_state(1)[0]))


def load(params: Params) -> Scene:
    """The problem of these params. Raises InputError naming the field."""
    domain = _domain(params)
    notes: list[str] = []
    functional, handle, data = _functional(params, domain, notes)
    settings = Settings(params.step, params.temperature, params.barrier, _diffusion(params), params.n_inner, frozen=params.frozen_drift)
    _bound_work(params, functional)
    start = domain.uniform(params.particles, generator(params.seed, _START_STREAM))
    if settings.diffusion == "em":
        ratio = _stiffness(domain, start, settings, generator(params.seed, _START_STREAM))
        if ratio > STIFF:
            notes.append(f"one step of noise is {ratio:.1f} times as long as y (median of the first cloud): the step is too large for plain em")
        if params.barrier < params.temperature and not isinstance(domain, Ball | Box):
            notes.append("plain em is not safe while the barrier is below the temperature: watch the boundary mass")
    if params.optimiser != "mirror" and params.barrier:
        notes.append("the barrier drift of the projected cloud is floored at a share of 0.01; with 1e-6 it would all land on the walls")
    target = functional.target if isinstance(functional, MmdToCloud) else None
    return Scene(domain, functional, settings, start, data, handle, target, tuple(notes))


def _domain(params: Params) -> Domain:
    if params.domain == "simplex":
        return Simplex(SHARES)
    if params.domain == "spectraplex":
        return Spectraplex(params.dimension)
    return Ball(2) if params.domain == "ball" else Box(2)


def _diffusion(params: Params) -> Diffusion:
    if params.diffusion == "auto":
        return SAFE[params.domain]
    if params.diffusion == "exact" and params.domain != "simplex":
        raise InputError("diffusion", f"exact is known on the simplex only, not on the {params.domain}", "choose auto, em-floor or em")
    return params.diffusion


def _functional(params: Params, domain: Domain, notes: list[str]) -> tuple[Functional, np.ndarray | None, str]:
    kind = params.functional
    if kind == "xor-network":
        if params.domain != "ball":
            raise InputError("functional", f"the neurons of the network live in the ball, not on the {params.domain}", "choose the domain ball")
        inputs, labels = xor_data(XOR_ROWS, generator(params.seed, _DATA_STREAM))
        return XorNetwork(domain, inputs, labels), None, f"{XOR_ROWS} generated points, XOR of two signs with noise"
    if kind == "spectraplex-matching" and not isinstance(domain, Spectraplex):
        raise InputError("functional", f"spectraplex-matching needs matrices, not the {params.domain}", "choose the domain spectraplex")
    if kind == "mmd":
        if isinstance(domain, Spectraplex):
            raise InputError("functional", "the kernel of mmd is defined for points, not for matrices", "choose spectraplex-matching")
        target, data = _target_cloud(params, domain)
        return MmdToCloud(domain, target), _handle_of_cloud(params, domain), data
    q, handle, data = _target(params, domain, notes)
    if kind == "linear":
        centre = torch.full_like(q, 1 / SHARES) if isinstance(domain, Simplex) else torch.eye(domain.shape[0], dtype=torch.float64) / domain.shape[0]
        return Linear(domain, -(q - (centre if isinstance(domain, Simplex | Spectraplex) else 0.0))), handle, data
    return (SpectraplexMatching(domain, q) if kind == "spectraplex-matching" else MeanMatching(domain, q)), handle, data


def _target(params: Params, domain: Domain, notes: list[str]) -> tuple[Tensor, np.ndarray | None, str]:
    """(q in ambient coordinates, the handle that is dragged, where it comes from)."""
    if isinstance(domain, Simplex):
        if params.csv is not None:
            q, names = _proportions(params.csv)
            return torch.from_numpy(q), None, f"{params.csv.name}: shares of {names}"
        q = _shares(params.q)
        if q.min() <= 0 and params.barrier == 0:
            notes.append("q lies on the wall: without a barrier the law still has mass beside it")
        return torch.from_numpy(q), q, "the target q"
    if isinstance(domain, Spectraplex):
        if params.csv is not None:
            return _matrix(params.csv, domain), None, f"{params.csv.name}: the target matrix"
        if domain.size > 2:
            return _pure_target(domain.size), None, f"a target matrix with the eigenvalue {PURE_SHARE + (1 - PURE_SHARE) / domain.size:.2f}"
    point = np.array(params.q[:2], float)
    if not isinstance(domain, Box) and np.linalg.norm(point) > 1:
        raise InputError("q", f"({point[0]:g}, {point[1]:g}) lies outside the disc", "choose two numbers whose squares sum to at most 1")
    if isinstance(domain, Spectraplex):
        return domain.from_chart(torch.from_numpy(point)), point, "the target matrix q"
    if float(domain.wall_distance(torch.from_numpy(point))) <= 0 and params.barrier == 0:
        notes.append("q lies on the wall: without a barrier the law still has mass beside it")
    return torch.from_numpy(point), point, "the target q"


def _shares(given: list[float]) -> np.ndarray:
    q = np.array(given, float)
    if q.min() < 0:
        raise InputError("q", f"the share {q.min():g} is below 0: q lies outside the simplex", "choose three shares of at least 0 that sum to 1")
    if abs(q.sum() - 1) > SUM_SLACK:
        raise InputError("q", f"the three shares sum to {q.sum():g}: q lies outside the simplex", "make them sum to 1")
    return q / q.sum()


def _pure_target(size: int) -> Tensor:
    """Mostly one state that mixes all coordinates evenly, the rest uniform."""
    return PURE_SHARE * torch.full((size, size), 1 / size, dtype=torch.float64) + (1 - PURE_SHARE) / size * torch.eye(size, dtype=torch.float64)


def _columns(upload: Upload, count: int) -> tuple[np.ndarray, list[str], np.ndarray]:
    """(rows, count) numbers of the first columns of numbers, their names, the lines of the rows."""
    table = read_table(upload, "csv", min_columns=count)
    names = table.numeric_names()[:count]
    if len(names) < count:
        raise InputError("csv", f"{len(names)} columns hold numbers", f"give {count} columns of numbers")
    return np.column_stack([table.numbers(name, "csv") for name in names]), names, table.lines


def _proportions(upload: Upload) -> tuple[np.ndarray, str]:
    values, names, lines = _columns(upload, SHARES)
    below = np.argwhere(values < 0)
    if len(below):
        row, column = below[0]
        raise InputError("csv", f"line {lines[row]}: {values[row, column]:g} is below 0 and no amount", "give amounts of at least 0")
    total = values.sum(0)
    if not total.sum() > 0:
        raise InputError("csv", "all amounts are 0", "give amounts above 0")
    return total / total.sum(), listed(names)


def _matrix(upload: Upload, domain: Spectraplex) -> Tensor:
    values, _, _ = _columns(upload, domain.size)
    if len(values) != domain.size:
        raise InputError(
            "csv", f"the table has {len(values)} rows and {domain.size} columns are read", f"give a matrix of {domain.size} rows, or change its size"
        )
    try:
        return domain.check(torch.from_numpy(values)[None], "the matrix")[0]
    except ValueError as fault:
        raise InputError("csv", str(fault), "give a symmetric matrix with eigenvalues of at least 0 and trace 1") from None


def _target_cloud(params: Params, domain: Domain) -> tuple[Tensor, str]:
    if params.csv is not None:
        values, _, lines = _columns(params.csv, domain.shape[0])
        points = torch.from_numpy(values)
        off = (points.sum(-1) - 1).abs() if isinstance(domain, Simplex) else torch.zeros(len(points))
        bad = torch.nonzero((domain.wall_distance(points) < -1e-6) | (off > SUM_SLACK))
        if len(bad):
            raise InputError("csv", f"line {lines[int(bad[0])]}: the point lies outside the {domain.name}", "give points inside it")
        points = points / points.sum(-1, keepdim=True) if isinstance(domain, Simplex) else points
        return points[:TARGET_POINTS], f"{params.csv.name}, {min(len(points), TARGET_POINTS)} points"
    drawn = generator(params.seed, _DATA_STREAM)
    half = TARGET_POINTS // 2
    if isinstance(domain, Simplex):
        centres = _shares(params.q) * INSIDE + (1 - INSIDE) / SHARES
        both = torch.from_numpy(np.stack([centres, np.roll(centres, 1)]))
        made = torch._standard_gamma((30 * both)[:, None].expand(2, half, SHARES).contiguous(), generator=drawn)  # type: ignore[call-arg]
        made = (made + 1e-12).reshape(-1, SHARES)
        return made / made.sum(-1, keepdim=True), f"{TARGET_POINTS} points around q and around q with its shares turned by one place"
    point = torch.tensor(params.q[:2], dtype=torch.float64)
    both = torch.stack([point, -point])[:, None] + 0.12 * torch.randn(2, half, 2, generator=drawn, dtype=torch.float64)
    return domain.project(both.reshape(-1, 2)) * INSIDE, f"{TARGET_POINTS} points around q and around -q"


def _handle_of_cloud(params: Params, domain: Domain) -> np.ndarray | None:
    """A generated target cloud stands around q, which can be dragged; a person's own one stays where it is."""
    if params.csv is not None:
        return None
    return _shares(params.q) if isinstance(domain, Simplex) else np.array(params.q[:2], float)


def _bound_work(params: Params, functional: Functional) -> None:
    if isinstance(functional, MmdToCloud) and params.particles > PAIR_LIMIT:
        raise InputError("particles", f"{params.particles} particles have too many pairs for mmd", f"choose at most {PAIR_LIMIT}")
    most = MATRIX_WORK // params.dimension**3
    if params.domain == "spectraplex" and params.particles > most:
        raise InputError("particles", f"{params.particles} matrices of this size take too long a step", f"choose at most {most}")


def _stiffness(domain: Domain, x: Tensor, settings: Settings, drawn: torch.Generator) -> float:
    """Median over the cloud of the noise of one plain step against |y|, both modulo constants (section 10 of the card)."""
    p = domain.lift(x)
    noise = math.sqrt(2 * settings.h) * domain.hessian_root(p, domain.dual_noise(p, drawn))
    ratio = _size(domain, noise) / _size(domain, domain.dual(p)).clamp_min(1e-12)
    return float(ratio.median())


def _size(domain: Domain, y: Tensor) -> Tensor:
    """(N,) norm of dual vectors; with an entropy as mirror map, of what is left without the constant."""
    if isinstance(domain, Simplex):
        y = y - y.mean(-1, keepdim=True)
    elif isinstance(domain, Spectraplex):
        eye = torch.eye(domain.size, dtype=y.dtype)
        y = y - y.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * eye
    return y.square().flatten(1).sum(-1).sqrt()
