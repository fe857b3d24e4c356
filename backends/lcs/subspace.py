"""The Latent Color Subspace: three directions of a 64-number latent token, laid out like a tilted HSL double cone (sections 3 and 4 of the card)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from backends.contract import InputError
from kernels import lcs as kernel

Kind = Literal["blend", "type1", "type2", "off"]
Variant = Literal["corrected", "released"]
WIDTH = 64  # numbers of a packed token: 16 channels of a 2 x 2 block
ANCHOR_COLOURS = ("#ff0000", "#00ff00", "#0000ff", "#ffff00", "#ff00ff", "#00ffff", "#000000", "#ffffff")
HUE_ORDER = (0, 3, 1, 5, 2, 4)  # red, yellow, green, cyan, blue, magenta among the anchors
BLACK, WHITE = 6, 7
ORTHONORMAL_LIMIT = 1e-3
# At sigma = 1 the closed form has no colour left to scale. What FLUX's own table holds there, .003 to .006, is the noise of the token mean.
BETA_FLOOR = 0.004


class StepStatistics(NamedTuple):
    """Measured over many pictures of one model, in place of the closed form. sigma (T + 1,) falls from 1 to 0; alpha, beta (T + 1, 3)."""

    sigma: Any
    alpha: Any
    beta: Any


@dataclass(frozen=True, eq=False)
class LCS:
    """A found subspace. B (3, 64): orthonormal rows; mu (64,); anchors (8, 3): coordinates of ``ANCHOR_COLOURS``; alpha_end (3,): mean at sigma 0.

    Coordinates are C = (x - mu) B'. Colours are (h, s, l) with each in [0, 1]. Tensors in give tensors out, anything else numpy arrays.
    variant: "released" repeats the authors' code, whose cone starts from a scalar and whose saturations are not clipped.
    Raises InputError: shapes, B not orthonormal, coincident anchors, a table that does not fall from 1 to 0 or has beta <= 0.
    """

    B: Any
    mu: Any
    anchors: Any
    alpha_end: Any
    variant: Variant = "corrected"
    statistics: StepStatistics | None = field(default=None)

    def __post_init__(self) -> None:
        for name, shape in (("B", (3, WIDTH)), ("mu", (WIDTH,)), ("anchors", (len(ANCHOR_COLOURS), 3)), ("alpha_end", (3,))):
            value = _float32(getattr(self, name))
            if value.shape != shape or not bool(value.isfinite().all()):
                raise InputError(name, f"finite numbers of shape {shape} are needed, not of {tuple(value.shape)}", "give the figures that find() returns")
            object.__setattr__(self, name, value)
        if float((self.B @ self.B.T - torch.eye(3)).abs().max()) > ORTHONORMAL_LIMIT:
            raise InputError("B", "its rows are not orthonormal", "give the first three principal directions")
        if self.variant not in ("corrected", "released"):
            raise InputError("variant", f"there is no variant {self.variant!r}", "choose corrected or released")
        if float(self.cone.axis.norm()) < kernel.EPS or float(torch.pdist(self.anchors).min()) < kernel.EPS or not self._hues_apart():
            raise InputError("anchors", "two of the eight anchors coincide", "give eight anchors that differ in colour")
        if self.statistics is not None:
            object.__setattr__(self, "statistics", _checked(self.statistics))

    def _hues_apart(self) -> bool:
        units = torch.nn.functional.normalize(self.cone.hues, dim=-1)
        return float((units * units.roll(1, 0)).sum(-1).max()) < 1 - 1e-6

    @cached_property
    def cone(self) -> kernel.Cone:
        hues = self.anchors[list(HUE_ORDER)]
        # The released code averages all numbers of a list that names red twice, so its origin is one number for all axes.
        origin = torch.cat((hues, hues[:1])).mean().expand(3) if self.variant == "released" else hues.mean(0)
        return kernel.Cone(hues - origin, self.anchors[BLACK], self.anchors[WHITE] - self.anchors[BLACK])

    @property
    def clips(self) -> bool:
        """Whether a saturation above 1 is cut before it is averaged."""
        return self.variant == "corrected"

    def coordinates(self, x: Any) -> Any:
        """C = (x - mu) B' of latents (..., 64), not normalised."""
        return _as_given(x, (_float32(x) - self.mu.to(_device(x))) @ self.B.T.to(_device(x)))

    def to_lcs(self, hsl: Any) -> Any:
        """Coordinates (..., 3) at the end's scale of colours (..., 3)."""
        return _as_given(hsl, kernel.encode(_float32(hsl), _moved(self.cone, _device(hsl))))

    def to_hsl(self, c: Any) -> Any:
        """Colours (..., 3) of coordinates at the end's scale. Not an exact inverse of ``to_lcs``: it reads the hue from the two nearest anchors."""
        hsl = kernel.decode(_float32(c), _moved(self.cone, _device(c)))
        return _as_given(c, kernel.clipped(hsl) if self.clips else hsl)

    def to_rgb(self, c: Any) -> Any:
        """sRGB in [0, 1], (..., 3), of coordinates at the end's scale, from the saturation before it is clipped."""
        return _as_given(c, kernel.to_rgb(kernel.decode(_float32(c), _moved(self.cone, _device(c)))))

    def alpha_beta(self, sigma: float) -> tuple[torch.Tensor, torch.Tensor]:
        """alpha (3,) and beta (3,) at a noise level: mean and spread of the coordinates, beta relative to the end.

        From the table where there is one, by linear interpolation over sigma; else alpha = sigma (-B mu) + (1 - sigma) alpha_end and
        beta = 1 - sigma, which hold for any schedule, step count and size. Raises InputError for a sigma outside 0 to 1.
        """
        if not 0.0 <= sigma <= 1.0:
            raise InputError("sigma", f"{sigma} is no noise level", "give a number from 0 to 1")
        if self.statistics is not None:
            levels = np.asarray(self.statistics.sigma)[::-1]
            alpha, beta = (torch.tensor([np.interp(sigma, levels, np.asarray(v)[::-1, k]) for k in range(3)]).float() for v in self.statistics[1:])
            return alpha, beta
        return sigma * -(self.B @ self.mu) + (1 - sigma) * self.alpha_end, torch.full((3,), max(1.0 - sigma, BETA_FLOOR))

    def plane(self, sigma: float) -> kernel.Plane:
        """C_hat = (C - alpha) / (beta + 1e-8) beta_end + alpha_end as one linear map."""
        alpha, beta = self.alpha_beta(sigma)
        alpha_end, beta_end = self.alpha_beta(0.0)
        gain = beta_end / (beta + kernel.EPS)
        return kernel.Plane(self.B, self.B @ self.mu, gain, alpha_end - alpha * gain)

    def observe(self, x: Any, sigma: float) -> kernel.Observation:
        """What each token will look like, read without the decoder: coordinates at the end's scale, HSL and RGB, each (..., L, 3).

        x: latents (..., L, 64) at noise level sigma, of any dtype. Raises InputError for another width.
        """
        latents = _latents(x)
        plane, cone = _moved(self.plane(sigma), latents.device), _moved(self.cone, latents.device)
        seen = kernel.observe(latents, plane, cone, clip=self.clips)
        return kernel.Observation(*(_as_given(x, part) for part in seen))

    def steer(self, x: Any, hsl: Any, sigma: float, mask: Any = None, kind: Kind = "blend", gamma: float | None = None) -> Any:
        """x with its colour moved to hsl, of its shape and dtype; x' - x lies in the row space of B.

        x: latents (L, 64) or (N, L, 64) at noise level sigma. hsl: the wanted colour (h, s, l). mask: (L,) or (N, L), the tokens that move and
        over which the means are taken; None is all. kind: "type1" shifts the cloud in the subspace, "type2" turns each token in HSL, "blend" is
        gamma of the first and the rest of the second, "off" changes nothing. gamma: None is sigma. Raises InputError: width, empty mask, gamma.
        """
        if kind == "off":
            return x
        latents, target = _latents(x), _float32(hsl)
        if target.shape != (3,) or not bool(((target >= 0) & (target <= 1)).all()):
            raise InputError("hsl", f"{hsl!r} is no colour", "give hue, saturation and lightness, each from 0 to 1")
        plane, cone = _moved(self.plane(sigma), latents.device), _moved(self.cone, latents.device)
        weight = {"type1": 1.0, "type2": 0.0}.get(kind, sigma if gamma is None else gamma)
        if not 0.0 <= weight <= 1.0 or kind not in ("type1", "type2", "blend"):
            raise InputError("gamma", f"kind {kind!r} with gamma {gamma} is unknown", "choose blend, type1, type2 or off, and gamma from 0 to 1")
        pictures = latents[None] if latents.dim() == 2 else latents
        chosen = self._chosen(mask, pictures)
        move = self.move(kernel.observe(pictures, plane, cone, clip=self.clips), target.to(latents.device), chosen, weight)
        moved = kernel.steer(pictures, chosen, plane, cone, move, clip=self.clips).reshape(latents.shape)
        return moved if isinstance(x, torch.Tensor) else moved.numpy()

    def move(self, seen: kernel.Observation, target: torch.Tensor, chosen: torch.Tensor, gamma: float) -> kernel.Move:
        """How far each picture is from the target in the mean over its chosen tokens; the hue's mean is the circular one."""
        weights = chosen.float() / chosen.sum(-1, keepdim=True)

        def mean(values: torch.Tensor) -> torch.Tensor:
            # Rows that are not chosen may hold anything: 0 times infinity is not 0.
            return torch.where(chosen, values, torch.zeros_like(values)).mul(weights).sum(-1)

        angle = seen.hsl[..., 0] * 2 * math.pi
        hue = torch.atan2(mean(angle.sin()), mean(angle.cos())) / (2 * math.pi)
        centre = torch.stack([mean(seen.coordinates[..., k]) for k in range(3)], -1)
        turn = torch.stack(((target[0] - hue + 0.5).remainder(1.0) - 0.5, target[1] - mean(seen.hsl[..., 1]), target[2] - mean(seen.hsl[..., 2])), -1)
        return kernel.Move(kernel.encode(target, _moved(self.cone, target.device)) - centre, turn, gamma)

    def _chosen(self, mask: Any, pictures: torch.Tensor) -> torch.Tensor:
        if mask is None:
            return torch.ones(pictures.shape[:2], dtype=torch.bool, device=pictures.device)
        given = torch.as_tensor(mask, device=pictures.device).bool()
        if given.shape[-1:] != pictures.shape[1:2] or given.dim() > 2 or (given.dim() == 2 and given.shape[0] != pictures.shape[0]):
            raise InputError("mask", f"a mask of shape {tuple(given.shape)} does not fit latents {tuple(pictures.shape)}", "give one value for each token")
        chosen = given.expand(pictures.shape[:2])
        if not bool(chosen.any(-1).all()):
            raise InputError("mask", "it chooses no token", "choose at least one")
        return chosen


def _checked(statistics: StepStatistics) -> StepStatistics:
    """The table as float64 arrays; raises InputError where it cannot be used."""
    sigma, alpha, beta = (np.asarray(v, float) for v in statistics)
    if sigma.ndim != 1 or alpha.shape != (len(sigma), 3) or beta.shape != alpha.shape or not all(np.isfinite(v).all() for v in (sigma, alpha, beta)):
        raise InputError("statistics", "sigma, alpha and beta do not fit each other", "give sigma (T + 1,), alpha and beta (T + 1, 3)")
    if len(sigma) < 2 or abs(sigma[0] - 1) > 1e-6 or abs(sigma[-1]) > 1e-6 or (np.diff(sigma) >= 0).any():
        raise InputError("statistics", "the noise levels do not fall from 1 to 0", "give one row for each step, the noise first")
    if (beta <= 0).any():
        raise InputError("statistics", "a beta is not above 0", "measure it over more pictures")
    return StepStatistics(sigma, alpha, beta)


def _float32(value: Any) -> torch.Tensor:
    return value.float() if isinstance(value, torch.Tensor) else torch.tensor(np.asarray(value)).float()


def _latents(x: Any) -> torch.Tensor:
    latents = x if isinstance(x, torch.Tensor) else torch.tensor(np.asarray(x))
    if latents.dim() not in (2, 3) or latents.shape[-1] != WIDTH or latents.shape[-2] == 0 or not latents.is_floating_point():
        raise InputError("x", f"latents of shape {tuple(latents.shape)} are not packed tokens", f"give numbers of shape (L, {WIDTH}) or (N, L, {WIDTH})")
    return latents


def _device(value: Any) -> torch.device:
    return value.device if isinstance(value, torch.Tensor) else torch.device("cpu")


def _as_given(given: Any, value: torch.Tensor) -> Any:
    return value if isinstance(given, torch.Tensor) else value.numpy()


def _moved(parts: Any, device: torch.device) -> Any:
    return type(parts)(*(part.to(device) for part in parts))
