"""What mirror-mfld refuses, at its params and at its public functions, and what it warns of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from backends import mirror_mfld as mm
from backends.contract import InputError, Upload
from backends.mirror_mfld.card import Params
from backends.mirror_mfld.dynamics import NotFiniteError
from backends.mirror_mfld.scene import load

S = mm.Simplex(3)


def csv(text: str) -> Upload:
    return Upload.of("a.csv", text.encode())


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("q", {"q": [0.7, 0.2, 0.2]}),
        ("q", {"q": [0.9, 0.2, -0.1]}),
        ("q", {"domain": "ball", "q": [0.9, 0.9, 0.0]}),
        ("diffusion", {"domain": "ball", "diffusion": "exact"}),
        ("functional", {"functional": "xor-network"}),
        ("functional", {"functional": "spectraplex-matching"}),
        ("functional", {"domain": "spectraplex", "functional": "mmd"}),
        ("particles", {"functional": "mmd", "particles": 5000}),
        ("particles", {"domain": "spectraplex", "dimension": 10, "particles": 20_000}),
        ("csv", {"csv": csv("a,b,c\n1,2,-1\n")}),
        ("csv", {"csv": csv("a,b\n1,2\n")}),
        ("csv", {"csv": csv("a,b,c\n0,0,0\n")}),
        ("csv", {"functional": "mmd", "csv": csv("a,b,c\n0.2,0.3,0.5\n0.9,0.9,0.1\n")}),
        ("csv", {"domain": "ball", "functional": "mmd", "csv": csv("x,y\n0.1,0.2\n3,0\n")}),
        ("csv", {"domain": "spectraplex", "csv": csv("a,b\n0.5,0.3\n0.1,0.5\n")}),
        ("csv", {"domain": "spectraplex", "csv": csv("a,b\n0.5,0.9\n0.9,0.5\n")}),
        ("csv", {"domain": "spectraplex", "csv": csv("a,b\n0.5,0.1\n0.1,0.9\n")}),
        ("csv", {"domain": "spectraplex", "csv": csv("a,b\n0.5,0.1\n")}),
    ],
    ids=str,
)
def test_bad_problems_are_refused_at_their_field(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        load(Params(**values))
    assert refused.value.field == field


def test_the_line_of_a_point_outside_is_named() -> None:
    with pytest.raises(InputError, match="line 3"):
        load(Params(functional="mmd", csv=csv("a,b,c\n0.2,0.3,0.5\n0.9,0.9,0.1\n")))


def test_column_proportions_are_the_target() -> None:
    found = load(Params(csv=csv("red,green,blue\n6,1,1\n1,2,1\n")))
    np.testing.assert_allclose(found.functional.q.numpy(), np.array([7, 3, 2]) / 12)
    assert found.handle is None


def test_a_target_matrix_is_read() -> None:
    found = load(Params(domain="spectraplex", functional="spectraplex-matching", csv=csv("a,b\n0.7,0.1\n0.1,0.3\n")))
    np.testing.assert_allclose(found.functional.target.numpy(), [[0.7, 0.1], [0.1, 0.3]])


def test_a_target_on_the_wall_is_taken_with_a_warning() -> None:
    assert any("q lies on the wall" in note for note in load(Params(q=[1.0, 0.0, 0.0])).notes)
    assert not load(Params(q=[1.0, 0.0, 0.0], barrier=0.1, optimiser="mirror")).notes


def test_plain_steps_that_are_too_large_are_warned_of() -> None:
    assert any("too large for plain em" in note for note in load(Params(diffusion="em", step=0.3, temperature=1.0)).notes)
    assert any("not safe" in note for note in load(Params(diffusion="em")).notes)
    assert not load(Params(diffusion="em", barrier=0.1, optimiser="mirror")).notes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mm.Settings(0.0, 0.1), "step must be above 0"),
        (lambda: mm.Settings(0.1, -1.0), "temperature must be above 0"),
        (lambda: mm.Settings(0.1, float("nan")), "temperature must be above 0"),
        (lambda: mm.Settings(0.1, 0.1, -0.1), "barrier must be at least 0"),
        (lambda: mm.Settings(0.1, 0.1, inner=0), "inner must be"),
        (lambda: mm.Settings(0.1, 0.1, diffusion="other"), "there is no diffusion"),
        (lambda: mm.MeanMatching(S, [0.7, 0.2, 0.2]), "do not sum to 1"),
        (lambda: mm.MeanMatching(S, [0.7, 0.4, -0.1]), "lies outside"),
        (lambda: mm.MeanMatching(S, [0.7, 0.3]), "3 entries"),
        (lambda: mm.Linear(mm.Ball(2), [0.1, float("nan")]), "finite"),
        (lambda: mm.SpectraplexMatching(mm.Spectraplex(2), [[0.5, 0.2], [0.1, 0.5]]), "not symmetric"),
        (lambda: mm.SpectraplexMatching(mm.Spectraplex(2), [[0.5, 0.8], [0.8, 0.5]]), "semi-definite"),
        (lambda: mm.SpectraplexMatching(mm.Spectraplex(2), [[0.5, 0.0], [0.0, 0.9]]), "trace 1"),
        (lambda: mm.fixed_point(S, mm.MeanMatching(S, [0.7, 0.2, 0.1]), 0.0), "temperature"),
        (lambda: mm.fixed_point(mm.Ball(5), mm.Linear(mm.Ball(5), np.ones(5)), 0.1), "no quadrature"),
        (lambda: mm.fixed_point(mm.Ball(2), mm.XorNetwork(mm.Ball(2), [[1.0, 0.0]], [1.0]), 0.1), "no exact law"),
        (lambda: mm.wright_fisher_step(S, torch.ones(1, 3).double() / 3, 0.0), "h must be above 0"),
        (lambda: mm.gauss_jacobi(4, -1.0, 0.0), "above -1"),
        (lambda: mm.quadrature(S, -0.1), "at least 0"),
        (lambda: mm.knn_entropy(np.zeros((3, 2))), "more than k"),
        (lambda: mm.spectraplex_purity(1), "size"),
        (lambda: mm.Simplex(1), "shares"),
        (lambda: next(mm.simulate(S, mm.MeanMatching(S, [0.7, 0.2, 0.1]), mm.Settings(0.1, 0.1), torch.ones(1, 3).double() / 3)), "at least 2"),
        (lambda: next(mm.simulate(mm.Ball(2), mm.Linear(mm.Ball(2), [0, 0]), mm.Settings(0.1, 0.1, diffusion="exact"), torch.zeros(2, 2))), "simplex only"),
    ],
)
def test_public_functions_refuse_in_words(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_a_coordinate_that_is_no_number_stops_the_run_with_step_and_particle() -> None:
    disc = mm.Ball(2)

    class Poisoned(mm.Linear):
        def gradient(self, x: torch.Tensor, statistics: torch.Tensor) -> torch.Tensor:
            found = torch.zeros_like(x)
            found[3] = float("nan") if self.count == 2 else 0.0
            self.count += 1
            return found

        count = 0

    run = mm.simulate(disc, Poisoned(disc, [0.0, 0.0]), mm.Settings(0.1, 0.1), disc.uniform(6))
    next(run), next(run)
    with pytest.raises(NotFiniteError, match="step 3 gave particle 4"):
        next(run)
