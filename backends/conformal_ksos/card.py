"""The card of conformal-ksos: what is said of it without running it, and the params it takes."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from backends import contract
from backends.contract import Card, Claim, Metric, Paper, Preset, Step, Upload, Weight, in_group

_Symmetry = Annotated[float, Field(ge=0, le=1e6)]
_Multiplier = Annotated[float, Field(ge=0.25, le=4)]
_Share = Annotated[float, Field(ge=0.2, le=0.7)]


class Params(contract.Params):
    """Params of one band."""

    data: Literal["split-normal", "gaussian", "exponential", "biased", "engel", "diabetes", "csv"] = Field(
        "split-normal",
        description="Generated noise of a known law, a data set, or your own table",
        json_schema_extra=in_group("Data", advanced=False),
    )
    symmetry: _Symmetry | Literal["auto", "separate", "symmetric"] = Field(
        "auto",
        title="Symmetry λ3",
        description="How strongly the two half-widths are tied: 0 learns them apart, large makes them equal, auto asks the training rows",
        json_schema_extra=in_group("Band", advanced=False, live=True, scale="log", slider=[1e-3, 1e3]),
    )
    alpha: float = Field(
        0.1,
        title="Miss rate α",
        ge=0.01,
        le=0.3,
        description="Share of new points that may fall outside the band",
        json_schema_extra=in_group("Band", advanced=False, live=True, unit="probability"),
    )
    predictor: Literal["auto", "linear", "kernel-ridge", "random-forest", "column"] = Field(
        "auto",
        title="Middle line",
        description="Middle line of the band; column takes predictions that come with the data, auto does so where there are any, else fits a line",
        json_schema_extra=in_group("Data", advanced=False),
    )
    csv: Upload | None = Field(
        None,
        title="Your table (CSV)",
        description="Your table: first line names, then one row a line; 30 to 100,000 rows",
        json_schema_extra=in_group("Data", advanced=False),
    )
    target: str = Field(
        "",
        title="Column to predict",
        max_length=100,
        description="Column to predict; empty takes the last column of numbers",
        json_schema_extra=in_group("Data", advanced=False),
    )
    features: str = Field(
        "",
        title="Columns that set the widths",
        max_length=400,
        description="At most 3 columns that the widths depend on, separated by commas; empty takes the first ones",
        json_schema_extra=in_group("Data"),
    )
    prediction_column: str = Field(
        "",
        title="Column of predictions",
        max_length=100,
        description="Column of your table with predictions made elsewhere",
        json_schema_extra=in_group("Data"),
    )
    n: int = Field(750, title="Generated rows", ge=30, le=5000, description="Rows of generated data", json_schema_extra=in_group("Data", unit="rows"))
    bias: float = Field(0.0, ge=-2, le=2, description="Error added to the predictor on purpose", json_schema_extra=in_group("Data", unit="residual sd"))
    outliers: int = Field(0, ge=0, le=5, description="Training rows that are moved far up", json_schema_extra=in_group("Data", unit="rows"))
    train_fraction: _Share | Literal["auto"] = Field(
        "auto",
        title="Training part",
        description="Share of the rows that fits predictor and widths; auto takes 150 generated rows, and 45 % of a smaller or a real table",
        json_schema_extra=in_group("Data", unit="share"),
    )
    calibration_fraction: float = Field(
        0.3, title="Calibration part", ge=0.02, le=0.6, description="Share of the rows that sets the quantile", json_schema_extra=in_group("Data", unit="share")
    )
    penalty: Literal["pointwise", "operator"] = Field(
        "pointwise", description="What is tied together: the half-widths at the training points, or the two operators", json_schema_extra=in_group("Band")
    )
    length_scale: _Multiplier | Literal["auto"] = Field(
        "auto", description="Length over which the widths vary", json_schema_extra=in_group("Band", unit="median distances", scale="log")
    )
    b: float = Field(1.0, title="b", ge=0, le=10, description="Weight of the mean squared width", json_schema_extra=in_group("Solver"))
    lambda1: float = Field(1.0, title="λ1", ge=1e-3, le=10, description="Weight of the trace", json_schema_extra=in_group("Solver", scale="log"))
    lambda2: float = Field(
        1.0, title="λ2", ge=1e-3, le=10, description="Weight of the squared Frobenius norm", json_schema_extra=in_group("Solver", scale="log")
    )
    delta: float = Field(
        1e-3,
        title="δ",
        ge=1e-3,
        le=1,
        description="Floor added to the squared half-widths",
        json_schema_extra=in_group("Solver", scale="log", unit="residual variance"),
    )
    solver: Literal["l-bfgs-b", "fista"] = Field("l-bfgs-b", description="Solver of the final fit", json_schema_extra=in_group("Solver"))
    tolerance: float = Field(
        1e-4,
        title="Duality gap",
        ge=1e-6,
        le=1e-2,
        description="Relative duality gap at which the fit stops",
        json_schema_extra=in_group("Solver", scale="log"),
    )
    criterion: Literal["dcov", "hsic"] = Field(
        "dcov",
        description="What selects: dependence of the scores on place and side (smaller is better), or of the widths on the residuals (larger is better)",
        json_schema_extra=in_group("Solver"),
    )

    @field_validator("features", mode="before")
    @classmethod
    def _join(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            return value
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(value)
        return line.getvalue() if value else ""


def weight(params: Params) -> Weight:
    """A few seconds of one core."""
    return "cpu"


_HOW = r"""
A predictor $m$ gives the middle line. Two functions give the squared half-widths above and below it:
$f_u(x)=\langle\varphi(x),A_u\varphi(x)\rangle$ and $f_l(x)=\langle\varphi(x),A_l\varphi(x)\rangle$ with positive semi-definite $A_u, A_l$ on the
space of a Matérn-5/2 kernel, so both are never negative. They are as small and smooth as possible while they cover every training residual $r_i$:

$$\min_{A_u,A_l\succeq0}\ \frac bn\sum_i[f_u(x_i)+f_l(x_i)]+\lambda_1(\mathrm{Tr}A_u+\mathrm{Tr}A_l)
+\lambda_2(\|A_u\|_F^2+\|A_l\|_F^2)+\frac{\lambda_3}n\sum_i(f_u(x_i)-f_l(x_i))^2$$

subject to $f_u(x_i)\ge r_i^2$ where $r_i>0$ and $f_l(x_i)\ge r_i^2$ elsewhere. The last term ties the two together: $\lambda_3=0$ learns them
apart, $\lambda_3=\infty$ makes them equal. The **symmetry** slider is $\lambda_3$; every position solves the coupled problem by its dual, and the
duality gap shows how exact the solution is.

Then calibration rows that nothing was fitted on set one number $q$, the $\lceil(1-\alpha)(n_c+1)\rceil$-th smallest score
$|y-m|/\sqrt{f+\delta}$ of the side on which $y$ fell. The band is $[m-q\sqrt{f_l+\delta},\,m+q\sqrt{f_u+\delta}]$. New points fall inside with
probability at least $1-\alpha$ **whatever the slider says**: the quantile makes the band valid, the envelopes only give its shape.

**Auto** looks at training rows alone. Out-of-fold scores should tell nothing about place and side; their squared distance covariance with both is
computed along the path, and the most symmetric value that a paired permutation test does not reject is taken. The length-scale is
the one with the least dependence.
"""

_RECONSTRUCTED = (
    "Only the abstract and the metadata of the paper were public. Stated there: an asymmetric band from kernel sums of squares, a penalty that promotes "
    "symmetry, its intensity chosen from data, dual formulations. Reconstructed here: the form of the penalty (two forms are offered), the statistic and the "
    "rule that choose its intensity and the length-scale, the grid, and the default weights."
)

CARD = Card(
    slug="conformal-ksos",
    title="Asymmetric conformal bands",
    theme="uncertainty",
    paper=Paper(
        "Asymmetric conformal prediction with penalized kernel sum-of-squares",
        "Louis Allain, Sébastien Da Veiga, Brian Staber",
        "https://arxiv.org/abs/2601.22834",
    ),
    aha="Let the band be wider above than below where the errors are: it keeps its promise at every position of the slider, and a quarter of its width may go.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "coverage": Metric("share of test rows", "test points inside the band", "target"),
        "mean_width": Metric("units of y", "mean width of the band on the test rows", "lower"),
        "miss_above": Metric("share of test rows", "test points above the band"),
        "miss_below": Metric("share of test rows", "test points below the band"),
        "symmetry_chosen": Metric("lambda3", "symmetry weight in use"),
        "duality_gap": Metric("relative", "(primal - dual) / primal of the fit", "lower"),
        "coverage_symmetric": Metric("share of test rows", "test points inside the symmetric band", "target"),
        "mean_width_symmetric": Metric("units of y", "mean width of the symmetric band", "lower"),
        "coverage_mapie_split": Metric("share of test rows", "test points inside MAPIE's constant-width band", "target"),
        "mean_width_mapie_split": Metric("units of y", "width of MAPIE's constant-width band", "lower"),
        "coverage_mapie_cqr": Metric("share of test rows", "test points inside MAPIE's conformalised quantile regression", "target"),
        "mean_width_mapie_cqr": Metric("units of y", "mean width of MAPIE's conformalised quantile regression", "lower"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("skewed", "Skewed noise", {}, 3),
        Preset("gaussian", "Symmetric noise", {"data": "gaussian"}, 3),
        Preset("wrong-by-one-sd", "A predictor that is wrong", {"data": "gaussian", "bias": 1.0}, 3),
        Preset("engel", "Food and income, 1857", {"data": "engel", "train_fraction": 0.425, "calibration_fraction": 0.32}, 3),
        Preset("diabetes", "Diabetes, three features", {"data": "diabetes"}, 5),
        Preset("outliers", "Three outliers", {"data": "gaussian", "outliers": 3, "symmetry": "symmetric"}, 3),
        Preset("skewed-tails", "Where it fails: tails of two shapes", {"data": "exponential", "symmetry": "separate"}, 3, fails=True),
    ),
    exercise=(
        Step(
            "gaussian",
            "The noise is symmetric. Slide symmetry from separate to symmetric: what happens to coverage and to the width?",
            "Coverage stays where it was and the width barely moves. Tied together, the two envelopes need fewer effective parameters.",
        ),
        Step(
            "skewed",
            "Large errors point upwards here. Slide symmetry to symmetric: what does the band pay, and on which side are the misses?",
            "The width grows by about a third, and all misses are above: the lower half is far too wide and catches everything.",
        ),
        Step(
            "wrong-by-one-sd",
            "The middle line is one standard deviation too high. Press auto: what does the band do about it?",
            "The symmetry falls, and the band centres itself on the data again although the line stays wrong.",
        ),
    ),
    claims=(
        Claim(
            "valid",
            "The band keeps its coverage 1 - alpha",
            0.9,
            "split normal noise, 150 training rows, automatic symmetry, alpha 0.1",
            "the paper's abstract (validity); tolerance: three binomial standard errors on 375 rows and the Beta law of 225 calibration rows",
            "skewed",
            "coverage",
            0.08,
        ),
        Claim(
            "miss-below-symmetric",
            "With symmetric half-widths and noise skewed upwards, no miss is below",
            0.0,
            "split normal noise, symmetry at its right end",
            "computed for this lab's method card, not in the paper: 0.000 over 8 seeds",
            "skewed",
            "miss_below",
            0.01,
            {"symmetry": "symmetric"},
        ),
        Claim(
            "engel-width",
            "Mean width on the Engel food data",
            306.0,
            "235 households, linear predictor, 100 / 75 / 60 rows, length-scale near 1 sd",
            "computed for this lab's method card, not in the paper: 305 to 308 over 30 splits; one split varies by a fifth",
            "engel",
            "mean_width",
            65.0,
            {"length_scale": 1.0, "symmetry": "symmetric"},
        ),
        Claim(
            "engel-constant-width",
            "Constant width on the Engel food data",
            345.0,
            "235 households, linear predictor, 100 / 75 / 60 rows",
            "computed for this lab's method card, not in the paper: 345 over 30 splits; one split varies by a fifth",
            "engel",
            "mean_width_mapie_split",
            75.0,
        ),
    ),
    cheap={"n": 90, "length_scale": 1.0},
)
