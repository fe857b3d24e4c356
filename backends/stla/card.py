"""The card of stla: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backends import contract
from backends.contract import Card, Metric, Paper, Preset, Step, Weight, in_group

_Group = Annotated[int, Field(ge=1, le=1536)]


class Params(contract.Params):
    """Params of one layer, or of one block."""

    objective: Literal["global", "local"] = Field(
        "global",
        title="Judged by",
        description="Global: the error that remains after later columns have compensated (STLA). Local: the error as it stands",
        json_schema_extra=in_group("Rounding", advanced=False),
    )
    cluster: int = Field(
        96,
        title="Cluster",
        ge=1,
        le=1536,
        description="Columns that are decided together; it divides the group, or the group divides it",
        json_schema_extra=in_group("Rounding", advanced=False, control="number", unit="columns"),
    )
    regulariser: float = Field(
        1.0,
        title="Regulariser λ",
        ge=0,
        le=3,
        description="How hard soft roundings are pushed to up or down",
        json_schema_extra=in_group("Rounding", advanced=False),
    )
    mode: Literal["layer", "block"] = Field(
        "layer",
        description="One matrix with all peers, or the seven matrices of a block and the perplexity",
        json_schema_extra=in_group("Layer", advanced=False),
    )
    layer: int = Field(3, ge=0, le=29, description="Block of the model, from 0", json_schema_extra=in_group("Layer", control="number", unit="index"))
    matrix: Literal["q", "k", "v", "o", "gate", "up", "down"] = Field(
        "v", description="Matrix of the block; in block mode all seven are rounded", json_schema_extra=in_group("Layer")
    )
    bits: int = Field(3, ge=2, le=8, description="Bits of a weight", json_schema_extra=in_group("Grid", slider=[2, 4], unit="bits"))
    group: _Group | Literal["per-channel"] = Field(
        96,
        title="Group",
        description="Columns of a row that share scale and zero point; it divides the matrix's columns (576, or 1536 for down)",
        json_schema_extra=in_group("Grid", unit="columns"),
    )
    order: Literal["spin", "act", "none"] = Field(
        "spin", description="Spin gathers columns whose errors can cancel; act takes strong inputs first", json_schema_extra=in_group("Rounding")
    )
    iterations: int = Field(200, ge=0, le=1000, description="Steps of learning for a cluster; 0 is nearest rounding", json_schema_extra=in_group("Learning"))
    learning_rate: float = Field(
        0.015, ge=0.005, le=0.1, description="Of Adam, falling to 0.3 of it", json_schema_extra=in_group("Learning", scale="log", unit="logit per step")
    )
    damping: float = Field(
        0.01, ge=0, le=0.1, description="Added to the diagonal of H, relative to its mean", json_schema_extra=in_group("Learning", unit="share")
    )
    asymmetric_correction: bool = Field(
        False,
        description="Inputs as already rounded matrices before this one make them, and the correction for it (GPTAQ)",
        json_schema_extra=in_group("Learning"),
    )
    calibration_tokens: int = Field(
        2048, ge=256, le=4096, description="Tokens that H is measured on, in windows of 256", json_schema_extra=in_group("Learning", unit="tokens")
    )
    by_hand: Literal["0-0", "0-1", "1-0", "1-1"] = Field(
        "0-0", title="By hand: columns 0 and 1", description="Your rounding of the example with three weights", json_schema_extra=in_group("Example", live=True)
    )


def weight(params: Params) -> Weight:
    """Some seconds of one core; a block takes half a minute."""
    return "cpu"


_HOW = r"""
A layer multiplies inputs $X$ by weights $W$. Rounded weights $Q$ change its output by

$$L(Q)=\operatorname{tr}\,(Q-W)\,H\,(Q-W)^\top,\qquad H=\tfrac2n XX^\top .$$

Columns are rounded in **clusters**. After each one all columns that are still open move to where the error is least. So what a rounding really costs is not
$H_{KK}$, its error as it stands, but what is left once the columns $F$ after it have compensated:

$$S_K=H_{KK}-H_{KF}H_{FF}^{-1}H_{FK}=(U_{KK}^\top U_{KK})^{-1},\qquad H^{-1}=U^\top U .$$

- **Order.** *Spin* gathers columns whose errors can cancel; *act* takes the strongest inputs first.
- **Grid.** Scale and zero point of each group are searched (100 clip ratios) on weights as they are *now*, judged by $S$.
- **Learning.** $h(V)=\mathrm{clip}(1.2\,\sigma(V)-0.1,0,1)$ lies between down and up. Adam lowers
  $\operatorname{tr}\,(Q_V-W_K)S_K(Q_V-W_K)^\top$ plus a push to 0 or 1, $\lambda\sum(1-|2h-1|^\beta)$, which sets in after a fifth of the steps; $\beta$ falls
  from 20 to 2.
- **Compensation.** $E=(W_K-Q_K)U_{KK}^{-1}$, then $W_F\leftarrow W_F-EU_{KF}$. Learning and compensation take turns and never fight.

**Telescoping.** $L(Q)=\sum_K\operatorname{tr}\,(W_K-Q_K)S_K(W_K-Q_K)^\top$, exactly, for any rounding: the bars add up to the loss.

**What drives it.** The start reproduces $W_K$, so at first nothing pulls. The regulariser pushes, the look-ahead metric steers. Without the push it ends
close to nearest rounding.

**Peers** on the same inputs and grids: nearest rounding (RTN), AdaRound of the whole layer, GPTQ in both orders, GPTQ then AdaRound (decoupled), STLA judged
locally.
"""

_RECONSTRUCTED = (
    "The paper's text was not at hand: the algorithm is read from the authors' public code. Stated there: the metric, the compensation, the learned "
    "rounding with its schedules, the grid search, the orders, the asymmetric correction. Chosen here: clusters and groups of 96, because 576 columns are "
    "no multiple of 256; step t counts from 0; the grids of RTN and AdaRound are searched with their own block of H; decoupled learns from GPTQ's weights "
    "on GPTQ's grid against the original layer. The asymmetric correction is off at first, because the telescoping identity holds only without it; here it "
    "works stage after stage within a block, and in the layer view the matrices before are rounded to nearest. Learning and grid search are computed in "
    "float32, all else in float64. The model has 135 million parameters, and its weights come rounded to 4 bits in blocks of 32, so the paper's figures "
    "cannot be repeated. Inputs of 2,048 tokens are learned by heart: on another text GPTQ and STLA then win little, or lose to nearest rounding; more "
    "tokens and more damping help. Without a push the learning is no better than nearest rounding of the compensated weights, and the same where no weight "
    "is clipped by its grid. After one block perplexity moves little: look at the layer's loss first."
)

CARD = Card(
    slug="stla",
    title="Rounding that looks ahead",
    theme="adapt",
    paper=Paper(
        "STLA: Spatiotemporal Lookahead Alignment for Post-Training Quantization",
        "Z. Zhang, C. Sun, X. Chu, W.-H. Yu, K.-F. Un, R. P. Martins, P.-I. Mak, J. Xu",
        "https://openreview.net/forum?id=d3RFDLBw01",
    ),
    aha="Before rounding a weight up or down, ask what error will be left after all later weights have made up for it.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "loss_rtn": Metric("squared output", "loss of nearest rounding", "lower"),
        "loss_adaround": Metric("squared output", "loss of AdaRound, the whole layer at once", "lower"),
        "loss_gptq": Metric("squared output", "loss of GPTQ, columns as they stand", "lower"),
        "loss_gptq_act": Metric("squared output", "loss of GPTQ, strong inputs first", "lower"),
        "loss_stla": Metric("squared output", "loss of STLA, judged by what remains", "lower"),
        "loss_stla_local": Metric("squared output", "loss of the same sweep, judged locally", "lower"),
        "telescoping_error": Metric("relative", "sum of the clusters' remaining errors against the loss", "lower"),
        "perplexity_full": Metric("per token", "perplexity of the model as it is, on another text", "lower"),
        "perplexity_stla": Metric("per token", "perplexity with this block rounded", "lower"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("layer", "One matrix, cluster by cluster", {}, 6),
        Preset("local", "Judged locally", {"objective": "local"}, 6),
        Preset("one-cluster", "One big cluster", {"cluster": 576}, 6),
        Preset("small-clusters", "Clusters of 16", {"cluster": 16}, 10),
        Preset("strong-first", "Strong inputs first, learn faster", {"order": "act", "learning_rate": 0.05}, 6),
        Preset("rows", "One scale a row", {"group": "per-channel"}, 9),
        Preset("corrected", "Inputs already rounded", {"asymmetric_correction": True}, 7),
        Preset("block", "A whole block", {"mode": "block", "layer": 0, "calibration_tokens": 4096, "damping": 0.1}, 42),
        Preset("no-push", "Where it fails: no regulariser", {"regulariser": 0.0}, 6, fails=True),
    ),
    exercise=(
        Step(
            "layer",
            "In the example round columns 0 and 1 by hand: flip 0-1 to 1-0. Which of the two objectives sees a difference?",
            "Only the look-ahead one: locally both are 0.464, ahead 0-1 is 0.4064 and 1-0 is 0.4624. It is right: the losses are 0.432 and 0.592.",
        ),
        Step(
            "local",
            "Judged locally. Now judge globally: which bars of the clusters change, and what does the loss do?",
            "What remains falls from 3.42 to 1.73 and is the loss; as seen locally the errors grow from 5.5 to 8.4.",
        ),
        Step(
            "one-cluster",
            "All 576 columns are decided at once, in 200 steps. Try clusters of 96, then 16: where is the loss least, and why?",
            "Least at 96: 1.73, against 3.23 at 576 and 1.74 at 16. Big decisions see more, but 200 steps do not settle 576 columns at once.",
        ),
    ),
    claims=(),
    cheap={"layer": 1, "matrix": "v", "cluster": 32, "group": 32, "iterations": 10, "calibration_tokens": 256},
)
