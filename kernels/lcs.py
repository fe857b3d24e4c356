"""Reads and steers colour in the Latent Color Subspace, fused: one token's 64 numbers -> 3 coordinates -> HSL -> RGB, and back into the token.

Source: "The Latent Color Subspace" (arXiv 2603.12261) and its public code. Shapes: x (N, L, 64), N pictures of L packed tokens; all else is
fp32. Two passes steer: ``observe`` gives every token's coordinates and HSL, whose means over a picture say how far to move, ``steer`` moves
each token. The 61 directions orthogonal to the subspace are never written.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from kernels import use_triton

EPS = 1e-8
HUES = 6  # anchors around the axis, in the order red, yellow, green, cyan, blue, magenta
TOKENS = 32  # tokens of one program


class Cone(NamedTuple):
    """The bicone that HSL spans. hues (6, 3): hue anchors as seen from the origin o, so A_k - o; black (3,); axis (3,) = white - black."""

    hues: torch.Tensor
    black: torch.Tensor
    axis: torch.Tensor


class Plane(NamedTuple):
    """Where the subspace lies and how one noise level maps to the end: C_hat = (x basis' - centre) gain + shift. basis (3, 64), the others (3,)."""

    basis: torch.Tensor
    centre: torch.Tensor
    gain: torch.Tensor
    shift: torch.Tensor


class Observation(NamedTuple):
    """coordinates: C_hat, at the end's scale. hsl: h in [0, 1), s >= 0, l in [0, 1]. rgb in [0, 1]. Each (..., 3)."""

    coordinates: torch.Tensor
    hsl: torch.Tensor
    rgb: torch.Tensor


class Move(NamedTuple):
    """How each picture moves. shift (N, 3): c* - mean C_hat (Type I); turn (N, 3): h, s, l shift (Type II); gamma: the weight of Type I."""

    shift: torch.Tensor
    turn: torch.Tensor
    gamma: float


def encode(hsl: torch.Tensor, cone: Cone) -> torch.Tensor:
    """HSL -> coordinates (..., 3): along the axis by lightness, out to a hue by spherical interpolation of its two anchors.

    >>> cone = Cone(torch.eye(3).repeat(2, 1), torch.zeros(3), torch.ones(3))
    >>> encode(torch.tensor([0.0, 1.0, 0.5]), cone).tolist()
    [1.5, 0.5, 0.5]
    """
    hue, saturation, lightness = hsl.unbind(-1)
    position = hue.remainder(1.0) * HUES
    first = position.floor().clamp(max=HUES - 1).long()
    p = position - first
    units, radii = functional.normalize(cone.hues, dim=-1), cone.hues.norm(dim=-1)
    second = (first + 1) % HUES
    psi = torch.acos((units[first] * units[second]).sum(-1).clamp(-1.0, 1.0))
    weights = torch.stack((torch.sin((1 - p) * psi), torch.sin(p * psi)), -1) / torch.sin(psi)[..., None]
    direction = weights[..., :1] * units[first] + weights[..., 1:] * units[second]
    reach = saturation * ((1 - p) * radii[first] + p * radii[second]) * (1 - (2 * lightness - 1).abs())
    return cone.black + lightness[..., None] * cone.axis + reach[..., None] * direction


def decode(coordinates: torch.Tensor, cone: Cone) -> torch.Tensor:
    """Coordinates -> HSL (..., 3). Saturation is not clipped: above 1 outside the cone, of order 1e6 beyond black and white."""
    along = ((coordinates - cone.black) * cone.axis).sum(-1) / cone.axis.square().sum()
    lightness = along.abs().clamp(max=1.0)
    outward = coordinates - cone.black - along[..., None] * cone.axis
    # Summed squares, not cdist: its matrix form loses the digits that tell two near anchors apart.
    distance = (outward[..., None, :] - cone.hues).square().sum(-1)
    nearest = distance.topk(2, dim=-1, largest=False).indices
    low, high = nearest.amin(-1), nearest.amax(-1)
    wraps = high - low > HUES // 2  # magenta and red: the way around
    first, second = torch.where(wraps, high, low), torch.where(wraps, low, high)
    units, radii = functional.normalize(cone.hues, dim=-1), cone.hues.norm(dim=-1)
    length = outward.norm(dim=-1)
    turned = torch.acos(((outward * units[first]).sum(-1) / length.clamp(min=EPS)).clamp(0.0, 1.0))
    p = turned / torch.acos((units[first] * units[second]).sum(-1).clamp(0.0, 1.0))
    hue = ((first + p * (second + HUES * wraps - first)) / HUES).remainder(1.0)
    radius = (1 - p) * radii[first] + p * radii[second]
    saturation = length / (radius * (1 - (2 * lightness - 1).abs()) + EPS)
    return torch.stack((hue, saturation, lightness), -1)


def clipped(hsl: torch.Tensor) -> torch.Tensor:
    """HSL (..., 3) with saturation at most 1."""
    return torch.cat((hsl[..., :1], hsl[..., 1:2].clamp(max=1.0), hsl[..., 2:]), -1)


def to_rgb(hsl: torch.Tensor) -> torch.Tensor:
    """HSL -> sRGB, each (..., 3). A saturation above 1 counts: only its channels are clipped to [0, 1].

    >>> to_rgb(torch.tensor([0.5, 1.0, 0.5])).tolist()
    [0.0, 1.0, 1.0]
    """
    hue, saturation, lightness = hsl[..., :1], hsl[..., 1:2], hsl[..., 2:]
    k = (hue * 12 + hsl.new_tensor([0.0, 8.0, 4.0])).remainder(12.0)
    chroma = saturation * torch.minimum(lightness, 1 - lightness)
    return (lightness - chroma * torch.minimum(k - 3, 9 - k).clamp(-1.0, 1.0)).clamp(0.0, 1.0)


def observe_reference(x: torch.Tensor, plane: Plane, cone: Cone, *, clip: bool) -> Observation:
    """Every token's coordinates, HSL and RGB; x: (..., 64). clip: saturation in HSL to [0, 1]; RGB is made before that."""
    coordinates = (x.float() @ plane.basis.T - plane.centre) * plane.gain + plane.shift
    hsl = decode(coordinates, cone)
    return Observation(coordinates, clipped(hsl) if clip else hsl, to_rgb(hsl))


def steer_reference(x: torch.Tensor, mask: torch.Tensor, plane: Plane, cone: Cone, move: Move, *, clip: bool) -> torch.Tensor:
    """x (N, L, 64) with the masked tokens moved; mask: (N, L) bool. The others keep their bits."""
    seen = observe_reference(x, plane, cone, clip=clip)
    turned = seen.hsl + move.turn[:, None]
    turned = torch.cat((turned[..., :1].remainder(1.0), turned[..., 1:].clamp(0.0, 1.0)), -1)
    second = encode(turned, cone) - seen.coordinates
    change = (move.gamma * move.shift[:, None] + (1 - move.gamma) * second) / plane.gain
    return torch.where(mask[..., None], (x.float() + change @ plane.basis).to(x.dtype), x)


def observe(x: torch.Tensor, plane: Plane, cone: Cone, *, clip: bool) -> Observation:
    """As ``observe_reference``; on a CUDA device one fused kernel."""
    return launch_observe(x, plane, cone, clip=clip) if use_triton(x) else observe_reference(x, plane, cone, clip=clip)


def steer(x: torch.Tensor, mask: torch.Tensor, plane: Plane, cone: Cone, move: Move, *, clip: bool) -> torch.Tensor:
    """As ``steer_reference``; on a CUDA device one fused kernel. Raises ValueError for shapes that do not fit."""
    if x.dim() != 3 or mask.shape != x.shape[:2] or move.shift.shape != (x.shape[0], 3) or move.turn.shape != move.shift.shape:
        raise ValueError(f"x {tuple(x.shape)}, mask {tuple(mask.shape)}, shift {tuple(move.shift.shape)} and turn {tuple(move.turn.shape)} do not fit")
    launched = launch_steer if use_triton(x) else steer_reference
    return launched(x, mask, plane, cone, move, clip=clip)


def _constants(plane: Plane, cone: Cone, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The basis and, in the order that ``kernels._lcs_triton`` reads, all other constants."""
    parts = (plane.centre, plane.gain, plane.shift, cone.black, cone.axis, cone.hues.flatten())
    return plane.basis.contiguous().to(device), torch.cat(parts).to(device)


@cache
def triton_kernels() -> tuple[Any, Any]:
    """(observe, steer), found on first use: Triton is imported only where a kernel is."""
    from kernels import _lcs_triton

    return _lcs_triton.observe_kernel, _lcs_triton.steer_kernel


def launch_observe(x: torch.Tensor, plane: Plane, cone: Cone, *, clip: bool) -> Observation:
    """``observe`` by its Triton kernel."""
    basis, table = _constants(plane, cone, x.device)
    tokens = x.numel() // x.shape[-1]
    coordinates, hsl, rgb = (torch.empty(*x.shape[:-1], 3, dtype=torch.float32, device=x.device) for _ in range(3))
    triton_kernels()[0][(-(-tokens // TOKENS),)](x.contiguous(), basis, table, coordinates, hsl, rgb, tokens, CLIP=clip, BLOCK=TOKENS)
    return Observation(coordinates, hsl, rgb)


def launch_steer(x: torch.Tensor, mask: torch.Tensor, plane: Plane, cone: Cone, move: Move, *, clip: bool) -> torch.Tensor:
    """``steer`` by its Triton kernel."""
    x = x.contiguous()
    basis, table = _constants(plane, cone, x.device)
    moves, out = torch.cat((move.shift, move.turn), 1).float().contiguous(), torch.empty_like(x)
    tokens, length = x.shape[0] * x.shape[1], x.shape[1]
    chosen = mask.to(torch.int8).contiguous()
    triton_kernels()[1][(-(-tokens // TOKENS),)](x, chosen, moves, basis, table, out, tokens, length, float(move.gamma), CLIP=clip, BLOCK=TOKENS)
    return out
