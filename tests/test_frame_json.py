"""Frames as JSON and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from backends.contract import Frame
from backends.frame_json import LIST_LIMIT, decode, encode


def through_json(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


kinds = st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int8, np.uint16, np.bool_, np.dtype(">f8"), np.dtype(">i4")])


@settings(deadline=None)
@given(hnp.arrays(kinds, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7), elements={"allow_nan": False, "allow_infinity": False}))
def test_every_array_comes_back(array: np.ndarray) -> None:
    back = np.asarray(through_json(array))
    assert back.shape == array.shape or array.size == 0
    np.testing.assert_array_equal(back.reshape(array.shape), array)
    if array.size > LIST_LIMIT:
        assert back.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: a[::-1], lambda a: a.T, lambda a: np.broadcast_to(a[0], a.shape)])
def test_any_memory_layout(make: Any) -> None:
    array = make(np.arange(100.0).reshape(10, 10))
    np.testing.assert_array_equal(through_json(array), array)


@pytest.mark.parametrize("shape", [(1, 1, 3), (8, 5, 3), (0, 5, 3), (5, 0, 3)])
def test_pictures_travel_as_png_and_come_back_exactly(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    encoded = encode(picture)
    if picture.size:
        assert encoded.keys() == {"png", "shape"}
    np.testing.assert_array_equal(np.asarray(through_json(picture), dtype=np.uint8).reshape(shape), picture)


def test_what_json_cannot_say_becomes_none_in_lists_and_stays_in_large_arrays() -> None:
    assert through_json([1.0, float("nan"), np.float64("inf")]) == [1.0, None, None]
    assert through_json(np.array([np.nan, 1.0])) == [None, 1.0]
    large = np.full(100, np.nan)
    np.testing.assert_array_equal(through_json(large), large)


def test_plain_values_keep_their_kind() -> None:
    value = {"text": "ä", "flag": True, "none": None, "n": 3, "deep": [{"x": (1, 2)}], "word": np.str_("w"), "np": np.int32(4), 5: "key"}
    assert through_json(value) == {"text": "ä", "flag": True, "none": None, "n": 3, "deep": [{"x": [1, 2]}], "word": "w", "np": 4, "5": "key"}
    assert through_json(np.array(["a", "b"])) == ["a", "b"]
    assert through_json(True) is True


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", 1j, np.array([1j]), np.array([object()])])
def test_what_is_no_data_is_refused_in_words(value: Any) -> None:
    with pytest.raises(TypeError, match="a frame holds a "):
        encode({"x": value})


def test_a_whole_frame_comes_back() -> None:
    frame = Frame(0.5, "half way", {"k": 1.5, "why": None, "word": "a", "yes": True}, {"x": np.arange(100.0), "table": [{"a": 1}]})
    back = Frame.from_json(json.loads(json.dumps(frame.to_json(), allow_nan=False)))
    assert (back.progress, back.message, back.metrics) == (frame.progress, frame.message, frame.metrics)
    np.testing.assert_array_equal(back.data["x"], frame.data["x"])
    assert back.data["table"] == [{"a": 1}]
