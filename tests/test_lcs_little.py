"""lcs on the shipped little FLUX: what is read early, what steering reaches on prompts of many wordings, and that it is not recolouring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.contract import ContextSpec, Frame
from backends.lcs import method
from backends.lcs.card import Params
from backends.runtime.context import RunContext

pytestmark = pytest.mark.timeout(300)  # sixteen samplings: 10 s of one core, and a busy host takes many times that

STEPS = 10
# Colour-free prompts in many wordings, and colours around the circle.
OBJECTS = [
    ("a circle on a wall", "circle", "#20a050"),
    ("a star on a plain wall", "star", "#d02020"),
    ("a heart in front of a wall", "heart", "#2060d0"),
    ("a wall with a cross", "cross", "#e0c020"),
]
WALLS = [("a wall", "#a030c0"), ("a brick wall", "#2060d0"), ("a photo of a wall", "#20a050"), ("the rough wall", "#e0c020")]


def last(**values: Any) -> Frame:
    params = Params(**values)
    *_, frame = method.run(params, RunContext(ContextSpec(params.seed, "cpu", "test"), scope="lcs little"))
    return frame


@pytest.fixture(scope="module")
def objects() -> list[Frame]:
    return [last(prompt=prompt, objects=word, color=color, steps=STEPS, seed=40 + n) for n, (prompt, word, color) in enumerate(OBJECTS)]


@pytest.fixture(scope="module")
def walls() -> list[Frame]:
    return [last(prompt=prompt, objects="", color=color, steps=STEPS, seed=50 + n) for n, (prompt, color) in enumerate(WALLS)]


def mean(frames: list[Frame], name: str) -> float:
    return float(np.mean([frame.metrics[name] for frame in frames]))


def test_walls_reach_the_wanted_colour(walls: list[Frame]) -> None:
    assert mean(walls, "delta_e_steered") <= 10
    assert mean(walls, "delta_e_steered") <= mean(walls, "delta_e_unsteered") / 4


def test_objects_come_nearer_and_their_background_stays(objects: list[Frame]) -> None:
    assert mean(objects, "delta_e_steered") <= mean(objects, "delta_e_unsteered") / 2
    assert np.mean([frame.data["rest_delta_e"] for frame in objects]) < 10  # cells of 8 pixels, ten steps


def test_it_is_not_recolouring(objects: list[Frame], walls: list[Frame]) -> None:
    """Beyond the three directions that were changed, the latents end elsewhere too."""
    assert min(frame.data["outside_share"] for frame in objects + walls) > 0.005


def test_the_colour_is_read_early_and_the_affine_read_out_reads_better(objects: list[Frame], walls: list[Frame]) -> None:
    both = objects + walls
    assert mean(both, "prediction_delta_e_at_20pct") < 10
    ends = {name: np.mean([frame.data["prediction"][name][-1] for frame in both]) for name in ("lcs", "affine")}
    assert ends["affine"] < ends["lcs"] < 10
    assert np.mean([frame.data["prediction"]["lcs"][0] for frame in both]) > 2 * mean(both, "prediction_delta_e_at_20pct")


def test_the_closed_form_of_beta_holds_in_the_mean(objects: list[Frame], walls: list[Frame]) -> None:
    """Each run's own beta scatters; the closed form is what they scatter around."""
    own = np.mean([frame.data["schedule"]["run_beta"] for frame in objects + walls], 0)
    assert np.abs(own - walls[0].data["schedule"]["one_minus_sigma"]).max() < 0.1


def test_a_word_wins_against_the_latent_early_and_loses_later() -> None:
    early, later = (last(prompt="a red wall", objects="", color="#2060d0", steps=50, steer_step=step).metrics["delta_e_steered"] for step in (2, 9))
    assert isinstance(early, float)
    assert isinstance(later, float)
    assert later < 15 < 25 < early
