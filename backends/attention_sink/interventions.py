"""The changes that are made to one run: isolate a token, stretch its value (variance or norm), switch neurons off (section 4 of the card)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from backends.contract import InputError

Array = np.ndarray
Neuron = tuple[int, int]  # layer, number within the layer


@dataclass(frozen=True, slots=True)
class Stretch:
    """o_k <- c + strength (o_k - c) at one position, before W_O, in the layers that have a centre c (section 4.3).

    centres: layer -> (H d_k,). With the mean value as centre this amplifies the variance; with 0 it scales the norm only, which is the
    control: the direction that the later layers read stays the same. directions: layer -> (H d_k,) of length 1, the second control: what
    is added keeps its length, |strength - 1| |o_k - c|, and points there instead.
    """

    position: int
    strength: float
    centres: Mapping[int, Array]
    directions: Mapping[int, Array] | None = None

    def of(self, layer: int, o: torch.Tensor) -> torch.Tensor:
        """The changed value of this layer; o: (H d_k,)."""
        apart = o - torch.tensor(self.centres[layer], dtype=o.dtype, device=o.device)
        if self.directions is not None:
            apart = apart.norm() * torch.tensor(self.directions[layer], dtype=o.dtype, device=o.device)
        return o + (self.strength - 1) * apart


def scaling(position: int, strength: float, layers: Sequence[int], width: int) -> Stretch:
    """The norm-only control: o_k <- strength o_k."""
    return Stretch(position, strength, {layer: np.zeros(width, np.float32) for layer in layers})


def random_directions(layers: Sequence[int], width: int, rng: np.random.Generator) -> dict[int, Array]:
    """A direction for each layer, (width,), uniform on the sphere."""
    drawn = rng.standard_normal((len(layers), width)).astype(np.float32)
    return dict(zip(layers, drawn / np.linalg.norm(drawn, axis=1, keepdims=True), strict=True))


@dataclass(frozen=True, slots=True)
class Change:
    """What one run of a batch does differently. ablate: neurons (layer, number) whose columns of W_down are taken as zero."""

    isolate: tuple[int, ...] = ()
    ablate: tuple[Neuron, ...] = ()
    stretch: Stretch | None = None


UNCHANGED = Change()


def isolate_mask(T: int, positions: Sequence[int] = ()) -> torch.Tensor:
    """Additive mask (1, 1, T, T): causal, and each row of ``positions`` sees its own column only.

    0 where a query may look, else the lowest fp32 number. Rows below stay as they are: later tokens still see the isolated one.
    Raises InputError for a position outside 1 to T - 1, and for more than T/2 of them.

    >>> (isolate_mask(3, [1])[0, 0] == 0).int().tolist()
    [[1, 0, 0], [0, 1, 0], [1, 1, 1]]
    """
    if T < 1:
        raise InputError("T", f"{T} tokens make no mask", "give at least one token")
    chosen = sorted({int(p) for p in positions})
    if 0 in chosen:
        raise InputError("positions", "token 0 is already isolated: it sees only itself", f"choose positions from 1 to {max(T - 1, 1)}")
    if chosen and not (chosen[0] > 0 and chosen[-1] < T):
        wrong = chosen[0] if chosen[0] < 0 else chosen[-1]
        raise InputError("positions", f"position {wrong} is not among {T} tokens", f"choose positions from 1 to {max(T - 1, 1)}")
    if len(chosen) > T / 2:
        raise InputError("positions", f"{len(chosen)} of {T} tokens would be isolated", "isolate at most half of the tokens")
    closed = torch.ones(T, T).triu(1).bool()
    for position in chosen:
        closed[position, :position] = True
    return torch.zeros(1, 1, T, T).masked_fill(closed, torch.finfo(torch.float32).min)


def random_neurons(width: int, layer: int, excluded: Sequence[int], number: int, rng: np.random.Generator) -> tuple[Neuron, ...]:
    """The control of an ablation: as many neurons of the same layer, drawn among all others."""
    others = np.setdiff1d(np.arange(width), np.asarray(excluded, int))
    drawn = rng.choice(others, size=min(number, len(others)), replace=False)
    return tuple((layer, int(n)) for n in np.sort(drawn))
