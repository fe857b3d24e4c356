"""The card of sp-ucb-olp: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backends import contract
from backends.contract import Card, Claim, Metric, Paper, Preset, Step, Upload, Weight, in_group

MOST = 4  # configurations, and resources

_Budget = Annotated[float, Field(ge=0.02, le=0.6)]
_Slack = Annotated[float, Field(ge=0, le=0.2)]


class Params(contract.Params):
    """Params of one run over T rounds."""

    preset_instance: Literal["separate-resources", "crossing", "synthetic-cluster", "synthetic-small-jobs", "digits", "trace"] = Field(
        "separate-resources",
        title="Workload",
        description="Two exact laws, two generated clusters, digits served at three precisions, or your trace",
        json_schema_extra=in_group("Workload", advanced=False),
    )
    configurations: int = Field(
        2,
        title="Configurations K",
        ge=1,
        le=MOST,
        description="How many are offered; with separate resources each brings its own resource",
        json_schema_extra=in_group("Workload", unit="count"),
    )
    budgets: list[_Budget] = Field(
        [0.25] * MOST,
        title="Budget b",
        min_length=MOST,
        max_length=MOST,
        description="Budget of each resource in units a round; only those of resources that the workload has count",
        json_schema_extra=in_group("Workload", advanced=False, unit="units a round", labels=[f"Budget {j + 1} (units a round)" for j in range(MOST)]),
    )
    trace: Upload | None = Field(
        None,
        title="Your trace (CSV)",
        description="A cluster trace with the columns plan_cpu, plan_mem, start_time and end_time",
        json_schema_extra=in_group("Workload"),
    )
    horizon: int = Field(2000, title="Rounds T", ge=200, le=5000, description="Requests that arrive", json_schema_extra=in_group("Learner", unit="rounds"))
    alpha: float = Field(
        0.1,
        title="Exploration α",
        ge=0,
        le=1,
        description="Scale of the confidence radius; 0 is greedy",
        json_schema_extra=in_group("Learner", advanced=False, scale="log", slider=[1e-3, 1]),
    )
    slack: _Slack | Literal["auto"] = Field(
        "auto", title="Slack ε", description="Share of the budget that is kept back; auto is √(ln T / T)", json_schema_extra=in_group("Learner", unit="share")
    )
    resolve_every: int = Field(
        20,
        title="Solve again every",
        ge=1,
        le=100,
        description="Rounds between two solves of the saddle point",
        json_schema_extra=in_group("Learner", unit="rounds"),
    )
    mixture: Literal["lp-duals", "uniform-over-ties"] = Field(
        "lp-duals",
        title="Mixture from",
        description="Duals of the linear program, or equal weight on all configurations that tie",
        json_schema_extra=in_group("Learner", advanced=False),
    )
    reveal_oracle: bool = Field(
        True, title="Show the exact answer", description="Off: guess first; what only the oracle knows is left out", json_schema_extra=in_group("Learner")
    )


def weight(params: Params) -> Weight:
    """A few seconds of one core."""
    return "cpu"


_HOW = r"""
Each round a configuration $\theta$ is chosen, a request shows its reward $r$ and its use $a$ of every resource, and is accepted or not. The
budget of round after round is $b$, and nothing may ever be overdrawn. The laws are unknown.

**What mixing is worth.** At prices $p$ a configuration leaves the surplus $g_\theta(p)=\mathbb E(r-p^\top a)_+$. Knowing the laws, one earns

$$V_\text{mix}(b)=\min_{p\ge0}\ b^\top p+\max_\theta g_\theta(p)\qquad V_\text{fix}(b)=\max_\theta\min_{p\ge0}\ b^\top p+g_\theta(p)$$

a round with the best mixture over time, and with the best fixed configuration. $T\,V_\text{mix}$ bounds every online policy.

**The learner** sees one request of each configuration and rejects it. Then every $s$ rounds it solves

$$\min_{0\le p\le P_\text{max}}\ \max_{w\in\Delta}\ (1-\varepsilon)\,b^\top p+\sum_\theta w_\theta\bigl(\hat g_\theta(p)+\beta_\theta\bigr),\qquad
\beta_\theta=\alpha R_\text{max}\sqrt{\frac{d\ln\frac{d P_\text{max}A_\text{max}T}{R_\text{max}}+\ln\frac{2KT}{\delta}}{N_\theta}}$$

draws $\theta$ from $w$ and accepts iff $r\ge p^\top a$ and the request still fits. It is hopeful about values ($\beta$) and careful about the
budget ($\varepsilon$). Rejected requests teach too.

**The solver** is exact: cutting planes ($z\ge$ tangents of $\hat g_\theta+\beta_\theta$) in a linear program of $d+1$ variables on HiGHS, until its
lower bound meets the best value. **The mixture is the vector of dual multipliers**: where configurations tie at $p$, only they say in which
proportion the tie uses the budget up.

**Beside it**: greedy ($\alpha=0$), one configuration learned with its price, equal weight over ties, random, and the oracle that knows $p^*$
and $w^*$. All face the same requests.
"""

_RECONSTRUCTED = (
    "Stated by the paper or its code: the saddle point, radius, slack, price bound, warm start, threshold and the trace's reward formula. "
    "The constants of the radius are 1, as in the code; the proofs' are unknown. Ours: the cutting planes; the two exact laws; generated jobs "
    "(independent gamma laws with the trace's moments, and exponential ones), which are not the Alibaba data; R_max = 3 for them, where a reward's "
    "noise is cut; the digits. The code puts equal weight on ties: at exact prices that breaks the budget, as here. Its own quasi-Newton prices "
    "mostly miss the tie, so that it alternates from solve to solve and comes close by accident (0.93 of the oracle on the second step of the exercise, "
    "T = 1000). Pool and trace hold finitely many requests, which can tie with the price; their prices need not be unique."
)

_CLUSTER = {"preset_instance": "synthetic-cluster", "configurations": 3, "budgets": [0.23, 0.12, 0.25, 0.25]}
_SMALL = {"preset_instance": "synthetic-small-jobs", "configurations": 3, "budgets": [0.07, 0.086, 0.25, 0.25]}

CARD = Card(
    slug="sp-ucb-olp",
    title="Which configuration, which request",
    theme="decisions",
    paper=Paper(
        "A Two-Layer Framework for Joint Online Configuration Selection and Admission Control",
        "Owen Shen, Haoran Xu, Yinyu Ye, Peter Glynn, Patrick Jaillet",
        "https://arxiv.org/abs/2602.07663",
    ),
    aha="No single configuration is best: switching between them in the right proportion can earn nearly twice as much from the same budget.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "competitive_ratio": Metric("share of T·V_mix", "reward against the bound of the oracle", "higher"),
        "regret_over_sqrt_t": Metric("reward / √rounds", "(T·V_mix - reward) / √T; the theorem keeps it bounded up to logarithms", "lower"),
        "v_mix": Metric("reward a round", "what the best mixture earns"),
        "v_fix": Metric("reward a round", "what the best fixed configuration earns"),
        "w_error": Metric("share of rounds", "largest distance of the mean mixture of the later half from w*", "lower"),
        "price_error": Metric("reward / unit", "largest distance of the mean price of the later half from p*", "lower"),
        "budget_left_min": Metric("share of the budget", "left at the end of the resource that is used most"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("equal-budgets", "Equal budgets", {}, 3),
        Preset("unequal-budgets", "Unequal budgets", {"budgets": [0.1, 0.4, 0.25, 0.25]}, 3),
        Preset("uniform-ties", "Equal weight on ties", {"budgets": [0.1, 0.4, 0.25, 0.25], "mixture": "uniform-over-ties"}, 3),
        Preset("crossing", "One resource, dear or cheap", {"preset_instance": "crossing", "budgets": [0.3, 0.25, 0.25, 0.25]}, 2),
        Preset("cluster", "Synthetic cluster", _CLUSTER, 3),
        Preset("small-jobs", "Small jobs", _SMALL, 2),
        Preset("digits", "Digits at three precisions", {"preset_instance": "digits", "configurations": 3, "budgets": [0.1, 0.2, 0.25, 0.25]}, 2),
        Preset("exploration-off", "Where it fails: no exploration", {**_SMALL, "alpha": 0.0, "seed": 5}, 3, fails=True),
    ),
    exercise=(
        Step(
            "equal-budgets",
            "The reward climbs above the lower ray. Why can no fixed configuration do so?",
            "Each needs one resource and leaves the other's budget unused: at best 0.219 a round, 58 % of the mixture's 0.375. The learner earns 92 % "
            "of the mixture's, 95 % over six seeds.",
        ),
        Step(
            "unequal-budgets",
            "Where do the mixture and the prices settle? Then take the mixture from equal weight on ties: which budget runs out, and what does it cost?",
            "The mixture goes to 0.2 : 0.8, the prices to a little above ½, as the slack asks. Equal weight wants 0.25 of resource 1 a round where 0.1 is "
            "there: it is gone near round 830, and the ratio falls from 0.94 to 0.64 (six seeds: from 0.96 to 0.73).",
        ),
        Step(
            "exploration-off",
            "Look at the six seeds. What happens to them with α = 0.01, and with α = 1?",
            "Without exploration some seeds lock in on one configuration: 0.75 to 0.96. At 0.01 all lie between 0.92 and 0.97. At 1 the mean falls from "
            "0.94 to 0.89: exploration is a tax.",
        ),
    ),
    claims=(
        Claim(
            "ratio-t1000",
            "At T = 1000 the learner earns 0.923 of the oracle's bound",
            0.923,
            "separate resources, b = (0.1, 0.4), α = 0.1, solved every 10 rounds",
            "computed for this lab's method card, not in the paper: 0.923 over 5 seeds, sd 0.028; tolerance: three sd of one seed",
            "unequal-budgets",
            "competitive_ratio",
            0.084,
            {"horizon": 1000, "resolve_every": 10},
        ),
        Claim(
            "ratio-t5000",
            "At T = 5000 the learner earns 0.975 of the oracle's bound",
            0.975,
            "separate resources, b = (0.1, 0.4), α = 0.1, solved every 10 rounds",
            "computed for this lab's method card, not in the paper: 0.975 over 5 seeds, sd 0.009; tolerance: three sd of one seed and the mean's",
            "unequal-budgets",
            "competitive_ratio",
            0.03,
            {"horizon": 5000, "resolve_every": 10},
        ),
        Claim(
            "ties-t1000",
            "With equal weight on ties it falls to 0.729",
            0.729,
            "separate resources, b = (0.1, 0.4), α = 0.1, solved every 10 rounds",
            "computed for this lab's method card, not in the paper: 0.729 over 5 seeds, sd 0.067; tolerance: two sd of one seed",
            "uniform-ties",
            "competitive_ratio",
            0.134,
            {"horizon": 1000, "resolve_every": 10},
        ),
        Claim(
            "crossing-v-mix",
            "One resource, crossing surpluses: V_mix",
            0.285484,
            "A: U[0, 1] for 1 unit, B: U[0, 1/2] for 1/4 unit, b = 0.3",
            "closed form of this lab's method card, not in the paper",
            "crossing",
            "v_mix",
            1e-6,
        ),
        Claim(
            "cluster-alpha-0.01",
            "A little exploration earns 0.974 of the oracle's bound on the cluster trace",
            0.974,
            "Alibaba trace 2018 in its order, T = 5000, 50 seeds (sd 0.006); here the synthetic cluster, which is not that trace",
            "the authors' results/experiment_summary_50seeds.csv; tolerance: generated jobs and one seed, sd 0.03",
            "cluster",
            "competitive_ratio",
            0.06,
            {"alpha": 0.01, "horizon": 5000, "resolve_every": 10},
        ),
    ),
    cheap={"horizon": 200, "resolve_every": 40},
)
