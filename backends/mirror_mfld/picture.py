"""Plain data for the pictures of one run: what ``frame.data`` holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from skimage.measure import find_contours
from torch import Tensor

from backends.mirror_mfld.domains import Ball, Domain, Simplex
from backends.mirror_mfld.exact_law import ExactLaw, marginal, wall_mass
from backends.mirror_mfld.network import XorNetwork
from backends.mirror_mfld.spectraplex import Spectraplex

Array = np.ndarray

SHOWN = 800  # points of a cloud that are drawn
GRID = 121  # of the contours, a side
HELD = (0.25, 0.5, 0.75, 0.95)  # share of mu* inside each contour
BINS = 24
CURVE = 81  # points of an exact marginal
NEAR_WALL = 1e-3
HEIGHT = math.sqrt(3) / 2
CORNERS = np.array([[0.5, HEIGHT], [0.0, 0.0], [1.0, 0.0]])  # of x1, x2, x3


def flat(domain: Domain, x: Tensor) -> Array:
    """(N, 2) places in the picture: the triangle with x1 on top, the chart of disc and square.

    Larger matrices have no plane of their own: overlap with the even state and smallest eigenvalue stand for them.
    """
    if isinstance(domain, Simplex):
        return x.numpy() @ CORNERS
    if isinstance(domain, Spectraplex) and domain.size > 2:
        overlap = x.sum((-2, -1)) / domain.size
        return torch.stack([overlap, domain.wall_distance(x)], -1).numpy()
    return domain.chart(x).numpy()


def in_mirror(domain: Domain, x: Tensor) -> Array:
    """(N, 2) places in the dual picture, y modulo constants: isometric coordinates of log shares, y itself, the traceless part of log S.

    Larger matrices: logarithms of the largest and of the smallest eigenvalue.
    """
    if isinstance(domain, Simplex):
        y = domain.dual(x).numpy()
        return np.stack([(y[:, 2] - y[:, 1]) / math.sqrt(2), (2 * y[:, 0] - y[:, 1] - y[:, 2]) / math.sqrt(6)], -1)
    if isinstance(domain, Spectraplex):
        if domain.size > 2:
            values = torch.log(torch.linalg.eigvalsh(x).clamp_min(1e-300))
            return torch.stack([values[:, -1], values[:, 0]], -1).numpy()
        y = domain.dual(x)
        return torch.stack([(y[:, 0, 0] - y[:, 1, 1]) / math.sqrt(2), math.sqrt(2) * y[:, 0, 1]], -1).numpy()
    return domain.dual(x).numpy()


def coordinates(domain: Domain, x: Tensor) -> Array:
    """(N, c) what is averaged and put into histograms: shares, or the chart; of larger matrices the eigenvalues, largest first."""
    if isinstance(domain, Spectraplex) and domain.size > 2:
        return torch.linalg.eigvalsh(x).flip(-1).numpy()
    return x.numpy() if isinstance(domain, Simplex) else domain.chart(x).numpy()


def coordinate_names(domain: Domain) -> list[str]:
    """Names of the ``coordinates``."""
    if isinstance(domain, Simplex):
        return [f"x{'₁₂₃'[i]}" for i in range(3)]
    if isinstance(domain, Spectraplex):
        return ["a", "b"] if domain.size == 2 else [f"eigenvalue {i + 1}" for i in range(domain.size)]
    return ["x", "y"]


def exact_mean(law: ExactLaw) -> Array:
    """(c,) exact mean of the ``coordinates``."""
    return coordinates(law.domain, torch.as_tensor(law.mean, dtype=torch.float64)[None])[0]


def contours(law: ExactLaw) -> list[dict[str, Any]]:
    """Closed or open lines around the densest regions of mu* that hold 25, 50, 75 and 95 % of it: {held, x, y}, NaN between pieces."""
    x, y, points, inside = _grid(law.domain)
    density = np.where(inside, np.exp(np.minimum(law.log_density(points), 700.0)), 0.0)
    order = np.sort(density[inside])[::-1]
    mass = np.cumsum(order)
    extended = np.exp(np.minimum(law.log_density(points), 700.0)).reshape(GRID, GRID)  # beyond the wall too, so that lines end on it
    found = []
    for held in HELD:
        level = float(order[np.searchsorted(mass, held * mass[-1])])
        pieces = [
            np.stack([np.interp(line[:, 1], np.arange(GRID), x), np.interp(line[:, 0], np.arange(GRID), y)], -1) for line in find_contours(extended, level)
        ]
        pieces = [np.where(_is_inside(law.domain, piece)[:, None], piece, np.nan)[::2] for piece in pieces if len(piece) > 6]
        joined = np.concatenate([part for piece in pieces for part in (piece, np.full((1, 2), np.nan))]) if pieces else np.empty((0, 2))
        found.append({"held": held, "level": math.log(max(level, 1e-300)), "x": joined[:, 0], "y": joined[:, 1]})
    return found


def _from_plane(domain: Domain, places: Array) -> Tensor:
    """Points of the domain, or of the plane around it, at places (G, 2) of the picture."""
    if isinstance(domain, Simplex):
        first = places[:, 1] / HEIGHT
        third = places[:, 0] - first / 2
        return torch.from_numpy(np.stack([first, 1 - first - third, third], -1))
    at = torch.from_numpy(np.ascontiguousarray(places))
    return domain.from_chart(at) if isinstance(domain, Spectraplex) else at


def _is_inside(domain: Domain, places: Array) -> Array:
    return domain.wall_distance(_from_plane(domain, places)).numpy() >= -1e-9


def _grid(domain: Domain) -> tuple[Array, Array, Tensor, Array]:
    low, high = ((-0.01, 1.01), (-0.01, HEIGHT + 0.01)) if isinstance(domain, Simplex) else ((-1.01, 1.01), (-1.01, 1.01))
    x, y = np.linspace(*low, GRID), np.linspace(*high, GRID)
    places = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    return x, y, _from_plane(domain, places), _is_inside(domain, places)


def law(found: ExactLaw) -> dict[str, Any]:
    """What stands beside the run: mean, spread, least free energy, mass near the wall, contours, marginals."""
    rows = []
    for index in range(len(coordinate_names(found.domain))):
        low = 0.0 if isinstance(found.domain, Simplex) else -1.0
        grid = low + (1 - low) * (np.arange(CURVE) + 0.5) / CURVE
        rows.append({"x": grid, "density": marginal(found, index, grid)})
    spread = coordinates(found.domain, found.rule.nodes)
    mean = found.probability @ spread
    return {
        "mean": mean,
        "sd": np.sqrt(found.probability @ (spread - mean) ** 2),
        "energy": found.energy,
        "entropy": found.entropy,
        "free_energy": found.free_energy,
        "wall_mass": wall_mass(found, NEAR_WALL),
        "contours": contours(found),
        "marginals": rows,
    }


def inside_share(found: ExactLaw, levels: list[float], x: Tensor) -> list[float]:
    """Share of a cloud inside each contour."""
    density = found.log_density(x)
    return [float((density >= level).mean()) for level in levels]


def cloud(domain: Domain, x: Tensor, mirror: bool) -> dict[str, Any]:
    """The first 800 points of a cloud in the picture, whether each is at the wall, the mean of all, and in the mirror cloud the dual points."""
    shown, places = x[:SHOWN], flat(domain, x)
    found = {"places": places[:SHOWN].astype(np.float32), "at_wall": domain.wall_distance(shown).numpy() < NEAR_WALL, "mean": places.mean(0)}
    return found | ({"dual": in_mirror(domain, shown).astype(np.float32)} if mirror else {})


def histograms(domain: Domain, x: Tensor) -> list[dict[str, Array]]:
    """Densities of each coordinate over 24 bins: {edges (25,), density (24,)}."""
    values = coordinates(domain, x)
    bounded = isinstance(domain, Simplex | Spectraplex) and not (isinstance(domain, Spectraplex) and domain.size == 2)
    edges = np.linspace(0.0 if bounded else -1.0, 1.0, BINS + 1)
    width = edges[1] - edges[0]
    return [{"edges": edges, "density": np.histogram(column, edges)[0] / (len(column) * width)} for column in values.T]


def network(functional: XorNetwork, w: Tensor) -> dict[str, Any]:
    """The classifier: its output over a grid, the data with their labels, the neurons' signs, accuracy."""
    reach = 1.2 * float(functional.inputs.abs().max())
    at = np.linspace(-reach, reach, 41)
    places = torch.from_numpy(np.stack(np.meshgrid(at, at), -1).reshape(-1, 2))
    return {
        "at": at,
        "output": functional.outputs(w, places).reshape(41, 41).numpy().astype(np.float32),
        "inputs": functional.inputs.numpy(),
        "labels": functional.labels.numpy(),
        "signs": functional.signs(len(w))[:SHOWN].numpy(),
        "accuracy": functional.accuracy(w),
    }


def outline(domain: Domain) -> dict[str, Array]:
    """The wall as a closed line in the picture."""
    if isinstance(domain, Simplex):
        ring = np.concatenate([CORNERS, CORNERS[:1]])
    elif isinstance(domain, Spectraplex) and domain.size > 2:
        ring = np.array([[0.0, 0.0], [1.0, 0.0]])
    elif isinstance(domain, Ball | Spectraplex):
        angle = np.linspace(0, 2 * math.pi, 121)
        ring = np.stack([np.cos(angle), np.sin(angle)], -1)
    else:
        ring = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])
    return {"x": ring[:, 0], "y": ring[:, 1]}
