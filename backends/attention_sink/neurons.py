"""The layer that makes the sink, and the neurons in it that fire for the first token alone (section 4.1, links 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import kurtosis

from backends.attention_sink.architecture import Architecture
from backends.attention_sink.tracing import Trace

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class SuperNeurons:
    """The MLP of one layer, n neurons, seen through its first token.

    layer: where ||h_0|| jumps most. gate_norm, up_norm: (n,) length of each neuron's row of W_gate and W_up. activation_first: (n,), of
    token 0. first, second: the neurons that write most. down_column: (d,), what the first one writes. kurtosis: excess kurtosis of it.
    gate_rows: (2, d), the rows of W_gate of both.
    """

    layer: int
    gate_norm: Array
    up_norm: Array
    activation_first: Array
    first: int
    second: int
    down_column: Array
    kurtosis: float
    gate_rows: Array

    def gate_cosine(self, mlp_input: Array) -> list[float]:
        """cos(x, w_gate) of both neurons for one token's MLP input x (d,)."""
        return [float(row @ mlp_input / (np.linalg.norm(row) * np.linalg.norm(mlp_input))) for row in self.gate_rows]


def find_super_neurons(parts: Architecture, first_token: Trace) -> SuperNeurons:
    """Finds them by the largest jump of ||h_0|| from one layer to the next, then by |activation of token 0| x ||column of W_down||.

    first_token: the trace of the first token alone, whose states equal those of token 0 in any text that begins with it.
    """
    norm = first_token.norm[:, 0]
    layer = int(np.argmax(np.diff(norm))) if len(norm) > 1 else 0
    mlp = parts.layers[layer].mlp
    gate, up, down = (getattr(mlp, name).weight.detach().float().cpu().numpy() for name in ("gate_proj", "up_proj", "down_proj"))
    activation = first_token.layers[layer].activation[first_token.place(0)]
    written = np.abs(activation) * np.linalg.norm(down, axis=0)
    first, second = (int(n) for n in np.argsort(-written, kind="stable")[:2])
    return SuperNeurons(
        layer=layer,
        gate_norm=np.linalg.norm(gate, axis=1),
        up_norm=np.linalg.norm(up, axis=1),
        activation_first=activation,
        first=first,
        second=second,
        down_column=down[:, first].copy(),
        kurtosis=float(kurtosis(down[:, first])),
        gate_rows=gate[[first, second]],
    )
