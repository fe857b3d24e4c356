"""Frames as JSON and back: what ``/runs/<id>.json`` and ``--json`` write."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

LIST_LIMIT = 64  # arrays of more numbers travel as base64


def encode(value: Any) -> Any:
    """Plain JSON of a frame's data. NaN and infinity inside arrays and lists become None.

    >>> encode({"x": np.arange(3), "y": (1.0, float("nan"))})
    {'x': [0, 1, 2], 'y': [1.0, None]}
    """
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    if isinstance(value, str | int | bool) or value is None:
        return value
    raise TypeError(f"a frame holds a {type(value).__name__}; use arrays, text, numbers, lists or tables")


def _encode_array(array: np.ndarray) -> Any:
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3 and array.size:
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(array).save(file, "PNG")
        return {"png": base64.b64encode(file.getvalue()).decode(), "shape": list(array.shape)}
    if array.dtype.kind not in "biuf":
        return encode(array.tolist())
    if array.size > LIST_LIMIT:
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": base64.b64encode(little.tobytes()).decode()}
    return encode(array.tolist())


def decode(value: Any) -> Any:
    """The data that ``encode`` wrote; small arrays come back as lists."""
    if isinstance(value, Mapping):
        if value.keys() == {"dtype", "shape", "base64"}:
            raw = np.frombuffer(base64.b64decode(value["base64"]), dtype=np.dtype(value["dtype"]).newbyteorder("<"))
            return raw.reshape(value["shape"])
        if value.keys() == {"png", "shape"}:
            from PIL import Image

            return np.asarray(Image.open(io.BytesIO(base64.b64decode(value["png"]))).convert("RGB"))
        return {k: decode(v) for k, v in value.items()}
    if isinstance(value, list):
        return [decode(v) for v in value]
    return value
