"""The worked example with three weights: what both objectives say of each rounding of the first two (card 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from backends.stla.curvature import lookahead

SECOND = ((2.0, 1.2, 0.6), (1.2, 2.0, 0.8), (0.6, 0.8, 1.0))
WEIGHT = 0.4  # of each column; the grid is {0, 1}
CANDIDATES = ("0-0", "0-1", "1-0", "1-1")


def example() -> dict[str, Any]:
    """For each rounding of the cluster {0, 1}: the local and the global objective, the rounding of column 2 after it, and the final loss.

    >>> example()["local"].round(4).tolist(), example()["final"].round(4).tolist()
    ([1.024, 0.464, 0.464, 2.304], [0.712, 0.432, 0.592, 1.792])
    """
    second = torch.tensor(SECOND, dtype=torch.float64)
    rounded = torch.tensor([[int(x) for x in name.split("-")] for name in CANDIDATES], dtype=torch.float64)
    error = rounded - WEIGHT
    ahead = lookahead(second, 0, 2)
    # What column 2 should be once the first two are fixed, and the nearest it can be.
    wanted = WEIGHT - error @ second[:2, 2] / second[2, 2]
    last = (wanted >= 0.5).to(error)
    whole = torch.cat([error, (last - WEIGHT)[:, None]], 1)

    def judged(e: torch.Tensor, metric: torch.Tensor) -> np.ndarray:
        return np.asarray(((e @ metric) * e).sum(1))

    return {
        "candidates": list(CANDIDATES),
        "local": judged(error, second[:2, :2]),
        "global": judged(error, ahead),
        "final": judged(whole, second),
        "wanted": wanted.numpy(),
        "last": last.numpy(),
    }
