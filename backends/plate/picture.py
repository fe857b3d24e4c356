"""What the pictures need, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from backends.plate import geometry
from backends.plate.bench import GRID, GRID_HIGH, GRID_LOW, Bench, Trail, Trained
from backends.plate.plans import PROBES, Choice
from backends.plate.redundancy import cosines

LEVELS = 255
BRIGHTEST = 99.5  # per cent of the PLATE entries that moved lie below full colour
ROWS_DRAWN = 128  # of a matrix, at most: a page gets each frame whole
MOONS_DRAWN = 250  # points of each pair
BINS = 32


def trail(found: Trail, trainable: int, keeps: str) -> dict[str, Any]:
    """One method's course: lists of one entry a measurement."""
    course = {name: list(getattr(found, name)) for name in Trail.__slots__}
    return course | {"trainable": trainable, "keeps": keeps}


def layer(name: str, choice: Choice) -> dict[str, Any]:
    """What the weights of one layer decided."""
    return {
        "name": name,
        "d_out": len(choice.scores),
        "d_in": len(choice.energy),
        "rows": len(choice.rows),
        "k": choice.Q.shape[1],
        "k_exact": choice.width.k,
        "asked": choice.width.asked,
        "capped": choice.width.capped,
        "forced": choice.width.forced,
        "n_high": choice.n_high,
        "estimates": dict(zip(map(str, PROBES), choice.estimates, strict=True)),
        "protected": choice.protected,
    }


def shown(name: str, choice: Choice, weight: np.ndarray, energy: float) -> dict[str, Any]:
    """The layer of the pictures: its energies, scores and |cos| matrix, rows by score from the highest.

    weight: (d_out, d_in) before. The matrix is thinned to every n-th row where it is large.
    """
    order = np.argsort(-choice.scores, kind="stable")
    some = order[:: -(-len(order) // ROWS_DRAWN)]
    matrix = cosines(torch.from_numpy(weight[some].astype(np.float64))).numpy()
    total = choice.energy.sum()
    edges = np.linspace(choice.scores.min(), choice.scores.max() + 1e-9, BINS + 1)
    moving = np.isin(np.arange(len(choice.scores)), choice.rows)
    return {
        "name": name,
        "tau": energy,
        "n_high": choice.n_high,
        "k": choice.Q.shape[1],
        "k_exact": choice.width.k,
        "d_in": len(choice.energy),
        "cumulative": np.concatenate([[0.0], np.cumsum(choice.energy) / total if total > 0 else np.ones_like(choice.energy)]).astype(np.float32),
        "edges": edges,
        "moving": np.histogram(choice.scores[moving], edges)[0],
        "staying": np.histogram(choice.scores[~moving], edges)[0],
        "cut": float(choice.scores[choice.rows].min()),
        "cosines": np.round(matrix * LEVELS).astype(np.uint8),
        "rows": len(choice.rows),
        "d_out": len(choice.scores),
    }


def change(choice: Choice, plate: np.ndarray, lora: np.ndarray | None) -> dict[str, Any]:
    """|dW V|: rows by redundancy score, columns by how much energy the frozen rows have along each input direction.

    plate, lora: (d_out, d_in) changes of weight. Both in levels 0..255 of the same full colour, each level the largest of ``together``
    rows; the split says what fell where.
    """
    order = np.argsort(-choice.scores, kind="stable")
    found = {"plate": plate} | ({} if lora is None else {"lora": lora})
    turned = {name: np.abs(delta[order] @ choice.directions) for name, delta in found.items()}
    moved = turned["plate"][turned["plate"] > 0]
    full = float(np.percentile(moved, BRIGHTEST)) if moved.size else 1.0
    together = -(-len(order) // ROWS_DRAWN)
    return {
        "full": full,
        "n_high": choice.n_high,
        "rows": len(choice.rows),
        "together": together,
        "maps": {name: np.minimum(np.round(LEVELS * _largest(matrix, together) / full), LEVELS).astype(np.uint8) for name, matrix in turned.items()},
        "split": {name: split(delta, choice) for name, delta in found.items()},
        "profile": {name: np.linalg.norm(matrix, axis=0).astype(np.float32) for name, matrix in turned.items()},
    }


def _largest(matrix: np.ndarray, together: int) -> np.ndarray:
    """The largest entry of each column in every so many rows. matrix: (r, c) of no negative numbers."""
    missing = -len(matrix) % together
    return np.pad(matrix, ((0, missing), (0, 0))).reshape(-1, together, matrix.shape[1]).max(axis=1)


def split(delta: np.ndarray, choice: Choice) -> dict[str, float]:
    """||dW V_high||, ||dW V_low|| in float64, and the share of the change on rows that may not move."""
    turned = delta.astype(np.float64) @ choice.directions.astype(np.float64)
    stay = np.isin(np.arange(len(delta)), choice.rows, invert=True)
    whole = float(np.linalg.norm(delta))
    high, low = turned[:, : choice.n_high], turned[:, choice.n_high :]
    outside = float(np.linalg.norm(delta[stay])) / whole if whole > 0 else 0.0
    return {"high": float(np.linalg.norm(high)), "low": float(np.linalg.norm(low)), "frozen_rows": outside}


def evidence(bench: Bench, choices: dict[str, Choice]) -> list[dict[str, Any]]:
    """How much of the old inputs of each layer the allowed directions see, beside what random ones would."""
    names = list(choices)
    found = geometry.seen(bench.body, names, [choices[name].Q for name in names], bench.pair.old.test.x)
    return [{"name": name, "seen": seen, "random": random} for name, (seen, random) in zip(names, found, strict=True)]


def moons(bench: Bench, maps: dict[str, Trained]) -> dict[str, Any]:
    """Drift over the plane for each method, with points of both pairs."""
    old, new = (task.test for task in (bench.pair.old, bench.pair.new))
    return {
        "x": np.linspace(GRID_LOW[0], GRID_HIGH[0], GRID),
        "y": np.linspace(GRID_LOW[1], GRID_HIGH[1], GRID),
        "maps": {name: found.drift_map.astype(np.float16).astype(np.float32) for name, found in maps.items() if found.drift_map is not None},
        "old": old.x[:MOONS_DRAWN].numpy(),
        "new": new.x[:MOONS_DRAWN].numpy(),
    }


def point(group: str, text: str, rank: int | None, found: Trained) -> dict[str, Any]:
    """Where a method ended, with what it trained."""
    end = {name: getattr(found.trail, name)[-1] for name in ("new", "old")}
    return {"group": group, "text": text, "rank": rank, **end, "trainable": found.trainable}
