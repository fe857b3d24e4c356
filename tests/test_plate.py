"""What PLATE reads off the weights: rows, directions, their invariants, the worked example, and the refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from backends.plate import (
    Rotation,
    Spectrum,
    choose,
    diagonal_energies,
    estimated_width,
    low_energy,
    movable,
    projected_scores,
    protected_ratio,
    random_directions,
    randomised_low_energy,
    redundancy_scores,
    redundant_rows,
    walsh_hadamard,
)
from backends.plate.subspace import width

WORKED = np.array([[2, 0, 0, 0], [2, 0.1, 0, 0], [1.9, 0, 0.1, 0], [0, 1, 0, 0], [0, 0, 0.5, 0]])


def gaussian(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def rotation_between(A: np.ndarray, B: np.ndarray) -> float:
    """How far two subspaces are apart: 0 when equal."""
    return float(np.linalg.norm(A @ A.T - B @ B.T, 2))


# --------------------------------------------------------------------------------------------------------------- rows


def test_scores_and_rows_of_the_worked_example() -> None:
    np.testing.assert_allclose(redundancy_scores(WORKED), [0.5995, 0.6092, 0.6097, 0.2100, 0.2105], atol=5e-5)
    assert redundant_rows(WORKED, 2).tolist() == [2, 1]


def test_scores_agree_with_the_definition_pair_by_pair() -> None:
    W = gaussian(9, 5)
    expected = [np.mean([abs(w @ a) / (np.linalg.norm(w) * np.linalg.norm(a)) for a in W]) for w in W]
    np.testing.assert_allclose(redundancy_scores(W), expected, rtol=1e-12)


def test_a_tenth_of_the_rows_stays_whatever_is_asked() -> None:
    assert [movable(256, r) for r in (1, 230, 231, 10**6)] == [1, 230, 230, 230]
    assert (movable(2, 5), movable(9, 9), movable(10, 10)) == (1, 8, 9)
    assert len(redundant_rows(gaussian(20, 6), 19)) == 18


def test_a_row_of_zeros_is_never_chosen() -> None:
    W = np.vstack([gaussian(4, 6), np.zeros((3, 6))])
    assert set(redundant_rows(W, 6).tolist()) == {0, 1, 2, 3}
    assert redundancy_scores(W)[4:].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="all rows"):
        redundant_rows(np.zeros((5, 3)), 2)


def test_equal_scores_are_taken_in_order_and_the_scale_of_a_row_says_nothing() -> None:
    assert redundant_rows(np.eye(6), 3).tolist() == [0, 1, 2]
    W = gaussian(12, 5)
    assert redundant_rows(W * np.arange(1, 13)[:, None], 4).tolist() == redundant_rows(W, 4).tolist()


def test_the_fast_scores_choose_mostly_the_same_rows() -> None:
    shared = gaussian(3, 400, 1)
    W = np.concatenate([gaussian(300, 400), gaussian(60, 3, 2) @ shared + 0.3 * gaussian(60, 400, 3)])
    W = W[np.random.default_rng(4).permutation(360)]
    fast = np.argsort(-projected_scores(W))[:60]
    assert len(set(fast.tolist()) & set(redundant_rows(W, 60).tolist())) >= 48
    assert np.array_equal(projected_scores(W), projected_scores(W))


@pytest.mark.parametrize("r", [0, -3])
def test_no_rows_are_refused(r: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        redundant_rows(WORKED, r)


def test_a_layer_of_one_row_and_odd_matrices_are_refused() -> None:
    with pytest.raises(ValueError, match="one output"):
        redundant_rows([[1.0, 2.0]], 1)
    broken = WORKED.copy()
    broken[1, 1] = np.nan
    for call in (lambda: redundant_rows(broken, 2), lambda: low_energy(broken, 0.8), lambda: protected_ratio(broken, np.eye(4))):
        with pytest.raises(ValueError, match="NaN"):
            call()
    with pytest.raises(ValueError, match="matrix"):
        redundancy_scores(np.ones(3))


# --------------------------------------------------------------------------------------------------------- directions


@pytest.mark.parametrize(("energy", "k", "left"), [(0.7, 3, 1.118034), (0.9, 2, 0.5), (0.98, 1, 0.0)])
def test_directions_of_the_worked_example(energy: float, k: int, left: float) -> None:
    frozen = WORKED[[0, 3, 4]]
    Q, found = low_energy(frozen, energy)
    assert found == k
    np.testing.assert_allclose(np.abs(Q), np.eye(4)[:, 4 - k :], atol=1e-12)
    assert np.linalg.norm(frozen @ Q) == pytest.approx(left, abs=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(20, 48), (48, 20), (30, 30), (1, 7), (7, 1)])
@pytest.mark.parametrize("energy", [0.0, 0.5, 0.8, 0.95, 1.0])
def test_no_orthonormal_directions_of_that_width_are_read_less(rows: int, columns: int, energy: float) -> None:
    W = gaussian(rows, columns)
    Q, k = low_energy(W, energy)
    squared = np.zeros(columns)
    squared[: min(rows, columns)] = np.linalg.svd(W, compute_uv=False) ** 2
    high = 0 if energy == 0 else int(np.argmax(np.cumsum(squared) / squared.sum() >= energy - 1e-12)) + 1
    assert k == Q.shape[1] == max(1, columns - high)
    np.testing.assert_allclose(Q.T @ Q, np.eye(k), atol=1e-12)
    assert np.linalg.norm(W @ Q) ** 2 == pytest.approx(squared[columns - k :].sum(), abs=1e-9 * squared.sum())
    if high < columns:
        assert protected_ratio(W, Q) <= np.sqrt(1 - energy) + 1e-9
    other = random_directions(columns, k, np.random.default_rng(1)).numpy()
    assert np.linalg.norm(W @ Q) <= np.linalg.norm(W @ other) + 1e-9


def test_the_null_space_of_a_wide_layer_is_allowed_first() -> None:
    """A reduced decomposition returns the 20 directions of the row space: it protects nothing at all."""
    W = gaussian(20, 48)
    Q, k = low_energy(W, 0.9)
    reduced = np.linalg.svd(W, full_matrices=False)[2][-k:].T
    assert (k, reduced.shape[1]) == (33, 20)
    assert protected_ratio(W, reduced) == pytest.approx(1.0, abs=1e-12)
    assert protected_ratio(W, Q) == pytest.approx(0.288, abs=5e-4)
    null = np.linalg.svd(W)[2][20:].T
    np.testing.assert_allclose(Q @ (Q.T @ null), null, atol=1e-10)


def test_k_falls_as_the_fence_rises_and_the_cap_holds() -> None:
    W = gaussian(40, 60)
    widths = [low_energy(W, tau)[1] for tau in np.linspace(0, 1, 41)]
    assert widths[0] == 60
    assert widths[-1] == 20, "only the null space is left"
    assert all(b <= a for a, b in itertools.pairwise(widths))
    Q, k = low_energy(W, 0.5, max_rank=10)
    assert k == 10
    assert protected_ratio(W, Q) == pytest.approx(0, abs=1e-7), "below the cap there is room in the null space alone"
    assert width(60, 40, 10).capped
    assert width(10, 10, 512) == width(10, 10, 1)
    assert width(10, 10, 512).forced


@pytest.mark.parametrize("energy", [-0.1, 1.1, float("nan")])
def test_a_fence_outside_zero_to_one_is_refused(energy: float) -> None:
    with pytest.raises(ValueError, match="share from 0 to 1"):
        low_energy(WORKED, energy)
    with pytest.raises(ValueError, match="max_rank"):
        low_energy(WORKED, 0.8, 0)


def test_directions_come_in_the_kind_of_the_weights() -> None:
    W = gaussian(6, 9)
    tensor = torch.from_numpy(W).float()
    Q, _ = low_energy(tensor, 0.8)
    assert (Q.dtype, low_energy(tensor.bfloat16(), 0.8)[0].dtype) == (torch.float32, torch.float32)
    assert isinstance(low_energy(W, 0.8)[0], np.ndarray)
    assert isinstance(redundant_rows(tensor, 2), torch.Tensor)
    assert rotation_between(Q.numpy(), low_energy(W, 0.8)[0]) < 1e-5


# ------------------------------------------------------------------------------------------------- the released way


def test_walsh_hadamard_is_its_matrix_and_its_own_inverse() -> None:
    from scipy.linalg import hadamard

    x = torch.from_numpy(gaussian(3, 16))
    np.testing.assert_allclose(walsh_hadamard(x).numpy(), x.numpy() @ hadamard(16) / 4, atol=1e-12)
    np.testing.assert_allclose(walsh_hadamard(walsh_hadamard(x)), x, atol=1e-12)
    with pytest.raises(ValueError, match="power of two"):
        walsh_hadamard(torch.ones(12))


@pytest.mark.parametrize(("d", "off"), [(64, 0.0), (576, 0.4375)])
def test_the_truncated_rotation_is_orthogonal_only_at_a_power_of_two(d: int, off: float) -> None:
    H = Rotation.draw(d, np.random.default_rng(0)).matrix()
    assert float((H @ H.T - torch.eye(d)).abs().max()) == pytest.approx(off, abs=1e-9)


def test_many_probes_find_the_diagonal() -> None:
    W = torch.from_numpy(gaussian(30, 12))
    probes = torch.from_numpy(np.random.default_rng(1).choice([-1.0, 1.0], (20_000, 12)))
    np.testing.assert_allclose(diagonal_energies(W, probes), (W**2).sum(0), rtol=0.15)


def test_more_probes_push_the_estimate_towards_the_flat_one() -> None:
    W = gaussian(256, 300) * np.geomspace(1, 0.02, 300)
    exact = low_energy(W, 0.9)[1]
    mean = [np.mean([estimated_width(W, 0.9, probes, np.random.default_rng(seed)) for seed in range(8)]) for probes in (2, 16, 256)]
    assert mean[0] > mean[1] > mean[2]
    assert mean[2] < exact / 2, "the rotation hides that most directions are hardly read"


@pytest.mark.parametrize(("rows", "columns"), [(200, 96), (20, 48)])
def test_randomised_directions_are_orthonormal_and_read_more_than_they_must(rows: int, columns: int) -> None:
    W = gaussian(rows, columns) * np.geomspace(1, 0.02, columns)
    Q, k = randomised_low_energy(W, 0.9, np.random.default_rng(0))
    np.testing.assert_allclose(Q.T @ Q, np.eye(k), atol=1e-10)
    squared = np.sort(np.linalg.eigvalsh(W.T @ W))[:k].sum()
    assert np.linalg.norm(W @ Q) ** 2 >= squared - 1e-9


# ------------------------------------------------------------------------------------------------------ a whole layer


def test_directions_come_from_the_frozen_rows_alone() -> None:
    W = gaussian(40, 30)
    choice = choose(W, 8, 0.8, rng=np.random.default_rng(0))
    frozen = np.delete(W, choice.rows, axis=0)
    assert rotation_between(choice.Q, low_energy(frozen, 0.8)[0]) < 1e-5
    assert rotation_between(choice.Q, low_energy(W, 0.8)[0][:, -choice.Q.shape[1] :]) > 0.1, "all of W would give others"
    assert choice.protected == pytest.approx(protected_ratio(frozen, choice.Q), abs=1e-5)


def test_the_controls_cost_as_much_as_the_choice() -> None:
    W = gaussian(40, 30)
    rng = np.random.default_rng(0)
    exact = choose(W, 8, 0.8, rng=rng)
    for mode in ("random", "top-energy"):
        assert choose(W, 8, 0.8, q_mode=mode, rng=rng).plan().trainable == exact.plan().trainable
    top = choose(W, 8, 0.8, q_mode="top-energy", rng=rng)
    assert top.protected > choose(W, 8, 0.8, q_mode="random", rng=rng).protected > exact.protected
    worst = choose(W, 8, 0.8, row_rule="least-redundant", rng=rng)
    assert exact.scores[exact.rows].min() >= exact.scores[worst.rows].max()
    assert len(set(choose(W, 8, 0.8, row_rule="random", rng=rng).rows.tolist())) == 8


def test_the_energies_of_a_spectrum_hold_all_directions() -> None:
    spectrum = Spectrum.of(torch.from_numpy(gaussian(3, 8)))
    assert spectrum.d_in == 8
    np.testing.assert_allclose(spectrum.energy[3:], 0, atol=1e-12)
    assert Spectrum.of(torch.zeros(2, 4, dtype=torch.float64)).n_high(0.9) == 0
