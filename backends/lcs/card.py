"""The card of lcs: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backends import contract
from backends.contract import Card, Color, Metric, Paper, Preset, Step, Upload, Weight, in_group

LITTLE = "little-flux"
OBJECTS_LIMIT = 4

_Step = Annotated[int, Field(ge=0, le=50)]
_Share = Annotated[float, Field(ge=0, le=1)]


class Params(contract.Params):
    """Params of one pair of pictures."""

    prompt: str = Field(
        "a circle on a wall",
        max_length=300,
        description="What is drawn; the little model knows some fifty words",
        json_schema_extra=in_group("Picture", advanced=False),
    )
    color: Color = Field("#2e9e5b", description="The colour that is wanted", json_schema_extra=in_group("Steering", advanced=False, live=True, format="color"))
    objects: str = Field(
        "circle",
        max_length=100,
        description=f"Words of the prompt whose objects are steered, at most {OBJECTS_LIMIT}, separated by commas; empty steers the whole picture",
        json_schema_extra=in_group("Steering", advanced=False),
    )
    steer_step: _Step | Literal["auto"] = Field(
        "auto",
        title="Steer after step",
        description="How many steps are done when the colour is set; auto takes the one whose noise level is nearest to 0.9",
        json_schema_extra=in_group("Steering", advanced=False, unit="steps"),
    )
    kind: Literal["blend", "type1", "type2", "off"] = Field(
        "blend",
        title="Type",
        description="Type I shifts the whole cloud, Type II turns each token in HSL, blend mixes both, off changes nothing",
        json_schema_extra=in_group("Steering"),
    )
    gamma: _Share | Literal["auto"] = Field(
        "auto",
        title="Gamma",
        description="Share of Type I in the blend; auto is the noise level",
        json_schema_extra=in_group("Steering", live=True, unit="share"),
    )
    mask_mass: float = Field(
        0.8, ge=0.5, le=0.95, description="Share of the word's attention that the object's mask holds", json_schema_extra=in_group("Steering", unit="share")
    )
    steps: int = Field(28, ge=4, le=50, description="Steps from noise to picture", json_schema_extra=in_group("Picture", unit="steps", slider=[10, 50]))
    guidance: float = Field(
        2.5, ge=1, le=5, description="How strongly the prompt pulls; 1 is none, FLUX.1-dev wants 3.5", json_schema_extra=in_group("Picture", unit="factor")
    )
    picture: Upload | None = Field(
        None,
        title="Your picture",
        description="Its colour is moved in the latent; nothing is drawn then",
        json_schema_extra=in_group("Picture", control="image"),
    )
    variant: Literal["corrected", "released"] = Field(
        "corrected", description="Released repeats three slips of the authors' code", json_schema_extra=in_group("Model")
    )
    model: str = Field(
        LITTLE,
        min_length=1,
        max_length=200,
        description="The little model, or a FLUX.1 of the hub where the host has a GPU",
        json_schema_extra=in_group("Model"),
    )


def weight(params: Params) -> Weight:
    """A few seconds of one core; a hub model wants the host's GPU."""
    return "cpu" if params.model == LITTLE else "gpu"


_HOW = r"""
A FLUX picture grows from noise: $x_\sigma=(1-\sigma)\,x_0+\sigma\,\varepsilon$, in tokens of 64 numbers. Encode solid colours and look at how their
tokens differ: **three** of the 64 directions hold nearly all of it. In them black, white and the hues stand like a tilted HSL double cone, the
**Latent Color Subspace** with rows $B$ and centre $\mu$.

**Read.** $C=(x-\mu)B^\top$. With $\alpha=\sigma(-B\mu)+(1-\sigma)\alpha_0$ and $\beta=1-\sigma$, $\hat C=(C-\alpha)/\beta+\alpha_0$ is where the token
will end. One token is noisy, $\sigma/(1-\sigma)$ on each axis; the mean of all tokens is not, and settles in the first fifth of the steps.

**Set.** At one step the wanted colour $c^*$ is put in. *Type I* moves the whole cloud by $c^*-\overline{\hat C}$. *Type II* turns each token in HSL by the
difference of the means (the circular one for the hue). The *blend* takes $\gamma=\sigma$ of the first: early the cloud, late each patch's own
shading. The change goes back as $x'=x+\beta\,\Delta\hat C\,B$; the other 61 directions are not touched, and the remaining steps are run again.

**Where.** The attention from the picture to the object's word, in one double-stream block, averaged over heads. The cells that hold
80 % of it are the mask; means and moves are taken there alone.

The models are the little FLUX, which this lab trained and which any host runs, or FLUX.1 of the hub: one code for both.
"""

_RECONSTRUCTED = (
    "Stated in the authors' public code: the subspace, both types, the blend and the mask. Reconstructed here: the closed form of alpha and beta "
    "(the code has a table for 50 steps at 512 pixels), gamma equal to sigma (it fits the code's table to 4e-4), and three corrections: the cone "
    "starts from the mean of the hue anchors and not from one number, saturations are clipped before they are averaged (the variant “released” "
    "takes these two back), and the explained variance divides by all 64 directions. The paper's "
    "tables were not readable, so none of its figures on steering is quoted. The little FLUX is this lab's own."
)

CARD = Card(
    slug="lcs",
    title="Colour in the latents of FLUX",
    theme="images",
    paper=Paper(
        "The Latent Color Subspace: Emergent Order in High-Dimensional Chaos",
        "Mateusz Pach, Jessica Bader, Quentin Bouniot, Serge Belongie, Zeynep Akata",
        "https://arxiv.org/abs/2603.12261",
    ),
    aha="Colour is three of the 64 numbers in a latent token: read it while the picture is still noise, or set it by adding one vector.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "delta_e_steered": Metric("CIEDE2000", "the steered region's mean colour against the wanted one", "lower"),
        "delta_e_unsteered": Metric("CIEDE2000", "the same region without steering"),
        "delta_e_recoloured": Metric("CIEDE2000", "the same region recoloured in the finished picture", "lower"),
        "shape_iou": Metric("overlap", "object found in the steered and in the unsteered picture", "higher"),
        "mask_iou": Metric("overlap", "attention mask and the object found in the unsteered picture", "higher"),
        "explained_variance_3": Metric("share", "variance of the 156 solid colours in the three directions", "higher"),
        "prediction_delta_e_at_20pct": Metric("CIEDE2000", "mean colour read at a fifth of the steps against the finished one", "lower"),
        "steps": Metric("count", "steps from noise to picture"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("object", "Paint one object", {}, 6),
        Preset("read", "Read an orange wall early", {"prompt": "an orange wall", "objects": "", "kind": "off", "steps": 50}, 6),
        Preset("wall", "Set the colour of everything", {"prompt": "a photo of a wall", "objects": "", "color": "#1f6fd0"}, 6),
        Preset("two-objects", "Two objects", {"prompt": "a circle and a square on a wall", "objects": "circle, square", "color": "#d0368f"}, 6),
        Preset("late", "Steer late", {"steps": 50, "steer_step": 45}, 8),
        Preset(
            "word-wins",
            "Where it fails: a colour word, too early",
            {"prompt": "a red circle on a wall", "color": "#1f6fd0", "steps": 50, "steer_step": 2},
            8,
            fails=True,
        ),
    ),
    exercise=(
        Step(
            "read",
            "Move along the steps: when has the average colour settled, and do the patches still flicker then?",
            "By a fifth of the steps. The noise of one token averages out as one over the square root of their number; the patches settle much later.",
        ),
        Step(
            "late",
            "Steer after step 2, 9, 25 and 45 to one colour. What happens to the colour, and to the texture?",
            "Around step 9 the colour follows and the picture is drawn anew around it. Late steering only tints: the blend moves from Type I to "
            "Type II, and nothing is left to correct.",
        ),
        Step(
            "word-wins",
            "The prompt says red, you want blue. Who wins after step 2, and after step 9? And without the word red?",
            "After step 2 the word pulls the colour back. After step 9 the latent wins. Without the word nothing pulls.",
        ),
    ),
    claims=(),
    cheap={"steps": 8, "guidance": 1.0},
    needs=("for FLUX.1-dev: a GPU with some 24 GB, its terms accepted on the hub, and HF_TOKEN on the host",),
)
