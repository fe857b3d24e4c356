"""The run of lcs as its faces see it: frames, what is shared between runs, a person's picture, bad input. The model has random weights here."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from backends.contract import ContextSpec, Frame, InputError, Upload
from backends.lcs import method
from backends.lcs import models as lcs_models
from backends.lcs.card import Params
from backends.lcs.models import Steerable
from backends.lcs.picture import read_picture
from backends.runtime import memo
from backends.runtime.context import RunContext
from tests.flux_pipelines import steerable

QUICK: dict[str, Any] = {"steps": 4, "guidance": 1.0}


@pytest.fixture(scope="module")
def model() -> Steerable:
    return replace(steerable(), name="little-flux")


@pytest.fixture(autouse=True)
def _untrained(model: Steerable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights instead of the shipped ones, and an empty store for each test."""
    monkeypatch.setattr(lcs_models, "load", lambda *_: model)
    monkeypatch.setattr(memo, "SHARED", memo.MemoStore())


def frames(live: str | None = None, **changes: Any) -> list[Frame]:
    params = Params(**{**QUICK, **changes})
    context = RunContext(ContextSpec(params.seed, "cpu", "test"), live=live, scope="lcs", visitor="someone" if params.private else None)
    return [frame.sealed() for frame in method.run(params, context)]


def refused(**changes: Any) -> InputError:
    with pytest.raises(InputError) as error:
        frames(**changes)
    return error.value


def picture(width: int = 90, height: int = 60, mode: str = "RGB", kind: str = "PNG") -> Upload:
    pixels = np.zeros((height, width, 4), np.uint8)
    pixels[..., 0], pixels[..., 3] = 200, 255
    pixels[height // 4 : height // 2, width // 4 : width // 2] = (20, 40, 220, 255)
    pixels[0, 0] = 0
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return Upload.of(f"mine.{kind.lower()}", file.getvalue())


def test_frames_grow_and_every_figure_is_there() -> None:
    given = frames()
    assert [f.data["stage"] for f in given][:2] == ["subspace", "subspace"]
    stages = [stage for stage, _ in itertools.groupby(f.data["stage"] for f in given)]
    assert stages == ["subspace", "sampling", "steering", "done"]
    progress = [f.progress for f in given]
    assert progress == sorted(progress)
    assert progress[-1] == 1
    last = given[-1].data
    assert np.asarray(last["sampling"]["cloud"]).shape == (5, 64, 3)
    assert last["steering"]["step"] == [t for t in last["sampling"]["step"] if t >= last["steer"]["step"]]
    assert {picture.shape for picture in last["sampling"]["decoded"]} == {(64, 64, 3)}
    assert {picture.shape for picture in last["sampling"]["lcs"]} == {(8, 8, 3)}
    assert len(last["prediction"]["lcs"]) == len(last["schedule"]["beta"]) == 5
    assert last["prediction"]["decoder"][-1] == pytest.approx(0.0)  # the last decoded latents are the finished picture
    assert last["schedule"]["run_beta"][-1] == pytest.approx(1.0)
    assert 40 < last["prediction"]["random_level"] < 55
    assert last["before"].shape == last["after"].shape == last["recoloured"].shape == (64, 64, 3)
    assert last["measured"]["which"] == ["unsteered", "steered", "recoloured"]
    assert last["outside_share"] > 0.01
    assert given[-1].metrics["delta_e_steered"] == last["measured"]["delta_e"][1]


def test_the_steered_sampling_parts_from_the_unsteered_one_at_its_step() -> None:
    last = frames(steer_step=2, objects="", steps=6)[-1].data
    at = last["sampling"]["step"].index(2)
    plain, steered = last["sampling"]["cloud"][at], last["steering"]["cloud"][0]
    gamma = last["steer"]["gamma"]
    assert gamma == pytest.approx(last["sampling"]["sigma"][at])
    wanted = np.asarray(last["target"]["coordinates"])
    before, after = (np.linalg.norm(cloud.mean(0) - wanted) for cloud in (plain, steered))
    assert after < before
    typed = frames(steer_step=2, objects="", steps=6, kind="type1")[-1].data["steering"]["cloud"][0]
    assert typed.mean(0) == pytest.approx(wanted, abs=0.02)
    assert typed - typed.mean(0) == pytest.approx(plain - plain.mean(0), abs=0.02)  # the cloud moves whole


def test_a_second_colour_costs_only_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unsteered sampling is stored: a second colour runs the model from the step before the change on, and nothing else."""
    calls: list[int] = []
    own_pipe = Steerable.own_pipe

    def counted(self: Steerable) -> Any:
        pipe = own_pipe(self)
        step = pipe.scheduler.step

        def stepping(*arguments: Any, **named: Any) -> Any:
            calls.append(1)
            return step(*arguments, **named)

        pipe.scheduler.step = stepping
        return pipe

    monkeypatch.setattr(Steerable, "own_pipe", counted)
    first = frames(steps=8, steer_step=3)[-1]
    assert len(calls) == 8 + 6
    calls.clear()
    second = frames(steps=8, steer_step=3, color="#ff8800")[-1]
    assert len(calls) == 6
    assert np.array_equal(first.data["before"], second.data["before"])
    calls.clear()
    frames(steps=8, kind="off")
    assert not calls


def test_a_live_run_ends_as_the_full_one_does() -> None:
    full = frames(color="#ff8800")[-1]
    memo.SHARED = memo.MemoStore()
    live = frames("color", color="#ff8800")
    assert len(live) == 1
    assert {k: v for k, v in live[0].metrics.items() if k != "seconds"} == {k: v for k, v in full.metrics.items() if k != "seconds"}


def test_off_changes_nothing_and_still_reads() -> None:
    last = frames(kind="off")[-1]
    assert np.array_equal(last.data["before"], last.data["after"])
    assert "steering" not in last.data
    assert last.metrics["delta_e_steered"] == last.metrics["delta_e_unsteered"]
    assert last.metrics["prediction_delta_e_at_20pct"] is not None


def test_the_whole_picture_can_be_steered_before_the_first_step_and_after_the_last() -> None:
    for step in (0, 4):
        last = frames(objects="", steer_step=step)[-1]
        assert last.data["steering"]["step"][0] == step
        assert last.data["masks"] == []
        assert last.metrics["mask_iou"] is None
        assert "whole picture" in last.message
    assert last.data["outside_share"] < 1e-5  # nothing was sampled after it


def test_several_objects_have_a_mask_each() -> None:
    last = frames(prompt="a circle and a square on a wall", objects="circle, square,circle")[-1]
    assert [mask["word"] for mask in last.data["masks"]] == ["circle", "square"]
    assert last.metrics["mask_iou"] is None
    assert "several objects" in last.message
    for mask in last.data["masks"]:
        held = np.asarray(mask["attention"])[np.asarray(mask["mask"]) == 1]
        assert held.sum() >= 0.8 * np.asarray(mask["attention"]).sum() - 1e-6
        assert held.sum() - held.min() < 0.8 * np.asarray(mask["attention"]).sum()


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"prompt": "a zebra on a wall"}, "prompt", "“zebra”"),
        ({"prompt": "a circle " * 9}, "prompt", "use at most 15"),
        ({"objects": "square"}, "objects", "not a word of the prompt"),
        ({"objects": "a, circle, on, wall, red", "prompt": "a red circle on a wall"}, "objects", "5 objects"),
        ({"steer_step": 9}, "steer_step", "there are 4 steps"),
        ({"steer_step": 0}, "steer_step", "no attention"),
    ],
)
def test_bad_input_is_refused_in_words(changes: dict[str, Any], field: str, words: str) -> None:
    error = refused(**changes)
    assert error.field == field
    assert words in f"{error.problem} {error.remedy}"


def test_an_empty_prompt_is_a_picture_too() -> None:
    assert frames(prompt="", objects="")[-1].progress == 1


# ------------------------------------------------------------------------------------------------ a person's picture


def test_a_picture_is_encoded_read_moved_and_decoded() -> None:
    given = frames(picture=picture(), objects="circle")
    last = given[-1]
    assert last.data["grid"] == [8, 11]
    assert last.data["picture"].shape == last.data["after"].shape == (64, 88, 3)
    assert np.asarray(last.data["cloud"]).shape == (88, 3)
    assert last.metrics["steps"] == 0
    assert "nothing is sampled" in last.message
    assert any("whole picture" in note for note in last.data["notes"])
    assert any("autoencoder alone" in note for note in last.data["notes"])
    first = frames(picture=picture(), kind="off")[-1]
    assert np.array_equal(first.data["before"], first.data["after"])


def test_nothing_of_a_persons_picture_is_shared() -> None:
    frames()
    stored = len(memo.SHARED)
    frames(picture=picture())
    assert len(memo.SHARED) == stored


@pytest.mark.parametrize(("mode", "kind"), [("RGB", "PNG"), ("L", "PNG"), ("RGBA", "PNG"), ("RGB", "JPEG"), ("P", "GIF"), ("RGBA", "WEBP")])
def test_pictures_of_all_common_kinds_are_read(mode: str, kind: str) -> None:
    found = read_picture(picture(mode=mode, kind=kind), 8)
    assert (found.shape, found.dtype) == ((64, 88, 3), np.uint8)


@pytest.mark.parametrize(("size", "shape"), [((1, 1), (64, 64)), ((3000, 10), (8, 256)), ((64, 64), (64, 64)), ((10, 500), (256, 8))])
def test_a_picture_is_brought_to_whole_tokens(size: tuple[int, int], shape: tuple[int, int]) -> None:
    assert read_picture(picture(*size), 8).shape[:2] == shape


def test_transparent_is_white() -> None:
    clear = io.BytesIO()
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(clear, "PNG")
    assert (read_picture(Upload.of("clear.png", clear.getvalue()), 8) == 255).all()


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + b"0" * 50, picture().bytes[:200] if picture().bytes else b""])
def test_a_file_that_is_no_picture_is_refused(content: bytes) -> None:
    error = refused(picture=Upload.of("x.png", content))
    assert error.field == "picture"
    assert "cannot be read" in error.problem


def test_a_picture_of_too_many_pixels_and_one_that_is_missing_are_refused() -> None:
    large = io.BytesIO()
    Image.new("1", (8000, 6000)).save(large, "PNG")
    assert "8000 x 6000" in refused(picture=Upload.of("large.png", large.getvalue())).problem
    missing = Upload(name="gone.png", sha256="0" * 64)
    assert "does not carry it" in refused(picture=missing).problem
