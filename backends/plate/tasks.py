"""Two tasks after one another: handwritten digits 0 to 4 then 5 to 9, or two pairs of moons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

DIGITS_TRAIN = 1200
MOONS, MOONS_NOISE = 1000, 0.08  # points a pair, half of them for training; spread about the arcs
TURN, SHIFT = np.deg2rad(90.0), (0.4, 0.9)  # where the second pair of moons lies


@dataclass(frozen=True, slots=True)
class Data:
    """x: (n, d) float32; y: (n,) class from 0."""

    x: torch.Tensor
    y: torch.Tensor


@dataclass(frozen=True, slots=True)
class Task:
    """What is learned and what is held out."""

    train: Data
    test: Data


@dataclass(frozen=True, slots=True)
class Pair:
    """The old task, the new one, the sizes of the body and the outputs of each head."""

    old: Task
    new: Task
    sizes: tuple[int, ...]
    outputs: int
    source: str


def make(name: str, seed: int) -> Pair:
    """The pair of tasks of this name, digits or moons; only moons draw from the seed."""
    return digits() if name == "digits" else moons(seed)


def digits() -> Pair:
    """scikit-learn's digits / 16, shuffled with seed 0, the first 1,200 for training; classes 0-4 first, then 5-9."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.RandomState(0).permutation(len(bunch.target))  # the shuffle that the reference figures were computed with
    x = torch.from_numpy((bunch.data[order] / 16).astype(np.float32))
    y = torch.from_numpy(bunch.target[order].astype(np.int64))

    def task(first: int) -> Task:
        ours = (y >= first) & (y < first + 5)
        head, tail = ours[:DIGITS_TRAIN], ours[DIGITS_TRAIN:]
        return Task(Data(x[:DIGITS_TRAIN][head], y[:DIGITS_TRAIN][head] - first), Data(x[DIGITS_TRAIN:][tail], y[DIGITS_TRAIN:][tail] - first))

    return Pair(task(0), task(5), (64, 256, 256, 256), 5, "handwritten digits, 1,797 of 8 x 8 (scikit-learn): 0-4, then 5-9")


def moons(seed: int) -> Pair:
    """Two interleaving half circles; the second pair is turned by a quarter and shifted across the first."""
    from sklearn.datasets import make_moons

    def task(state: int, turn: float, shift: tuple[float, float]) -> Task:
        x, y = make_moons(MOONS, noise=MOONS_NOISE, random_state=state)
        centred = x - [0.5, 0.25]
        turned = centred @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]) + shift
        data = torch.from_numpy(turned.astype(np.float32)), torch.from_numpy(y.astype(np.int64))
        half = MOONS // 2
        return Task(Data(data[0][:half], data[1][:half]), Data(data[0][half:], data[1][half:]))

    state = np.random.default_rng([seed, 1]).integers(2**31 - 1, size=2)
    source = f"two pairs of moons (scikit-learn), {MOONS} points each, the second turned by a quarter"
    return Pair(task(int(state[0]), 0.0, (0.0, 0.0)), task(int(state[1]), TURN, SHIFT), (2, 256, 256), 1, source)
