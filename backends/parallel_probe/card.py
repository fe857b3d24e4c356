"""The card of parallel-probe: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from backends import contract
from backends.contract import Card, Claim, Metric, Paper, Preset, Step, Upload, Weight, in_group

_Interval = Annotated[int, Field(ge=1, le=5000)]
_Stable = Annotated[int, Field(ge=1, le=100)]
_Prune = Annotated[int, Field(ge=1, le=100)]
_WarmUp = Annotated[int, Field(ge=0, le=100)]
_Longest = Annotated[int, Field(ge=32, le=32_768)]
_Difficulty = Annotated[float, Field(ge=0, le=1)]
TINY = "tiny"


class Params(contract.Params):
    """Params of one ensemble and its controller."""

    source: Literal["reasoner", "synthetic", "pool"] = Field(
        "reasoner",
        description="A tiny network that reasons here and now, generated branches, or a file of yours",
        json_schema_extra=in_group("Branches", advanced=False),
    )
    branches: int = Field(
        32, title="Branches N", ge=2, le=128, description="Lines of thought side by side", json_schema_extra=in_group("Branches", advanced=False, unit="count")
    )
    stable: _Stable | Literal["auto", "off"] = Field(
        "auto",
        title="Stable for u",
        description="Stop when the vote has repeated itself so many times",
        json_schema_extra=in_group("Controller", advanced=False, unit="probes", live=True, slider=[2, 60]),
    )
    prune: _Prune | Literal["auto", "off"] = Field(
        "auto",
        title="Cut after k",
        description="Disagreements in a row that cut a branch",
        json_schema_extra=in_group("Controller", advanced=False, unit="probes", live=True, slider=[2, 20]),
    )
    warmup: _WarmUp | Literal["auto"] = Field(
        "auto",
        title="Warm-up W",
        description="Probes before disagreement counts",
        json_schema_extra=in_group("Controller", advanced=False, unit="probes", live=True, slider=[0, 30]),
    )
    interval: _Interval | Literal["auto"] = Field(
        "auto",
        title="Probe interval Δ",
        description="Tokens between two probes; a file brings its own",
        json_schema_extra=in_group("Branches", unit="tokens", slider=[8, 64]),
    )
    leaves: int = Field(
        6,
        title="Digits in the expression",
        ge=3,
        le=8,
        description="How hard the drawn questions of the reasoner are",
        json_schema_extra=in_group("Branches", unit="count"),
    )
    difficulty: _Difficulty | Literal["drawn"] = Field(
        "drawn", description="Of synthetic questions; drawn: from their law", json_schema_extra=in_group("Branches", unit="relative")
    )
    question: str = Field(
        "",
        max_length=400,
        description="Your own instead of a drawn one: ((3+4)*(2-7)) for the tiny reasoner, any words for a real model",
        json_schema_extra=in_group("Branches"),
    )
    questions: int = Field(1, ge=1, le=300, description="How many are asked; the first is shown", json_schema_extra=in_group("Branches", unit="count"))
    temperature: float = Field(1.0, ge=0.3, le=1.5, description="Of the model's sampling", json_schema_extra=in_group("Branches", unit="relative"))
    longest: _Longest | Literal["auto"] = Field(
        "auto",
        title="Longest branch",
        description="A model's branch is ended here; the tiny reasoner takes at most 256, a real model 5,120",
        json_schema_extra=in_group("Branches", unit="tokens", scale="log"),
    )
    model: str = Field(
        TINY,
        min_length=1,
        max_length=200,
        description="The tiny reasoner, or on a host with a GPU a thinking model of the hub, such as Qwen/Qwen3-0.6B",
        json_schema_extra=in_group("Branches"),
    )
    pool: Upload | None = Field(
        None, title="Your pool (JSON)", description="question, gold_answer, probe_freq, each_branch", json_schema_extra=in_group("Branches", accept=".json")
    )
    method: Literal["parallel-probe", "sc", "asc", "esc", "sac"] = Field(
        "parallel-probe",
        description="Whose figures stand in the strip: Parallel-Probe, plain voting, or voting that stops early in other ways",
        json_schema_extra=in_group("Controller"),
    )


def weight(params: Params) -> Weight:
    """A few seconds of one core; a real model wants the host's GPU."""
    return "gpu" if params.source == "reasoner" and params.model != TINY else "cpu"


SYNTHETIC: dict[str, Any] = {"source": "synthetic", "branches": 64, "questions": 200, "seed": 35}

_HOW = r"""
$N$ branches of one model think about the same question. Every $\Delta$ tokens each of them is **probed**: a forced "the answer is" is put behind
its prefix, a short answer is read, and both are forgotten. The branch goes on as if it had never been asked (its KV cache is forked, not appended
to). That gives a matrix $A_{i,t}$ of provisional answers, branch by probe, with ERR where nothing could be read.

The controller reads it column by column. The vote is $d_t=\operatorname{mode}(A_{\cdot,t})$ over the branches that are not cut; equal counts go to
the answer met first.

- **Warm-up.** For $t<W$ nobody is judged: early columns are confetti, and the first majority is arbitrary.
- **Cut (width).** From then on a branch that disagrees with the vote $k$ times in a row is cut, and the vote is taken again without it. Branches that
  have ended keep voting with their own answer and are never cut.
- **Stop (depth).** When the vote has equalled the one before it $u$ times in a row, all stop and the vote is the answer. If that never happens, those who
  are left vote with their final answers.

**Sequential tokens** are those of the branch that spent most (how long you wait), **total tokens** those of all branches (what you pay). A probe's
own tokens are not counted, as in the paper. If all always agree, a run ends after $\Delta(u+2)$ tokens; with $u=k=\infty$ it is plain voting.

**Peers** on the very same branches: SC, the majority of final answers; ASC, one branch after the other until the lead is sure
($1-\text{Beta}(0.5;v_1+1,v_2+1)>0.95$); ESC, windows of 8 until one is of one mind; SAC, each branch stops by itself when *its own* answer repeats.

**What the paper reports** for Qwen3-0.6B (right, total tokens; AIME24 and AIME25): all parts 25.8%, 736k; without cutting 23.9%, 844k; without
stopping 25.5%, 799k; without warm-up 23.5%, 595k; SAC 22.4%, 820k.
"""

_RECONSTRUCTED = (
    "The controller is that of the paper's released evaluation, which differs from its equations: the first column never votes, disagreement counts from "
    "step W on, finished branches keep voting. The text does not print u, k and W of its main table; 40, 7 and 15 come from the release. "
    "Reconstructed here: the tiny reasoner, its training and the scaled setting (Δ = 16, u = 8, k = 4, W = 4; SAC repeats 3 instead of 14); the generator, "
    "whose branches are synthetic and only have the statistics of published pools. u counts probes: another Δ changes its meaning, and short branches "
    "never reach 40. A pool with more branches than asked for is replayed in 10 shuffles (the release: 100). Answers are normalised before they vote, or "
    "1/2 and \\frac12 would never agree. It is not without loss: in the paper Qwen3-1.7B loses 1.9 points. With one question, the sweeps below are made of "
    "60 synthetic ones. "
    "A real model needs a host with a GPU. An endpoint that only chats cannot be probed, because it does not go on from a prefix."
)

CARD = Card(
    slug="parallel-probe",
    title="Thoughts that may stop together",
    theme="agents",
    paper=Paper(
        "Parallel-Probe: Towards Efficient Parallel Thinking via 2D Probing",
        "Tong Zheng, Chengsong Huang, Runpeng Dai, Yun He and eight others",
        "https://arxiv.org/abs/2602.03845",
    ),
    aha="Parallel thoughts agree long before they end: peek at all of them, stop when their vote holds still, and cut those who keep disagreeing.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "accuracy": Metric("share", "questions answered rightly by the chosen method", "higher"),
        "accuracy_sc": Metric("share", "the same by plain voting", "higher"),
        "sequential_tokens": Metric("tokens", "of the branch that spent most, a question", "lower"),
        "sequential_tokens_sc": Metric("tokens", "the same by plain voting", "lower"),
        "total_tokens": Metric("tokens", "of all branches, a question", "lower"),
        "total_tokens_sc": Metric("tokens", "the same by plain voting", "lower"),
        "saved_sequential_pct": Metric("%", "sequential tokens saved against plain voting", "higher"),
        "saved_total_pct": Metric("%", "total tokens saved against plain voting", "higher"),
        "onset_ratio": Metric("ratio", "tokens after which the vote never changes, over the longest branch", "lower"),
        "single_branch_accuracy": Metric("share", "branches that come out right by themselves", "higher"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("live", "One question, live", {}, 4),
        Preset("many", "200 synthetic questions", SYNTHETIC, 3),
        Preset("impatient", "No warm-up", {**SYNTHETIC, "warmup": 0}, 3),
        Preset("all-branches", "Nobody is cut", {**SYNTHETIC, "prune": "off"}, 3),
        Preset("to-the-end", "No common stop", {**SYNTHETIC, "stable": "off"}, 3),
        Preset("own-stop", "Each stops by itself", {**SYNTHETIC, "method": "sac"}, 3),
        Preset("trace", "Five branches by hand", {"source": "pool", "branches": 5, "stable": 3, "prune": 2, "warmup": 2}, 1),
        Preset("minority", "Where it fails: a right minority is cut", {"source": "synthetic", "seed": 189}, 2, fails=True),
    ),
    exercise=(
        Step(
            "many",
            "Set the warm-up from 15 to 0: what happens to total tokens, and to accuracy?",
            "Total tokens fall from 679,000 to 379,000 a question, and accuracy from 77% to 73.5%: early columns are confetti, so the first majority "
            "is arbitrary and cuts the wrong ones. On the paper's pools tokens fall less, by about a fifth.",
        ),
        Step(
            "many",
            "Switch cutting off, then stopping instead: which token count moves, and which knob is width, which depth?",
            "Without cutting, total tokens grow by 40%, to 948,000, and accuracy falls to 73%: cutting is width. Without stopping, the longest "
            "branch grows from 19,900 to 21,400 tokens, and the total hardly: stopping is depth.",
        ),
        Step(
            "own-stop",
            "Each branch now stops when its own answer repeats: how do accuracy and tokens compare with a common stop?",
            "72.5% right for 907,000 tokens, where Parallel-Probe has 77% for 679,000: each branch converges on its own mistake, and nobody "
            "learns from the others.",
        ),
    ),
    claims=(
        Claim(
            "trace-total",
            "Total tokens of the worked trace",
            13_750,
            "five branches, Δ = 500, u = 3, k = 2, W = 2",
            "computed for this lab's method card with the released controller's rules",
            "trace",
            "total_tokens",
            0.5,
        ),
        Claim(
            "trace-sequential",
            "Sequential tokens of the worked trace",
            3000,
            "the same",
            "computed for this lab's method card with the released controller's rules",
            "trace",
            "sequential_tokens",
            0.5,
        ),
        Claim(
            "saved-sequential",
            "Sequential tokens saved against voting",
            32.3,
            "the paper: Qwen3-8B on AIME24, AIME25 and HMMT25; here: synthetic branches, for which the method card expects 23",
            "main table of the paper: 31.9k and 21.6k tokens",
            "many",
            "saved_sequential_pct",
            10.0,
        ),
        Claim(
            "saved-total",
            "Total tokens saved against voting",
            25.1,
            "the paper: Qwen3-8B on AIME24, AIME25 and HMMT25; here: synthetic branches, for which the method card expects 29",
            "main table of the paper: 1,100.7k and 824.9k tokens",
            "many",
            "saved_total_pct",
            10.0,
        ),
        Claim(
            "onset",
            "The vote is settled early",
            0.31,
            "the paper: mean over 360 pairs of model and question; here: the tiny reasoner's default question",
            "section 2 of the paper",
            "live",
            "onset_ratio",
            0.2,
        ),
    ),
    cheap={"branches": 4, "leaves": 3},
)
