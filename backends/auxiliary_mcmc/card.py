"""The card of auxiliary-mcmc: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backends import contract
from backends.contract import Card, Metric, Paper, Preset, Step, Upload, Weight, in_group

_Step = Annotated[float, Field(ge=1e-3, le=10)]
_Kappa = Annotated[float, Field(ge=1e-4, le=1)]
_Tempering = Annotated[float, Field(ge=1e-6, le=1)]


class Params(contract.Params):
    """Params of one race."""

    scene: Literal["robust-regression", "gaussian-2d", "gaussian-20d", "logistic", "ising", "csv"] = Field(
        "robust-regression", description="The posterior to sample; csv takes your own table", json_schema_extra=in_group("Data", advanced=False)
    )
    sampler: Literal["auto", "poisson-mh", "poisson-barker", "poisson-mala", "tuna-mh", "tuna-sgld", "exchange"] = Field(
        "auto",
        description="The sampler in the light; its peers race beside it. auto: Poisson-MALA, on logistic Tuna-SGLD, on ising exchange",
        json_schema_extra=in_group("Sampler", advanced=False),
    )
    kappa: _Kappa | Literal["auto"] = Field(
        "auto",
        title="κ",
        description="Poisson minibatch: λ = κ L². Larger reads more rows a step and accepts more",
        json_schema_extra=in_group("Sampler", advanced=False, scale="log"),
    )
    csv: Upload | None = Field(
        None,
        title="Your table (CSV)",
        description="Features and, last, the target: two values make it logistic, more a robust regression; 5,000 rows or more show the gain",
        json_schema_extra=in_group("Data", advanced=False),
    )
    step: _Step | Literal["auto"] = Field(
        "auto",
        description="Step of the sampler in the light and of SGLD; auto finds it in a pilot that is thrown away",
        json_schema_extra=in_group("Sampler", scale="log"),
    )
    target_acceptance: float = Field(
        0.55, ge=0.1, le=0.9, description="Share of proposals that every automatic step aims at", json_schema_extra=in_group("Sampler", unit="share")
    )
    chi: float = Field(
        0.05,
        title="χ",
        ge=1e-5,
        le=0.1,
        description="Tuna minibatch: λ = χ L² with L the Lipschitz bound times the distance moved",
        json_schema_extra=in_group("Sampler", scale="log"),
    )
    batch: int = Field(
        100, title="K", ge=5, le=1000, description="Rows of the gradient of SGLD and Tuna-SGLD", json_schema_extra=in_group("Sampler", unit="rows")
    )
    clip: bool = Field(
        False,
        title="Clip the gradient",
        description="Scale the gradient of SGLD and Tuna-SGLD to norm 2, as the authors do",
        json_schema_extra=in_group("Sampler"),
    )
    tempering: _Tempering | Literal["auto"] = Field(
        "auto",
        title="Tempering β",
        description="Power of each row's likelihood; auto keeps the weight of all rows together at the scene's own, 1 is no tempering",
        json_schema_extra=in_group("Data", scale="log"),
    )
    n: int = Field(
        100_000,
        title="Generated rows",
        ge=1000,
        le=1_000_000,
        description="Rows of generated data",
        json_schema_extra=in_group("Data", scale="log", unit="rows"),
    )
    budget: float = Field(
        10_000,
        ge=1,
        le=100_000_000,
        description="For each sampler, all its chains together: steps, rows touched or seconds; full-data peers stop earlier when they must",
        json_schema_extra=in_group("Budget", control="number"),
    )
    budget_by: Literal["steps", "touches", "seconds"] = Field(
        "steps", description="What the budget counts; with seconds a run does not repeat exactly", json_schema_extra=in_group("Budget")
    )


def weight(params: Params) -> Weight:
    """Up to ten seconds of one core."""
    return "cpu"


_HOW = r"""
Every row of the data has a part in the posterior, $\pi(\theta|x)\propto\exp\sum_i\phi_i(\theta)$, so an exact Metropolis coin seems to need them all.
It does not. Draw **auxiliary counts** $s_i\sim\mathrm{Poisson}(\lambda M_i/L+\phi_i(\theta))$, with proved bounds $0\le\phi_i\le M_i$, $L=\sum_iM_i$,
$\lambda=\kappa L^2$. Almost all are 0, and all rows with $s_i=0$ cancel from the ratio:

$$\log r=\sum_{s_i>0}s_i\Big[\log\big(1+\tfrac{\phi_i(\theta')}{c_i}\big)-\log\big(1+\tfrac{\phi_i(\theta)}{c_i}\big)\Big]
+\log\frac{q(\theta',\theta)}{q(\theta,\theta')},\qquad c_i=\lambda M_i/L .$$

The coin that picked the rows is part of the ratio, so the chain keeps **exactly** the posterior of all rows. The counts are drawn by thinning: about
$\lambda+L$ row numbers by weight $M_i$, each kept with a known probability; the other rows are never read. The same counts give a gradient,
$\sum_is_i\nabla\phi_i/(c_i+\phi_i)$, that steers Barker and MALA proposals; the way back reads the same rows.

**Tuna** needs no bound on $\phi$, only a Lipschitz constant a row, and corrects SGLD's step. **Exchange** does the same where the unknown is a
normalising constant: it draws a whole data set at $\theta'$. All are one algorithm with four parts: draw $\omega_1$, propose, draw $\omega_2$, take the ratio.

**SGLD** makes the same noisy steps and skips the coin. It is fast, and it settles on another distribution.

A minibatch is never better than all rows *per step*; it wins because a step is cheap. With $\lambda=\kappa L^2$ the spectral gap keeps at least
$\max\{\tfrac12e^{-L^2/(\lambda+L)},\,e^{-1/e}e^{-L^2/(2\lambda)}\}$ of its size, Tuna's at least $e^{-1/(2\chi)}$ (for small $\chi$ the bound says nothing,
though the chain works). $L$ grows with the rows: both synthetic scenes of the paper **temper** the likelihood. Without that, a step reads more rows
than there are.

A touch is one row read, kept or not. ESS and R-hat are arviz's, over 16 chains without their first fifth; times are processor time of the race alone,
pilot left out for all. Reference: exact for the Gaussian and the lattice, else importance sampling on all rows.
"""

_RECONSTRUCTED = (
    "Read: the abstract, the authors' public Julia code, and a public reading note with the framework and the gap bounds; the proofs and the exact MNIST "
    "curves were not. Chosen here: a flat prior on the support; tempering that falls with the number of rows so that the cost stays comparable; uniform "
    "batches drawn with replacement; pilots that all chains share; the 4 x 4 Ising scene for exchange. The authors' logistic Barker baseline points its "
    "coin uphill in energy; ours does not."
)

_FAST = {"scene": "gaussian-2d", "n": 1000, "budget": 160}

CARD = Card(
    slug="auxiliary-mcmc",
    title="MCMC without evaluating the target",
    theme="uncertainty",
    paper=Paper(
        "Markov chain Monte Carlo without evaluating the target: an auxiliary variable approach", "Wei Yuan, Guanyang Wang", "https://arxiv.org/abs/2406.05242"
    ),
    aha="A chain that reads 410 of 100,000 rows a step keeps exactly the posterior of all of them, because the coin that picks the rows is part of its ratio.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "ess_per_second_min": Metric("effective draws / processor s", "of the slowest coordinate", "higher", "measured"),
        "speedup_over_full_mala": Metric("ratio", "effective draws a second against MALA on all rows", "higher", "measured"),
        "speedup_over_poissonmh": Metric("ratio", "effective draws a second against PoissonMH", "higher", "measured"),
        "ess_per_million_touches": Metric("effective draws", "of the slowest coordinate, per million rows read", "higher"),
        "mean_batch": Metric("rows", "rows that a step reads", "lower"),
        "acceptance": Metric("share of proposals", "proposals taken", "target"),
        "posterior_mean_error_sd": Metric("posterior sd", "largest error of a coordinate's mean", "lower"),
        "posterior_sd_ratio": Metric("ratio", "sd of the draws over the exact sd, mean over coordinates", "target"),
        "sgld_sd_ratio": Metric("ratio", "the same for SGLD", "target"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("regression", "Ten coefficients", {}, 10),
        Preset("two-coordinates", "Two coordinates", {"scene": "gaussian-2d", "kappa": 0.001}, 6),
        Preset("large-batch", "Large batch", {"scene": "gaussian-2d", "kappa": 0.1, "budget": 3000}, 10),
        Preset("quarter", "Longer steps", {"target_acceptance": 0.25}, 10),
        Preset("gentle", "Logistic", {"scene": "logistic", "step": 0.25}, 11),
        Preset("sgld-trap", "SGLD astray", {"scene": "logistic", "step": 0.6, "budget": 1600}, 12),
        Preset("exchange", "Exchange", {"scene": "ising"}, 1),
        Preset("gaussian-20d", "Twenty coordinates", {"scene": "gaussian-20d", "budget": 1000}, 13),
        Preset("no-tempering", "Where it fails: no tempering", {"n": 1000, "tempering": 1.0, "kappa": 0.0001, "budget": 160}, 6, fails=True),
    ),
    exercise=(
        Step(
            "two-coordinates",
            "κ is 0.001 here; take 0.01, then the preset Large batch with 0.1. What happens to the batch, and to the effective draws per million rows?",
            "The batch is κ L² + L: 311, 870, 6,461 rows. The step may be longer at the same acceptance, but each row read is worth far less.",
        ),
        Step(
            "quarter",
            "Same rows, three proposals: compare the bars of Poisson-MH, -Barker and -MALA here and at acceptance .55. Which lose most by the longer steps?",
            "Barker and MALA are well ahead of the random walk, which reads the very same rows. Longer steps cost the two half or more, the walk little.",
        ),
        Step(
            "gentle",
            "SGLD beside Tuna-SGLD, step 0.25. Then take step 0.6: which of the two pays, and how?",
            "SGLD: its spread is a fifth too wide, then three times the exact one. Tuna-SGLD makes the same moves and rejects them: acceptance .38, then .04.",
        ),
    ),
    claims=(),
    cheap=_FAST,
    deterministic=lambda params: params.budget_by != "seconds",
)
