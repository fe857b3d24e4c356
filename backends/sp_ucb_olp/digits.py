"""A real little workload: handwritten digits served by one small network at three precisions of its weights, with counted cost.

The network is trained in the run (64-32-10, ReLU). Serving a digit multiplies only where the input is not zero, as a sparse engine
does: the multiplications are counted for each digit and each precision, and the bytes are those of the arrays that are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from backends.sp_ucb_olp.instances import Pool
from backends.sp_ucb_olp.surplus import Array

HIDDEN = 32
TRAINED_ON = 897  # of 1797 digits; the other 900 are served
EPOCHS = 60
BATCH = 64
SEED = 0  # of the network: all visitors share one
PIXEL_MAX = 16.0
BITS = {"float32": 32, "int8": 8, "int4": 4}


@dataclass(frozen=True, slots=True)
class Network:
    """Weights of the two layers, (64, 32) and (32, 10), with biases (32,) and (10,), in float32."""

    weights: tuple[Array, Array]
    biases: tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class Quantised:
    """One layer's weights as they are stored and as they compute. stored: int8, or two int4 a byte; scale: float32, one a layer; values: float32."""

    stored: Array
    scale: Array
    values: Array


def train(check: Callable[[], None], progress: Callable[[int], None]) -> Network:
    """Trains the network on the first 897 digits with Adam; calls ``check`` and ``progress(epoch)`` once an epoch."""
    from sklearn.neural_network import MLPClassifier

    pixels, labels = _digits()
    network = MLPClassifier((HIDDEN,), batch_size=BATCH, learning_rate_init=0.003, alpha=1e-3, random_state=SEED)
    for epoch in range(1, EPOCHS + 1):
        check()
        network.partial_fit(pixels[:TRAINED_ON], labels[:TRAINED_ON], classes=np.arange(10))
        progress(epoch)
    first, second = (np.asarray(w, dtype=np.float32) for w in network.coefs_)
    return Network((first, second), tuple(np.asarray(b, dtype=np.float32) for b in network.intercepts_))  # type: ignore[arg-type]


def _digits() -> tuple[Array, Array]:
    """Pixels (1797, 64) in 0 to 1, float32, and labels (1797,)."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return np.asarray(pixels / PIXEL_MAX, dtype=np.float32), np.asarray(labels)


def quantise(weights: Array, bits: int) -> Quantised:
    """Symmetric, one scale a layer: round(w / s) in -(2^(bits-1) - 1) .. 2^(bits-1) - 1; 32 bits leave the weights as they are.

    weights: (m, n) float32, m n even; bits: 32, 8 or 4.
    """
    if bits == 32:
        return Quantised(weights, np.ones(0, dtype=np.float32), weights)
    top = 2 ** (bits - 1) - 1
    scale = np.float32(np.abs(weights).max() / top)
    whole = np.clip(np.round(weights / scale), -top, top).astype(np.int8)
    pairs = whole.reshape(-1, 2)
    stored = whole if bits == 8 else ((pairs[:, 0] & 0x0F) | (pairs[:, 1] << 4)).astype(np.int8)
    return Quantised(stored, np.array([scale]), whole * scale)


def serve(network: Network, bits: int, pixels: Array, labels: Array) -> tuple[Array, Array, int]:
    """Serves n digits at one precision: (n,) probability of the true class, (n,) multiplications counted times bits, and the bytes read.

    Multiplications are those of inputs and hidden values that are not zero; bytes are stored weights, scales, biases and activations.
    """
    first, second = (quantise(w, bits) for w in network.weights)
    hidden = np.maximum(pixels @ first.values + network.biases[0], 0.0)
    logits = (hidden @ second.values + network.biases[1]).astype(float)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    chance = odds[np.arange(len(labels)), labels] / odds.sum(axis=1)
    products = np.count_nonzero(pixels, axis=1) * HIDDEN + np.count_nonzero(hidden, axis=1) * logits.shape[1]
    arrays = (first.stored, first.scale, second.stored, second.scale, *network.biases, pixels[0], hidden[0])
    return chance, products * bits, sum(a.nbytes for a in arrays)


def pool(network: Network, configurations: int) -> Pool:
    """The 900 served digits under the first of the three precisions; cost as a share of float32's dense cost."""
    pixels, labels = _digits()
    dense = sum(w.size for w in network.weights) * 32
    served = [serve(network, bits, pixels[TRAINED_ON:], labels[TRAINED_ON:]) for bits in list(BITS.values())[:configurations]]
    whole = serve(network, 32, pixels[:1], labels[:1])[2]
    rewards = np.stack([chance for chance, _, _ in served], axis=1)
    use = np.stack([np.stack([work / dense, np.full(len(work), size / whole)], axis=1) for _, work, size in served], axis=1)
    return Pool(rewards, use, tuple(BITS)[:configurations], ("arithmetic", "memory traffic"), f"{len(rewards)} handwritten digits (scikit-learn)")
