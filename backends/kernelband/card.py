"""The card of kernelband: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backends import contract
from backends.contract import Card, Claim, Metric, Paper, Preset, Step, Weight, in_group

_Size = Annotated[int, Field(ge=8, le=16384)]


class Params(contract.Params):
    """Params of one search, or of one comparison of policies."""

    kernel: Literal["matmul", "matmul-bias-relu", "softmax", "rmsnorm", "layernorm", "row-sum", "stencil", "attention"] = Field(
        "matmul", description="The program that is made faster", json_schema_extra=in_group("Kernel", advanced=False)
    )
    size: _Size | Literal["auto"] = Field(
        "auto",
        description="Rows of a matrix, side of a grid or length of a text; auto is 384 for matmul and as large for the others as their work needs",
        json_schema_extra=in_group("Kernel", unit="rows", slider=[64, 8192], scale="log"),
    )
    rounds: int = Field(20, ge=1, le=60, description="Attempts; a failed one counts too", json_schema_extra=in_group("Search", advanced=False, unit="attempts"))
    exploration: float = Field(
        2.0, title="Exploration c", ge=0, le=4, description="Weight of what is not yet known of an arm", json_schema_extra=in_group("Bandit", advanced=False)
    )
    clusters: int = Field(3, title="Clusters K", ge=1, le=8, description="Groups of kernels that behave alike", json_schema_extra=in_group("Bandit"))
    recluster_every: int = Field(
        10, title="Re-cluster every τ", ge=2, le=20, description="Rounds between two clusterings", json_schema_extra=in_group("Bandit", unit="rounds")
    )
    theta_sm: float = Field(
        75,
        title="Threshold: arithmetic",
        ge=1,
        le=100,
        description="Above it arithmetic counts as saturated",
        json_schema_extra=in_group("Bandit", unit="% of peak"),
    )
    theta_dram: float = Field(
        75,
        title="Threshold: memory",
        ge=1,
        le=100,
        description="Above it main memory counts as saturated",
        json_schema_extra=in_group("Bandit", unit="% of peak"),
    )
    theta_l2: float = Field(
        75,
        title="Threshold: cache",
        ge=1,
        le=100,
        description="Above it the cache counts as saturated",
        json_schema_extra=in_group("Bandit", unit="% of peak"),
    )
    temperature: float = Field(
        1.0,
        ge=0.5,
        le=50,
        description="How evenly parents are drawn; at 1 almost always the one of most headroom",
        json_schema_extra=in_group("Bandit", scale="log"),
    )
    mask: bool = Field(True, description="Close the arms whose resource is saturated already", json_schema_extra=in_group("Bandit"))
    profile: Literal["all", "representatives"] = Field(
        "all",
        description="Which kernels are profiled: here it is free for all, in the paper only each cluster's representative is",
        json_schema_extra=in_group("Bandit"),
    )
    match_clusters: bool = Field(
        False,
        description="Give new clusters the statistics of the nearest old ones; in the paper's code their order is left to chance",
        json_schema_extra=in_group("Bandit"),
    )
    policy: Literal["kernelband", "thompson", "random", "greedy", "best-of-n", "tpe"] = Field(
        "kernelband", description="Who decides where the next attempt goes", json_schema_extra=in_group("Search", advanced=False)
    )
    proposer: Literal["offline", "endpoint", "local"] = Field(
        "offline",
        description="Who writes the child: random edits of a schedule, or a language model where the operator allows it",
        json_schema_extra=in_group("Search"),
    )
    substrate: Literal["c", "triton"] = Field("c", description="C on this host's processor, or Triton", json_schema_extra=in_group("Kernel"))
    threads: int = Field(1, ge=1, le=16, description="Threads of the timed kernel", json_schema_extra=in_group("Kernel"))
    mode: Literal["search", "compare"] = Field(
        "search", description="One search, or all policies replayed over 100 seeds on one table of times", json_schema_extra=in_group("Search", advanced=False)
    )
    seeds: int = Field(100, ge=5, le=200, description="Replays of each policy in a comparison", json_schema_extra=in_group("Search", unit="seeds"))
    code: str = Field(
        "",
        title="Your own C",
        max_length=20_000,
        description="Your program with the kernel's signature, where the operator allows it; it is measured before round 1",
        json_schema_extra=in_group("Kernel", lines=8),
    )


def weight(params: Params) -> Weight:
    """Nothing else may compute while kernels are timed."""
    return "timing"


_HOW = r"""
A kernel that gives the right results is to become faster. Each round makes **one** child of one parent by one of six strategies: tiling,
vectorization, fusion, pipeline, reordering, access layout. The child is compiled, checked and timed for real.

**Which arm.** Kernels are grouped by behaviour $\phi$ (time, registers, working set, tile, lanes) into $K$ clusters by K-means++. An arm is a
cluster $i$ with a strategy $s$. The open arm of the highest score is pulled:

$$\mu_{i,s} + c\,\sqrt{\ln t\,/\,N_{i,s}}$$

Every arm begins with one imagined reward of 0.5. After the pull $N\leftarrow N+1$, $\mu\leftarrow\mu+(r-\mu)/N$.

**Which arms are closed.** Each strategy relieves one resource: arithmetic (SM), memory (DRAM) or cache (L2). If the cluster's representative
uses at least $\theta$ percent of that resource's peak, the strategy is masked there: it has little left to win. The representative is the
member nearest to the cluster's centroid, a typical one and not the fastest: with random edits it rarely reaches 75 %, and masks are rare.

**Which parent.** A member of the cluster, drawn with $\mathrm{softmax}(V/\text{temperature})$, where $V=\theta-h$ is its headroom in percentage
points. At temperature 1 five points are odds of 148 to 1, and the *least used*, often slowest, member is taken.

**Reward.** $r=\max\bigl(0,\,(T_\text{parent}-T_\text{child})/T_\text{parent}\bigr)$, against the parent. A child that does not compile, is wrong
or was seen before gives $r=0$ and counts as a pull. A right but slower child joins the others.

**Compare** replays all policies over 100 seeds on a table of measured times. Only edits that lead to another measured program can be drawn
there. TPE draws whole schedules, which are moved to the nearest measured one; that helps it, for the table is denser near the fastest
programs than the whole space is. With random edits and 20 rounds the bandit is **no better than random choice**: 18 arms are hardly tried once.
"""

_RECONSTRUCTED = (
    "Stated by the paper or its code: the bandit with all its numbers, the clustering, the masks, the sampling of parents, the reward. "
    "Ours: on a processor the percentages of peak are bounds from a measured roofline and not hardware counters; the features are their "
    "nearest kin there; distances to a centroid are taken in standardised features; an offline proposer of random edits stands in for the "
    "language model; Thompson sampling with a Beta law; the closed game in which policies are compared. Whether the paper resets its "
    "statistics when clusters change is unknown; its code does not."
)

CARD = Card(
    slug="kernelband",
    title="A bandit that tunes kernels",
    theme="code",
    paper=Paper(
        "KernelBand: Steering LLM-based Kernel Optimization via Hardware-Aware Multi-Armed Bandits",
        "Ran, Xie, Ji, Liu, Wu, Cao, Guo, Yu, Li, Hu, Yang, Xie",
        "https://arxiv.org/abs/2511.18868",
    ),
    aha="One writer proposes faster programs, a bandit decides where the next attempt is spent, and the profiler closes what has nothing left to win.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "speedup": Metric("times", "time of the baseline over that of the best kernel; compared: the geometric mean, else the mean", "higher", "measured"),
        "best_ms": Metric("ms", "time of the fastest correct kernel; compared: the baseline's over the speed-up", "lower", "measured"),
        "baseline_ms": Metric("ms", "time of the naive kernel, the least of its timings", None, "measured"),
        "rounds": Metric("attempts", "attempts made"),
        "correct": Metric("attempts", "children that are right", "higher", "measured"),
        "wrong": Metric("attempts", "children that give wrong results, crash, hang or cheat", "lower", "measured"),
        "compile_errors": Metric("attempts", "children that do not compile", "lower", "measured"),
        "duplicates": Metric("attempts", "children that were seen before", "lower", "measured"),
        "masked_pulls": Metric("attempts", "rounds in which the mask turned the bandit away from its first choice", None, "measured"),
        "roofline_fraction": Metric("ratio", "speed of the best kernel over what the measured roofline allows", "higher", "measured"),
        "noise_cv": Metric("ratio", "coefficient of variation of the best kernel's runs", "lower", "measured"),
        "against_random": Metric("ratio", "final speed-up over that of random choice, geometric mean over the seeds of a comparison", "higher", "measured"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("matmul", "Matrix product", {}, 15),
        Preset("rmsnorm", "RMSNorm", {"kernel": "rmsnorm"}, 20),
        Preset("masks", "Row sum, a low threshold for memory: masks close arms", {"kernel": "row-sum", "theta_dram": 10.0, "temperature": 10.0}, 15),
        Preset("gentle", "Matrix product, parents drawn more evenly", {"temperature": 10.0}, 15),
        Preset("compare", "Where it fails: all policies, 100 seeds, no better than random choice", {"mode": "compare"}, 20, fails=True),
    ),
    exercise=(
        Step(
            "matmul",
            "Lower the exploration from 2 to 0.2: what happens to the counts in the heat map? Find a seed at which it holds on to a bad arm.",
            "At 2 all counts stay almost even, 20 rounds are too few for 18 arms. At 0.2 they pile up on the first arms that paid.",
        ),
        Step(
            "masks",
            "Raise the memory threshold from 10 to 75: the struck arms open again. Was there something left to win from them?",
            "Yes. Over 60 replays of 30 rounds, arms for memory saved 6 % of the parent's time where the representative used over 10 % of memory's peak, "
            "as much as elsewhere, and 0.5 % where it used over 40 %. A mask pays at a high threshold, which 20 rounds of random edits seldom reach.",
        ),
        Step(
            "gentle",
            "Compare the family tree with that of temperature 1: which parents are edited now?",
            "At 1 it is mostly the slow baseline, which has most headroom; at 10 also faster kernels, and edits build on one another.",
        ),
    ),
    claims=(
        Claim(
            "within-noise-of-random",
            "With random edits the bandit is within noise of random choice",
            1.0,
            "matmul, 20 rounds, 100 seeds on one table of times; the ratio of final speed-ups",
            "a prototype computed for this lab's method card, not the paper: 13 against 19 over 6 seeds, 19 against 19 at temperature 10",
            "compare",
            "against_random",
            0.5,
        ),
    ),
    cheap={"mode": "compare", "kernel": "row-sum", "rounds": 6, "clusters": 2, "recluster_every": 2, "seeds": 8},
    needs=("a C compiler (gcc or clang), else recorded runs only",),
    secrets=("PLAYABLE_ENDPOINT_KEY",),
    deterministic=False,
)
