"""The card of voronoi-pc: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from backends import contract
from backends.contract import Card, Claim, Metric, Paper, Preset, Step, Upload, Weight, in_group

MAX_COLUMNS = 8
MAX_CELLS = 64
_Coordinate = Annotated[float, Field(ge=-50, le=50)]


class Params(contract.Params):
    """Params of one circuit, its bounds and one query."""

    data: Literal["spiral", "two-centroids", "random-centroids", "moons", "pinwheel", "ring", "wine", "iris", "diabetes", "csv"] = Field(
        "spiral",
        description="Points to learn from, or one of two scenes whose experts are given and not trained",
        json_schema_extra=in_group("Data", advanced=False),
    )
    gate: Literal["voronoi", "hfv", "constant"] = Field(
        "voronoi",
        description="Slanted cells with bounds, axis-aligned cells with exact integrals, or no cells: a mixture",
        json_schema_extra=in_group("Circuit", advanced=False),
    )
    splits: int = Field(
        2000,
        ge=10,
        le=20_000,
        description="Boxes that are cut in two, the heaviest first",
        json_schema_extra=in_group("Bounds", advanced=False, scale="log", live=True, unit="count"),
    )
    cells: int = Field(
        16,
        ge=2,
        le=MAX_CELLS,
        description="Cells; with hfv their square root in every variable",
        json_schema_extra=in_group("Circuit", scale="log", unit="count"),
    )
    angle: float = Field(
        45, ge=0, le=90, description="Turn of the two centroids from the horizontal", json_schema_extra=in_group("Data", live=True, unit="degrees")
    )
    dimension: int = Field(2, ge=2, le=10, description="Variables of the random centroids", json_schema_extra=in_group("Data", unit="count"))
    n: int = Field(
        5000, ge=100, le=20_000, description="Points that are generated, or rows used at most", json_schema_extra=in_group("Data", scale="log", unit="count")
    )
    csv: Upload | None = Field(None, title="Your CSV", description="Columns of numbers", json_schema_extra=in_group("Data", accept=".csv"))
    columns: str = Field("", max_length=500, description="Names of 2 to 8 columns of the file; empty: the first ones", json_schema_extra=in_group("Data"))
    expert: Literal["gaussian", "mixture-of-4"] = Field(
        "gaussian", description="Each cell's density: one factorised normal or four", json_schema_extra=in_group("Circuit")
    )
    gate_scope: Literal["variable", "pair"] = Field(
        "variable", description="What one hfv gate acts on; a pair is refused", json_schema_extra=in_group("Circuit")
    )
    centroids: list[_Coordinate] = Field(
        [],
        max_length=2 * MAX_CELLS,
        description="x1 and x2 of each centroid in turn; empty: found by k-means and trained",
        json_schema_extra=in_group("Circuit"),
    )
    loss: Literal["log-f", "normalised"] = Field(
        "log-f", description="Train log f, which bounds the likelihood, or log f - log Z", json_schema_extra=in_group("Training")
    )
    epochs: int = Field(60, ge=1, le=200, description="Passes over the training points", json_schema_extra=in_group("Training", unit="count"))
    alpha_start: float = Field(1, title="α at the start", ge=0, le=10, description="Sharpness of the soft gate", json_schema_extra=in_group("Training"))
    alpha_end: float = Field(50, title="α at the end", ge=1, le=200, description="Sharpness that training ends with", json_schema_extra=in_group("Training"))
    split_rule: Literal["extent", "cycle", "steepest"] = Field(
        "extent",
        description="Which axis is cut: widest in standard deviations, each in turn, or where the walls change most",
        json_schema_extra=in_group("Bounds"),
    )
    beyond_eight: bool = Field(
        False, title="Bounds beyond 8 variables", description="They will be useless; confirm to see it", json_schema_extra=in_group("Bounds")
    )
    evidence: str = Field(
        "x1 = 0.5", max_length=200, description="What is known, as x1 = 0.5 or x1 in [0, 1]; commas join", json_schema_extra=in_group("Query", advanced=False)
    )
    event: str = Field("x2 > 0", max_length=200, description="What is asked, as x2 > 0 or x2 in [0, 1]", json_schema_extra=in_group("Query", advanced=False))

    @field_validator("centroids")
    @classmethod
    def _pairs(cls, value: list[float]) -> list[float]:
        if len(value) % 2:
            raise ValueError("the coordinates come in pairs, x1 and x2 of each centroid")
        return value


def weight(params: Params) -> Weight:
    """A few seconds of one core."""
    return "cpu"


_HOW = r"""
A probabilistic circuit is built of one-dimensional densities by products over disjoint variables and weighted sums. Every marginal and every
conditional is then a product of differences of distribution functions. A **Voronoi sum** gives each expert $p_k$ its own cell $V_k$, the
points nearest to its centroid $c_k$:

$$f(x)=\sum_k \mathbf 1[x\in V_k]\,\pi_k\,p_k(x),\qquad Z=\sum_k\pi_k\int_{V_k}p_k,\qquad p=f/Z.$$

$f$ is not normalised, and one slanted wall couples the variables, so $Z$ is no longer a product of simple integrals.

**Repair 1: boxes.** A box holds an exact mass. A box whose corners all satisfy the walls lies inside its cell and counts into $Z^-$; a box that a wall
crosses counts into $Z^+$ alone. The heaviest crossed boxes are cut in two, again and again, so $Z^-\le Z\le Z^+$ always holds and
the gap only shrinks. Boxes start from the whole space, so the tails are in, and both ends are rounded outward. Then
$\log f-\log Z^+\le\log p\le\log f-\log Z^-$. A query fixes its evidence in every wall and every expert; with $N$ the mass of event and evidence and
$R$ of evidence without event, $N^-/(N^-+R^+)\le P\le N^+/(N^++R^-)$.

**Repair 2: axis-aligned cells (HFV).** Each variable has centroids of its own, so its cells are intervals and larger cells are products of
them. All integrals are exact. A gate over a block must not be split again below, unless its cells are boxes.

**Training** softens the gate, $w_k(x;\alpha)=\mathrm{softmax}_k(-\alpha\|x-c_k\|^2)$, lets $\alpha$ grow, and evaluates with the hard gate. Soft weights
sum to one at every $x$, yet $\int f\ne1$ all the same. Loss `log-f` maximises $\log f$, a lower bound because $Z\le1$; loss `normalised`
maximises $\log f-\log\hat Z$ with $\hat Z$ from draws of the experts.
"""

_RECONSTRUCTED = (
    "Stated in the paper: Voronoi gates, inner and outer boxes with convergence, factorised gates with exact integrals, the softmax relaxation with growing "
    "sharpness. Only its abstract and a public review were at hand. Reconstructed here: how a box is tested and split, outward rounding, the direction of the "
    "likelihood bounds (log f - log Z+ is the lower one), how Z enters training (both losses are offered), and the closure rule that gates of factorised "
    "circuits act on single variables. Experts hold no Voronoi nodes themselves. Beyond two variables the weights of factorised cells are a tree of sums, "
    "not a full grid."
)

CARD = Card(
    slug="voronoi-pc",
    title="Voronoi circuits with certified bounds",
    theme="uncertainty",
    paper=Paper("Geometry-Aware Probabilistic Circuits via Voronoi Tessellations", "Sahil Sidheekh, Sriraam Natarajan", "https://arxiv.org/abs/2603.11946"),
    aha="One slanted wall breaks the exact integral of a circuit: boxes that shrink onto the wall squeeze it from both sides, and upright walls give it back.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "z_lower": Metric("probability", "certified lower bound of the mass inside the cells", "higher"),
        "z_upper": Metric("probability", "certified upper bound of it", "lower"),
        "z_exact": Metric("probability", "the mass itself: quadrature in two variables, closed form with hfv"),
        "log_likelihood_lower": Metric("nats a point", "test log-likelihood is at least this", "higher"),
        "log_likelihood_upper": Metric("nats a point", "and at most this"),
        "log_likelihood_mixture": Metric("nats a point", "test log-likelihood of the same circuit without cells, a mixture", "higher"),
        "boxes": Metric("count", "boxes that were weighed"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("spiral", "A spiral in sixteen cells", {}, 6),
        Preset("two-centroids", "Two cells, one slanted wall", {"data": "two-centroids", "n": 2000, "splits": 1000}, 1),
        Preset("upright", "The same wall, upright", {"data": "two-centroids", "n": 2000, "splits": 1000, "angle": 0}, 1),
        Preset("normalised", "Training that names Z", {"loss": "normalised"}, 4),
        Preset("moons-hfv", "Two moons on an exact grid", {"data": "moons", "gate": "hfv"}, 3),
        Preset("iris-hfv", "Iris, four variables, exact", {"data": "iris", "gate": "hfv", "cells": 9}, 1),
        Preset(
            "six-dimensions",
            "Where it fails: six variables",
            {"data": "random-centroids", "dimension": 6, "cells": 4, "splits": 3000, "n": 2000},
            2,
            fails=True,
        ),
        Preset(
            "six-dimensions-hfv",
            "Six variables, upright walls",
            {"data": "random-centroids", "dimension": 6, "cells": 4, "splits": 3000, "n": 2000, "gate": "hfv"},
            2,
        ),
    ),
    exercise=(
        Step(
            "upright",
            "The wall stands upright and the gap is 0 after two splits. Turn the angle to 45 degrees and double the splits: what does the gap do?",
            "The gap opens, to 0.012 at 1000 splits, and halves each time the splits double. Z stays 0.841 at every angle: only the certificate pays.",
        ),
        Step(
            "spiral",
            "Read Z and the likelihood interval, then choose the loss normalised. What happens to Z, to the interval, and does it beat the mixture?",
            "Z falls from 0.94 to 0.87 and the interval widens from 0.04 to 0.07 nats. The mixture of the same size beats both, -1.79 against at most -1.86.",
        ),
        Step(
            "six-dimensions",
            "3000 splits, as would be plenty in two variables: how wide are the bounds? Choose the gate hfv: what is won, and what is lost?",
            "From 0.33 to 1.00, which says nothing. Upright walls give Z = 0.70 exactly, but the fit is a grid: -8.6 nats, slanted cells at least -7.6.",
        ),
    ),
    claims=(
        Claim(
            "slanted-two-cells",
            "Mass inside two cells whose centroids lie at (-1, 0) and (1, 0), unit normals",
            0.841345,
            "two centroids, upright wall",
            "computed for this lab's method card, not in the paper: the normal distribution function at 1",
            "upright",
            "z_lower",
            1e-6,
        ),
        Claim(
            "turned-two-cells",
            "The same mass when the pair is turned by 45 degrees",
            0.841345,
            "two centroids, 1000 splits",
            "computed for this lab's method card, not in the paper: the mass does not depend on the angle; tolerance: the bounds' gap",
            "two-centroids",
            "z_upper",
            0.01,
        ),
    ),
    cheap={"data": "moons", "n": 300, "cells": 4, "epochs": 2, "splits": 40},
)
