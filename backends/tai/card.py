"""The card of tai: what is said of it without running it, and the params it takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from backends import contract
from backends.contract import Card, Metric, Paper, Preset, Step, Weight, in_group

ANSWERS_LIMIT = 60
DRAWN_BY = ("task", "seed", "candidates", "quirk_rate", "prior_skew", "request", "probes", "candidate_sources")  # what a draw depends on
# What decides which questions there are: answers to other questions than these mean nothing.
ASKS_ANEW = [*DRAWN_BY, "threshold", "options", "text_weight"]
TEXT_LIMIT = 16  # sentences; the model is slow
EXAMPLE_REQUEST = "Write a function that gives the middle value of a list."
EXAMPLE_PROBES = """
f([3, 1, 2])
f([4, 1, 3, 2])
f([9, 1, 1])
f([5])
f([])
f([2, 10])
f([1, 1, 1, 9])
f([7, 8, 1, 3, 2])
f([8, 2, 9, 4])
f([6, 0, 5])
""".strip()
EXAMPLE_SOURCES = """
def f(xs):
    return sorted(xs)[len(xs) // 2]

def f(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]

def f(xs):
    return sorted(xs)[(len(xs) - 1) // 2]

def f(items):
    items = sorted(items)
    middle = (len(items) - 1) // 2
    return items[middle]

def f(xs):
    s = sorted(xs)
    n = len(s)
    if n == 0:
        return None
    return (s[(n - 1) // 2] + s[n // 2]) / 2

def f(numbers):
    if not numbers:
        return None
    numbers = sorted(numbers)
    half = len(numbers) // 2
    if len(numbers) % 2:
        return numbers[half] / 1
    return (numbers[half - 1] + numbers[half]) / 2

def f(xs):
    return xs[len(xs) // 2]

def f(values):
    position = len(values) // 2
    return values[position]

def f(xs):
    return sum(xs) / len(xs) if xs else None

def f(xs):
    total = 0
    for x in xs:
        total += x
    return total / len(xs) if xs else None
""".strip()

_Id = Annotated[str, Field(min_length=1, max_length=64)]
_Answer = Annotated[list[_Id], Field(min_length=2, max_length=2)]
_Cut = Annotated[float, Field(ge=0, le=1)]


class Params(contract.Params):
    """Params of one dialogue, or of a benchmark of forty."""

    task: Literal["code", "visualisation", "navigation", "own", "text"] = Field(
        "code",
        description="What is asked for: a program, a chart, a route, your own program, or a sentence of a language model",
        json_schema_extra=in_group("Request", advanced=False),
    )
    answerer: Literal["me", "simulated"] = Field(
        "me", title="Who answers", description="You, or a simulated person with a hidden wish", json_schema_extra=in_group("Dialogue", advanced=False)
    )
    selector: Literal["teig", "eig", "random"] = Field(
        "teig",
        title="Next question by",
        description="TEIG: bits about the intent. EIG: bits about the candidate. Random: any question",
        json_schema_extra=in_group("Dialogue", advanced=False),
    )
    candidates: int = Field(
        48,
        ge=4,
        le=400,
        description=f"Solutions that are drawn and executed; the text task draws {TEXT_LIMIT} at most",
        json_schema_extra=in_group("Request", slider=[12, 96]),
    )
    quirk_rate: float = Field(
        0.2,
        ge=0,
        le=0.5,
        description="Share of the candidates with a fault at the edge, in the generated tasks",
        json_schema_extra=in_group("Request", unit="share"),
    )
    prior_skew: float = Field(
        0.6,
        ge=0,
        le=1.5,
        description="How unequal the intents are in the generated tasks: rank to the power of minus this",
        json_schema_extra=in_group("Request"),
    )
    threshold: _Cut | Literal["ratio", "absolute", "bootstrap"] = Field(
        "ratio",
        description="Where the barcode is cut: at the largest ratio of neighbouring bars, the largest gap, what resampling would change, or a value",
        json_schema_extra=in_group("Homology", live=True),
    )
    text_weight: float = Field(
        0.0,
        title="Weight of the text α",
        ge=0,
        le=1,
        description="Share of the distance between the texts in place of behaviour",
        json_schema_extra=in_group("Homology"),
    )
    error_rate: float = Field(
        0.05,
        title="Assumed wrong answers",
        ge=0,
        le=0.4,
        description="Share of answers that the lab takes to be wrong",
        json_schema_extra=in_group("Dialogue", unit="share"),
    )
    cost: float = Field(
        0.0,
        title="Cost of a long question c",
        ge=0,
        le=0.5,
        description="Bits that a question picked by TEIG must give more for each hundred characters, and for each option beyond two",
        json_schema_extra=in_group("Dialogue", unit="bits"),
    )
    options: Literal["binary", "multi"] = Field(
        "multi", title="Kind of question", description="Yes or no, or several results to choose from", json_schema_extra=in_group("Dialogue")
    )
    stop_at: float = Field(
        0.95, ge=0.8, le=0.99, description="Belief in one intent at which the dialogue ends", json_schema_extra=in_group("Dialogue", unit="probability")
    )
    true_error_rate: float = Field(
        0.0,
        title="Wrong answers of the simulated person",
        ge=0,
        le=0.4,
        description="Share of answers that the simulated person gets wrong",
        json_schema_extra=in_group("Dialogue", unit="share"),
    )
    mode: Literal["dialogue", "benchmark"] = Field(
        "dialogue", description="One dialogue, or forty simulated ones for each way to choose questions", json_schema_extra=in_group("Dialogue")
    )
    request: str = Field(
        "",
        max_length=2000,
        description="The request in words, in the text task and in your own; empty takes an example",
        json_schema_extra=in_group("Your own task", lines=2, private=True),
    )
    probes: str = Field(
        EXAMPLE_PROBES,
        max_length=4000,
        description="Calls that every function of your own task is tried with, one a line",
        json_schema_extra=in_group("Your own task", lines=4, private=True),
    )
    candidate_sources: str = Field(
        EXAMPLE_SOURCES,
        max_length=40_000,
        description="4 to 40 Python functions for your own task, one below the other; empty asks the host's language model, where it has one",
        json_schema_extra=in_group("Your own task", lines=8, private=True),
    )
    answers: list[_Answer] = Field(
        [],
        max_length=ANSWERS_LIMIT,
        description="What has been answered: pairs of question id and option id, not-sure or none",
        json_schema_extra=in_group("Dialogue", cleared_by=ASKS_ANEW),
    )

    @field_validator("probes", "candidate_sources", mode="before")
    @classmethod
    def _join(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return "\n".join(value)
        return value


def weight(params: Params) -> Weight:
    """A dialogue answers at once; forty of them, or a language model, queue."""
    return "cpu" if params.mode == "benchmark" or params.task == "text" else "light"


_HOW = r"""
An ambiguous request is a **cloud of candidate solutions**. Each candidate is executed, and two lie as far apart as their behaviour differs.
The Vietoris-Rips filtration of these distances joins candidates as the scale $\varepsilon$ grows; each joining ends one bar of the barcode. Bars
of style and small faults are short, bars between intents are long. The cut lies at the largest ratio of neighbouring bars, and what is connected
below it is an **intent** $C_k$ with belief $b_k=\sum_{i\in C_k}w_i$.

Questions come from three sources: what should happen for one of the inputs, on which side of a separating hyperplane the wish lies, and matters
of style. For each the gain is computed twice, about the intent and about the candidate:

$$\mathrm{TEIG}(q)=I(K;Y_q),\qquad \mathrm{EIG}(q)=I(i;Y_q)=\mathrm{TEIG}(q)+\sum_k b_k\,I(i;Y_q\mid i\in C_k).$$

The last term is **waste**: bits on what does not matter. Asked is what has the least $G(q)=-\mathrm{TEIG}(q)+c\cdot\mathrm{cost}(q)$, where a long
question with many options costs more; $c$ is 0 unless you set it. An answer is wrong with an assumed probability $\varepsilon_u$. Each candidate's weight is
multiplied by $P(y\mid i)$, and the beliefs are summed anew. Where few candidates are left, fresh ones that fit all answers are drawn. The dialogue ends
when one intent has the wanted belief, when no question gives 0.02 bit, or after 12 turns.

With balanced questions $\lceil\log_2K\rceil$ yes/no answers are enough; wrong answers raise this to at least $\log_2K/(1-H_2(\varepsilon_u))$.
"""

_RECONSTRUCTED = (
    "Only the abstract of the paper was public: persistent homology finds the intents, questions separate them, expected information gain over intents picks, "
    "and about log K turns suffice. Reconstructed here: the filtration and the distances, the ratio rule, the three sources of questions, the noise in the "
    "likelihood, fresh draws, the stopping rules, and all three generated tasks. The cut is found once a draw and kept while candidates drop out. Random "
    "questions do better here than in an earlier trial of this recipe (6 for 12 without errors, 18 for 24 with a tenth of wrong answers), since what tells "
    "nothing any more leaves the pool and hyperplanes halve the belief; TEIG and EIG agree with it. The paper's own figures are unknown, so none is shown."
)

CARD = Card(
    slug="tai",
    title="Clarifying questions from topology",
    theme="agents",
    paper=Paper(
        "Topological Active Inference for Task Disambiguation",
        "Yangbo Wei, Zhen Huang, Shaoqiang Lu, Junhong Qian, Chen Wu, Lei He",
        "https://icml.cc/virtual/2026/poster/62802",
    ),
    aha="Ask about what the program does and not how it is written: the islands in a cloud of solutions are the meanings, and each good question halves them.",
    how=_HOW.strip(),
    reconstructed=_RECONSTRUCTED,
    metrics={
        "clusters": Metric("count", "persistent clusters in the first draw: the meanings that were found"),
        "true_intents": Metric("count", "intents among the candidates of the first draw, where they are known"),
        "partition_recovered": Metric("yes or no", "the clusters of the first draw are exactly the intents"),
        "turns": Metric("questions", "questions answered", "lower"),
        "entropy_bits": Metric("bits", "uncertainty about the intent now", "lower"),
        "winner_belief": Metric("probability", "belief in the leading intent", "higher"),
        "right": Metric("yes or no, or share", "the solution has the hidden intent; in the benchmark, the share of right TEIG dialogues", "higher"),
        "teig_turns_mean": Metric("questions", "mean questions by TEIG in the benchmark", "lower"),
        "eig_turns_mean": Metric("questions", "mean questions by EIG in the benchmark", "lower"),
        "random_turns_mean": Metric("questions", "mean random questions in the benchmark", "lower"),
        "seconds": Metric("s", "wall time of the run", "lower", "measured"),
    },
    presets=(
        Preset("code", "Search a list", {}, 1),
        Preset("chart", "Show me the electricity", {"task": "visualisation"}, 1),
        Preset("route", "Take me to the shop", {"task": "navigation"}, 1),
        Preset("text", "A sentence of a language model", {"task": "text"}, 20),
        Preset("own", "Your own functions", {"task": "own"}, 1),
        Preset("by-teig", "Simulated person, questions by TEIG", {"answerer": "simulated", "options": "binary"}, 1),
        Preset("by-eig", "Simulated person, questions by EIG", {"answerer": "simulated", "options": "binary", "selector": "eig"}, 1),
        Preset("by-text", "Distance of the texts", {"answerer": "simulated", "options": "binary", "text_weight": 1.0}, 1, fails=True),
        Preset(
            "wrong-answers",
            "Where it fails: wrong answers, none assumed",
            {"answerer": "simulated", "options": "binary", "true_error_rate": 0.2, "error_rate": 0.0},
            1,
            fails=True,
        ),
        Preset("coarse", "Where it fails: the largest gap", {"answerer": "simulated", "threshold": "absolute"}, 1, fails=True),
        Preset("benchmark", "Forty dialogues, 10 % wrong answers", {"mode": "benchmark", "options": "binary", "true_error_rate": 0.1, "error_rate": 0.1}, 13),
    ),
    exercise=(
        Step(
            "by-eig",
            "Let EIG ask, then TEIG. How many questions were about style, and why does EIG like them?",
            "Of EIG's 9 questions 6 were about style, of TEIG's 4 none. EIG counts a bit about the candidate as much as one about the intent: "
            "a question that halves every intent looks as good as can be, and nearly all of it is waste.",
        ),
        Step(
            "by-text",
            "The distance is now that of the texts. How many meanings are found, and which distance knows what the program does?",
            "48, one for each function, and 12 questions are too few: in text, the nearest other function most often shares the names and the loop, seldom the "
            "intent. The distance of what they return finds the 17 intents.",
        ),
        Step(
            "wrong-answers",
            "A fifth of the answers is wrong and the lab assumes none. What happens to the right intent? Set the assumed rate to 0.2: what is the price?",
            "One wrong answer rules it out for good: 4 questions, a wrong solution. With 0.2 it comes back, but an answer is worth only $1-H_2(0.2)=0.28$ bit: "
            "12 questions.",
        ),
    ),
    claims=(),
    cheap={"task": "visualisation", "candidates": 12, "answerer": "simulated", "options": "binary"},
)
