"""The code task: "Write a function to search for an item in a list." Candidates are Python source, run in the sandbox on 40 calls."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backends.contract import Context
from backends.runtime.sandbox import SHARED, Outcome
from backends.tai.candidates import Arrive, Candidates
from backends.tai.card import Params
from backends.tai.tasks import grammar
from backends.tai.tasks.grammar import Style

REQUEST = "Write a function to search for an item in a list."
ABSENT = {"None": "return None", "-1": "return -1", "an error": 'raise ValueError("not found")'}
AXES = ("what is returned", "when it is absent", "which match", "letter case")


@dataclass(frozen=True, slots=True)
class Intent:
    """One meaning of the request. returns: "index", "bool", "count" or "positions"; the next two matter for an index only."""

    returns: str
    absent: str = "None"
    last: bool = False
    folds: bool = False

    @property
    def name(self) -> str:
        """In words.

        >>> Intent("index", "-1", last=True).name
        'index of the last match, -1 when absent'
        """
        known = {"bool": "whether it is there", "count": "how often it is there", "positions": "positions of all matches"}
        words = known.get(self.returns, f"index of the {'last' if self.last else 'first'} match, {self.absent} when absent")
        return words + (", in any letter case" if self.folds else "")

    @property
    def values(self) -> tuple[int, int, int, int]:
        """Its place on each of ``AXES``."""
        return ("index", "bool", "count", "positions").index(self.returns), list(ABSENT).index(self.absent), int(self.last), int(self.folds)


INTENTS = tuple(
    [Intent("index", absent, last, folds) for absent, last, folds in itertools.product(ABSENT, (False, True), (False, True))]
    + [Intent(returns, folds=folds) for returns, folds in itertools.product(("bool", "count", "positions"), (False, True))]
)

STYLES = (
    Style("Which form of loop do you prefer?", ("for over positions", "for with enumerate", "while", "comprehension")),
    Style("Which names do you prefer?", ("items, target", "arr, x", "haystack, needle")),
    Style("Should the function have a docstring?", ("no docstring", "a docstring")),
    Style("Should the arguments have type hints?", ("no type hints", "type hints")),
)
NAMES = (("find", "items", "target"), ("search", "arr", "x"), ("find_item", "haystack", "needle"))

# Edge-case faults: what is wrong, the lines before the loop ({items}, {target}, {absent} are filled in). Each changes one or two of the
# 40 outcomes, so that its bar is short but not of zero length.
FAULTS = (
    ("fails on an empty list", "head = {items}[0]"),
    ("stops after ten items", "{items} = {items}[:10]"),
    ("takes an empty target for absent", "if not {target}:\n    {absent}"),
    ("takes a list of one item for empty", "if len({items}) < 2:\n    {absent}"),
    ("drops spaces around text", "{items} = [v.strip() if isinstance(v, str) else v for v in {items}]"),
    ("takes numbers of another type for different", "{items} = [v for v in {items} if type(v) is type({target})] if type({target}) is float else {items}"),
)

_ABC = list("abcdefghijklmnop")
# (items, target): ten calls whose target is absent, ten where it is there more than once, ten where only its other letter case is
# there (never first), ten where it is there once. Each fault meets one or two of them.
STRATA = ("absent", "repeated", "other case", "once")
PROBES: tuple[tuple[Sequence[object], object], ...] = (
    ([], "a"), (["a", "b"], "z"), ([4, 8, 15], 16), (["x", "y", "z"], "w"), ([3, 1, 2], 7),
    (["red", "green"], "blue"), ([10, 20], 5), (["k", "l", "m", "n"], "o"), ([1.5, 2.5], 3.5), (["up", "down"], "left"),
    (["a", "b", "c", "a", "a"], "a"), ([7, 3, 5, 3, 3], 3), (["b", "x", "y", "x"], "x"), ([1, 2, 9, 9, 9, 9], 9), (["to", "be", "or", "not", "to", "be"], "be"),
    ([5, 5, 5, 5], 5), (["q", "r", "s", "s", "s"], "s"), ([2, 4, 6, 8, 4], 4), (["no", "no", "yes", "no", "no"], "no"), ([0.5, 1.5, 2.5, 1.5, 1.5], 1.5),
    (["a", "B", "c"], "b"), (["x", "Y", "z", "Y"], "y"), (["one", "TWO", "three"], "two"), (["p", "q", "R"], "r"), (["Ann", "Bob", "BOB", "Cy"], "bob"),
    (["k", "m", "L", "L", "L"], "l"), (["north", "South", "east"], "SOUTH"), (["u", "V", "w"], "v"), (["g", "h", "i", "J"], "j"), (["d", "E", "e2", "E"], "e"),
    (["a", "b", "c", "d"], "c"), ([9, 8, 7, 6, 5], 5), (["solo"], "solo"), (_ABC, "l"), ([4, 3, 0], 0),
    (["", "a"], ""), ([1, 2, 3], 2.0), (["b", "c", " d"], " d"), ([30, 10, 20], 20), (["m", "n", "o"], "n"),
)  # fmt: skip
STRATUM = np.repeat(np.arange(len(STRATA)), 10)
CALLS = tuple(f"{items!r}, {target!r}" for items, target in PROBES)


def source(intent: Intent, style: Sequence[int], fault: int = -1) -> str:
    """The Python text of one candidate. style: an index into the labels of each of ``STYLES``; fault -1 is none."""
    loop, naming, documented, hinted = (int(v) for v in style)
    name, items, target = NAMES[naming]
    absent = {"bool": "return False", "count": "return 0", "positions": "return []"}.get(intent.returns, ABSENT[intent.absent])
    lines = [f'"""{intent.name.capitalize()}."""'] if documented else []
    if fault >= 0:
        lines += FAULTS[fault][1].format(items=items, target=target, absent=absent).splitlines()
    wanted = f"fold({target})" if intent.folds else target
    item = f"fold({'item' if loop in (1, 3) else items + '[i]'})" if intent.folds else "item" if loop in (1, 3) else f"{items}[i]"
    lines += _comprehension(intent, items, f"{item} == {wanted}", absent) if loop == 3 else _loop(intent, items, f"{item} == {wanted}", absent, loop)
    given = f"{items}: list, {target}: object" if hinted else f"{items}, {target}"
    gives = {"bool": "bool", "count": "int", "positions": "list[int]"}.get(intent.returns, "int | None" if intent.absent == "None" else "int")
    head = f"def {name}({given}){f' -> {gives}' if hinted else ''}:\n"
    fold = "def fold(value):\n    return value.lower() if isinstance(value, str) else value\n\n\n" if intent.folds else ""
    return fold + head + textwrap.indent("\n".join(lines), "    ") + "\n"


def _loop(intent: Intent, items: str, same: str, absent: str, loop: int) -> list[str]:
    keeps = intent.returns == "index" and intent.last
    before = {"count": ["count = 0"], "positions": ["found = []"]}.get(intent.returns, ["last = None"] if keeps else [])
    hit = {"bool": "return True", "count": "count += 1", "positions": "found.append(i)"}.get(intent.returns, "last = i" if keeps else "return i")
    after = {"count": ["return count"], "positions": ["return found"]}.get(intent.returns, [absent])
    if keeps:
        after = ["if last is None:", f"    {absent}", "return last"]
    head = [f"for i in range(len({items})):", f"for i, item in enumerate({items}):", f"while i < len({items}):"][loop]
    body = [head, f"    if {same}:", f"        {hit}"]
    return before + (["i = 0", *body, "    i += 1"] if loop == 2 else body) + after


def _comprehension(intent: Intent, items: str, same: str, absent: str) -> list[str]:
    found = f"[i for i, item in enumerate({items}) if {same}]"
    if intent.returns != "index":
        return [f"return {found}" if intent.returns == "positions" else f"return {'bool' if intent.returns == 'bool' else 'len'}({found})"]
    return [f"found = {found}", "if not found:", f"    {absent}", f"return found[{-1 if intent.last else 0}]"]


def readable(outcome: Outcome) -> str:
    """An outcome as it stands in a question: "Should f([], 1) give ...?".

    >>> readable(Outcome("value", "-1")), readable(Outcome("exception", "ValueError"))
    ('-1', 'an error (ValueError)')
    """
    words = {"exception": f"an error ({outcome.text})", "timeout": "no result in time", "memory": "no result, too much memory"}
    words |= {"value": outcome.text, "too-large": "a result too large to show", "killed": "no result, the process ended"}
    return words.get(outcome.kind, f"nothing: it {outcome}")


def questions(calls: Sequence[str]) -> list[tuple[str, str]]:
    """The open and the yes/no question about each call."""
    return [(f"For f({call}) which result do you expect?", f"Should f({call}) give {{outcome}}?") for call in calls]


def mismatch(codes: np.ndarray) -> np.ndarray:
    """Share of the probes with a different outcome: codes (N, P) -> D (N, N), a metric.

    >>> mismatch(np.array([[0, 1], [0, 2], [0, 1]])).tolist()
    [[0.0, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """
    rows, which = np.unique(codes, axis=0, return_inverse=True)  # candidates that do the same are compared once
    apart = (rows[:, None] != rows).mean(-1)
    return apart[np.ix_(which.ravel(), which.ravel())]


FEATURES = (
    *("gives True or False", "gives a list", "gives the first place", "gives the last place", "gives how often", "finds the other letter case"),
    *("gives None when absent", "gives -1 when absent", "raises when absent"),
)


def features(rows: Sequence[Sequence[str]]) -> np.ndarray:
    """(N, F) in the order of ``FEATURES``, shares of the calls of one stratum; rows: N times 40 readable outcomes."""
    texts = np.array(rows, dtype=str)
    absent, repeated, other = (np.equal(STRATUM, stratum) for stratum in range(3))
    places = [[i for i, item in enumerate(items) if item == target] for (items, target), here in zip(PROBES, repeated, strict=True) if here]
    missing = np.isin(texts[:, other], ["None", "-1", "False", "0", "[]"]) | np.char.startswith(texts[:, other], "an error")
    columns = [
        np.isin(texts, ["True", "False"]).mean(1),
        np.char.startswith(texts, "[").mean(1),
        *((texts[:, repeated] == [str(of(p)) for p in places]).mean(1) for of in (min, max, len)),
        1 - missing.mean(1),
        *((texts[:, absent] == word).mean(1) for word in ("None", "-1")),
        np.char.startswith(texts[:, absent], "an error").mean(1),
    ]
    return np.stack(columns, 1)


class CodeTask:
    """Python functions of 18 intents in 48 styles, some with an edge-case fault; each is executed on 40 calls."""

    redraws = True

    def __init__(self, *, seed: int, quirk_rate: float, prior_skew: float, check: Callable[[], None] = lambda: None) -> None:
        self.quirk_rate, self.check = quirk_rate, check
        self.prior = grammar.zipf(len(INTENTS), prior_skew, seed)
        SHARED.prepare()

    def draw(self, count: int, rng: np.random.Generator, arrive: Arrive = lambda done, caption: None) -> Candidates:
        drawn = grammar.draw(rng, count, self.prior, STYLES, self.quirk_rate, len(FAULTS))
        kinds = list(zip((INTENTS[i] for i in drawn.intents), drawn.styles, drawn.faults, strict=True))
        sources = [source(intent, style, fault) for intent, style, fault in kinds]
        captions = [intent.name + (f" ({FAULTS[fault][0]})" if fault >= 0 else "") for intent, _, fault in kinds]
        plain = [source(intent, (0,) * len(STYLES)) for intent in INTENTS]
        done = execute([*sources, *plain], self.check)
        forms = {text: {"kind": "source", "source": text} for text in sources}
        for number, caption in enumerate(captions, 1):
            arrive(number, caption)
        probes, codes = grammar.coded(questions(CALLS), done[:count])
        return Candidates(
            request=REQUEST,
            shown=tuple(forms[text] for text in sources),
            captions=tuple(captions),
            texts=tuple(sources),
            probes=probes,
            codes=codes,
            distance=mismatch(codes),
            resolution=1 / len(CALLS),
            nuisance=grammar.nuisances(STYLES, drawn.styles),
            features=features(done[:count]),
            feature_names=FEATURES,
            intents=drawn.intents,
            intent_names=tuple(intent.name for intent in INTENTS),
            quirk=drawn.faults >= 0,
            failed=np.zeros(count, dtype=bool),
            axis_coverage=grammar.coverage(np.array([i.values for i in INTENTS]), AXES, grammar.coded(questions(CALLS), done[count:])[1]),
            model=f"grammar of {len(INTENTS)} intents in 48 styles, Python source run in the sandbox",
            data=f"{len(CALLS)} calls, ten each: {', '.join(STRATA)}",
        )


_DONE: dict[str, tuple[str, ...]] = {}  # source of the grammar -> its outcomes; bounded by the grammar's 6,048 sources


def execute(sources: Sequence[str], check: Callable[[], None]) -> list[tuple[str, ...]]:
    """The readable outcomes of the grammar's sources on ``CALLS``, each source run once a process."""
    fresh = [text for text in dict.fromkeys(sources) if text not in _DONE]
    rows = SHARED.run(fresh, CALLS, check=check) if fresh else []
    found = {text: tuple(readable(outcome) for outcome in row) for text, row in zip(fresh, rows, strict=True)}
    # A source of the grammar always ends: a time limit that struck says something of this moment and is not kept.
    _DONE.update({text: row for (text, row), outcomes in zip(found.items(), rows, strict=True) if {o.kind for o in outcomes} <= {"value", "exception"}})
    return [found[text] if text in found else _DONE[text] for text in sources]


def open_task(params: Params, context: Context) -> CodeTask:
    """The task of these params."""
    return CodeTask(seed=params.seed, quirk_rate=params.quirk_rate, prior_skew=params.prior_skew, check=context.check)
