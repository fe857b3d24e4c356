"""Whole runs of mirror-mfld: frames, peers, and the answers of the exercise measured on their presets."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from backends.contract import ContextSpec, Frame, InputError
from backends.mirror_mfld.card import CARD, Params
from backends.mirror_mfld.method import run
from backends.runtime.context import RunContext


@cache
def of_preset(name: str) -> Frame:
    return frames(**CARD.preset(name).params)[-1]


def frames(**values: Any) -> list[Frame]:
    params = Params(**values)
    return list(run(params, RunContext(ContextSpec(seed=params.seed))))


def exact(frame: Frame) -> dict[str, Any]:
    return {name: value for name, value in frame.metrics.items() if CARD.metrics[name].kind == "exact"}


def test_the_first_frame_shows_the_law_and_the_start() -> None:
    first = next(iter(run(Params(), RunContext(ContextSpec()))))
    assert {"exact", "clouds", "handle", "trace", "outline", "made_by"} <= set(first.data)
    assert first.data["trace"]["time"].tolist() == [0.0]
    assert first.data["exact"]["mean"] == pytest.approx([0.57070, 0.23693, 0.19237], abs=1e-5)


def test_contours_hold_what_they_say() -> None:
    """Shares of a large sample of the exact law inside each line, by its level."""
    first = next(iter(run(Params(particles=20_000), RunContext(ContextSpec()))))
    levels = [c["level"] for c in first.data["exact"]["contours"]]
    assert levels == sorted(levels, reverse=True)
    assert of_preset("triangle").data["inside"] == pytest.approx([0.25, 0.5, 0.75, 0.95], abs=0.05)


def test_answer_one_the_projected_cloud_piles_up_and_the_mirror_cloud_does_not() -> None:
    last = of_preset("triangle")
    assert last.metrics["boundary_mass_projected"] == pytest.approx(0.19, abs=0.02)
    assert last.data["trace"]["on projected"][-10:].mean() > 0.9 * last.metrics["boundary_mass_projected"]
    assert last.metrics["boundary_mass"] == pytest.approx(last.data["exact"]["wall_mass"], abs=0.004)
    assert last.metrics["mean_error"] < 0.012
    assert abs(last.metrics["free_energy_gap"]) < 0.004
    assert last.metrics["fitted_rate"] > 0.5


def test_answer_two_plain_steps_fill_the_corners_and_barrier_or_floor_cure_it() -> None:
    trapped = of_preset("trap")
    assert trapped.metrics["boundary_mass"] == pytest.approx(0.99, abs=0.01)
    floor, barrier = of_preset("cured-by-floor"), of_preset("cured-by-barrier")
    assert floor.metrics["boundary_mass"] == pytest.approx(floor.data["exact"]["wall_mass"], abs=0.003)
    assert barrier.metrics["boundary_mass"] == pytest.approx(0.002, abs=0.0015)
    assert max(floor.metrics["mean_error"], barrier.metrics["mean_error"]) < 0.015


def test_answer_three_cold_clouds_come_closer_to_q() -> None:
    warm, cold = of_preset("triangle").data, of_preset("cold").data
    first = [found["trace"]["mean mirror"][-13:, 0].mean() for found in (warm, cold)]
    assert first == pytest.approx([0.57, 0.66], abs=0.015)
    spread = [np.asarray(found["clouds"]["mirror"]["places"]).std(0).sum() for found in (warm, cold)]
    assert spread[1] < 0.95 * spread[0]


def test_a_frozen_drift_ends_elsewhere() -> None:
    data = of_preset("triangle").data
    assert abs(data["trace"]["mean frozen"][-1, 0] - data["exact"]["mean"][0]) > 0.15
    assert data["trace"]["mean noise-free"][-1, 0] == pytest.approx(0.7, abs=0.01)
    switched = frames(frozen_drift=True, steps=300, particles=200)[-1].data["trace"]
    assert "mean frozen" not in switched
    assert switched["mean mirror"][-1, 0] > 0.7


def test_large_matrices_fit_better_in_the_mirror() -> None:
    """Card, section 6: at step 0.3 the mirror ends well below the projected run, and above the least F of 2.83."""
    trace = of_preset("matrices").data["trace"]
    assert 2.8 < trace["energy mirror"][-1] < 4.3
    assert trace["energy projected"][-1] > 1.5 * trace["energy mirror"][-1]
    assert of_preset("matrices").metrics["free_energy_gap"] is None


def test_neurons_stay_in_the_disc_and_learn() -> None:
    last = of_preset("xor")
    assert last.data["network"]["accuracy"] > 0.97
    assert last.metrics["boundary_mass"] < 0.05
    assert last.metrics["boundary_mass_projected"] > 0.8
    assert last.metrics["mean_error"] is None
    assert "undefined" in last.message


@pytest.mark.parametrize("name", ["disc", "square", "target-cloud", "disc-of-matrices"])
def test_the_other_scenes_come_near_their_law(name: str) -> None:
    last = of_preset(name)
    assert last.metrics["mean_error"] < 0.05
    assert abs(last.metrics["boundary_mass"] - last.data["exact"]["wall_mass"]) < 0.01


def test_the_optimiser_chooses_the_clouds_and_does_not_change_them() -> None:
    both, mirror, projected = (frames(**CARD.cheap, optimiser=name)[-1] for name in ("both", "mirror", "projected"))
    assert mirror.metrics["boundary_mass_projected"] is None
    assert projected.metrics["boundary_mass"] is None
    assert projected.metrics["free_energy_gap"] is None
    assert "atoms" in projected.message
    np.testing.assert_array_equal(both.data["trace"]["mean mirror"], mirror.data["trace"]["mean mirror"])
    np.testing.assert_array_equal(both.data["trace"]["mean projected"], projected.data["trace"]["mean projected"])


def test_equal_params_give_equal_metrics() -> None:
    assert exact(frames(**CARD.cheap)[-1]) == exact(frames(**CARD.cheap)[-1])


@pytest.mark.parametrize("domain", ["simplex", "ball", "box", "spectraplex"])
@pytest.mark.parametrize("functional", ["mean-matching", "linear", "mmd", "spectraplex-matching", "xor-network"])
def test_every_problem_runs_or_is_refused_in_words(domain: str, functional: str) -> None:
    values = {**CARD.cheap, "domain": domain, "functional": functional, "barrier": 0.05, "diffusion": "em-floor"}
    refused = {"xor-network": domain != "ball", "spectraplex-matching": domain != "spectraplex", "mmd": domain == "spectraplex"}
    if refused.get(functional):
        with pytest.raises(InputError, match="functional"):
            frames(**values)
        return
    last = frames(**values)[-1]
    assert last.progress == 1
    assert set(last.metrics) == set(CARD.metrics)


def test_two_particles_run() -> None:
    last = frames(**{**CARD.cheap, "particles": 2})[-1]
    assert last.metrics["free_energy_gap"] is None
    assert "too few" in last.message


def test_the_card_needs_no_heavy_import() -> None:
    code = "import sys, backends.mirror_mfld.card as c; c.Params(); print(*(m for m in ('scipy', 'torch', 'skimage') if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.strip() == ""
