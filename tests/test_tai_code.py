"""The two tasks of tai whose candidates are code: the grammar's and the person's own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from backends.contract import InputError, Stopped
from backends.runtime import endpoints
from backends.runtime.sandbox import SHARED, Limits
from backends.tai.candidates import Candidates
from backends.tai.tasks import code, own
from tests.chat_server import ChatServer

PASTED = """
def f(xs):
    return sorted(xs)[len(xs) // 2]

def f(xs):
    return xs[len(xs) // 2]

def f(xs):
    while True:
        pass

def f(xs):
    return open("/etc/passwd").read()
"""


def drawn(count: int = 48, seed: int = 0, quirk_rate: float = 0.2) -> Candidates:
    return code.CodeTask(seed=seed, quirk_rate=quirk_rate, prior_skew=0.6).draw(count, np.random.default_rng([seed, 1]))


def prints(sources: list[str]) -> list[tuple[str, ...]]:
    return code.execute(sources, lambda: None)


def plain() -> list[tuple[str, ...]]:
    return prints([code.source(intent, (0, 0, 0, 0)) for intent in code.INTENTS])


def test_there_are_18_intents_in_48_styles_and_40_calls() -> None:
    sources = {code.source(i, s) for i in code.INTENTS for s in itertools.product(*(range(len(style.labels)) for style in code.STYLES))}
    assert (len(set(code.INTENTS)), len(sources), len(set(code.CALLS))) == (18, 18 * 48, 40)


@pytest.mark.parametrize("loop", range(4))
def test_style_changes_nothing_of_what_a_function_does(loop: int) -> None:
    sources = [code.source(intent, (loop, k % 3, k % 2, (k // 2) % 2)) for k, intent in enumerate(code.INTENTS)]
    assert prints(sources) == plain()


def test_intents_do_what_their_names_say() -> None:
    done = dict(zip((intent.name for intent in code.INTENTS), plain(), strict=True))
    for number, (items, target) in enumerate(code.PROBES):
        places = [i for i, item in enumerate(items) if item == target]
        lower = [item.lower() if isinstance(item, str) else item for item in (*items, target)]
        folded = [i for i, item in enumerate(lower[:-1]) if item == lower[-1]]
        assert done["index of the first match, -1 when absent"][number] == str(min(places, default=-1))
        assert done["index of the last match, None when absent"][number] == str(max(places, default=None))
        assert done["index of the first match, an error when absent, in any letter case"][number] == (str(folded[0]) if folded else "an error (ValueError)")
        assert done["whether it is there"][number] == str(bool(places))
        assert done["how often it is there, in any letter case"][number] == str(len(folded))
        assert done["positions of all matches"][number] == str(places)


def test_every_axis_shows_in_at_least_15_percent_of_the_calls() -> None:
    assert drawn().axis_coverage.keys() == set(code.AXES)
    assert min(drawn().axis_coverage.values()) >= 0.15


def test_intents_lie_well_apart_and_faults_close_by() -> None:
    """The separability of section 4.4: faults below, intents above d_min = 0.10, and a ratio of at least 3 between them."""
    between = code.mismatch(code.grammar.coded(code.questions(code.CALLS), plain())[1])[np.triu_indices(18, 1)].min()
    changed = []
    for intent, right in zip(code.INTENTS, plain(), strict=True):
        for row in prints([code.source(intent, (1, 0, 0, 0), fault) for fault in range(len(code.FAULTS))]):
            changed.append(sum(a != b for a, b in zip(row, right, strict=True)))
    assert between == 0.25
    assert min(changed) >= 1  # each fault shows
    assert max(changed) / 40 * 3 <= between


def test_a_draw_is_repeatable_and_counts_what_differs() -> None:
    first, again, other = drawn(), drawn(), drawn(seed=1)
    assert first.texts == again.texts != other.texts
    assert np.array_equal(first.codes, again.codes)
    naive = [[np.mean([x != y for x, y in zip(a, b, strict=True)]) for b in first.codes] for a in first.codes]
    assert np.allclose(first.distance, naive, atol=0)
    assert first.codes.shape == (48, 40)
    assert 0 < first.quirk.mean() < 0.5
    assert not first.failed.any()
    assert first.intents is not None
    same = first.intents[:, None] == first.intents
    faultless = ~first.quirk[:, None] & ~first.quirk
    assert (first.distance[same & faultless] == 0).all()
    assert (first.distance[~same & faultless] >= 0.25).all()


def test_candidates_are_executed_and_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar whose source is broken gives broken behaviour."""
    real = code.source
    monkeypatch.setattr(code, "source", lambda intent, style, fault=-1: real(intent, style, fault).replace("return", "return 7 #"))
    values = {text for probe in drawn().probes for text in probe.outcomes}
    assert "7" in values
    assert "True" not in values


def test_features_read_the_behaviour() -> None:
    found = dict(zip((i.name for i in code.INTENTS), code.features(plain()), strict=True))
    names = code.FEATURES
    assert dict(zip(names, found["whether it is there"], strict=True)) == dict.fromkeys(names, 0.0) | {"gives True or False": 1.0}
    last = dict(zip(names, found["index of the last match, -1 when absent, in any letter case"], strict=True))
    assert (last["gives the last place"], last["finds the other letter case"], last["gives -1 when absent"], last["gives a list"]) == (1, 1, 1, 0)


def test_arrivals_are_told_and_may_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    task = code.CodeTask(seed=0, quirk_rate=0.2, prior_skew=0.6)
    task.draw(5, np.random.default_rng(0), lambda done, caption: told.append(done))
    assert told == [1, 2, 3, 4, 5]

    def stop() -> None:
        raise Stopped

    monkeypatch.setattr(code, "_DONE", {})
    with pytest.raises(Stopped):
        code.CodeTask(seed=0, quirk_rate=0.2, prior_skew=0.6, check=stop).draw(5, np.random.default_rng(0))


def own_task(sources: str = PASTED, probes: str = "f([3, 1, 2])\n[9, 1, 1]\nf([])", **more: Any) -> Candidates:
    given = {"request": "The middle value.", "sampler": own.GrammarSampler()} | more
    return own.OwnTask(probes=probes, sources=sources, **given).draw(48, np.random.default_rng(0))


def test_own_functions_run_on_own_calls_and_failures_stay_in_sight() -> None:
    found = own_task()
    assert found.probes[0].question == "For f([3, 1, 2]) which result do you expect?"
    table = [[probe.outcomes[code] for probe, code in zip(found.probes, row, strict=True)] for row in found.codes]
    assert table == [
        ["2", "1", "an error (IndexError)"],
        ["1", "1", "an error (IndexError)"],
        ["no result in time"] * 3,
        ["nothing: it may not use open (line 2)"] * 3,
    ]
    assert found.failed.tolist() == [False, False, True, True]
    assert found.distance[0].round(3).tolist() == [0, 0.333, 1, 1]
    assert found.notes[1] == "function 4 fails on every call: may not use open (line 2)"
    assert found.intents is None
    assert [n.labels[n.codes[2]] for n in found.nuisance] == ["while", "no docstring", "no type hints"]
    assert len(found.feature_names) == found.features.shape[1]


def test_features_of_own_functions_name_the_kind_of_result() -> None:
    results = ["None", "True", "-3", "2.5e-7", "float('nan')", "'a'", "[1]", "{1: 2}", "set()", "(1j, 2j)", "1 - 2j"]
    found = own_task("\n".join(f"def f(x):\n    return {r}" for r in results), "f(1)")
    assert (found.features[:, :6].sum(1) == 1).all()
    kinds = [found.feature_names[int(row[:6].argmax())] for row in found.features]
    number, collection = "gives a number", "gives a collection"
    assert kinds == ["gives None", "gives True or False", *[number] * 3, "gives text", *[collection] * 4, number]


BAD = {
    "too few functions": ({"sources": "def f(x): return 1\ndef f(x): return 2"}, "candidate_sources", "there are 2 functions"),
    "too many functions": ({"sources": "def f(x): return 1\n" * 41}, "candidate_sources", "there are 41 functions"),
    "all fail": ({"sources": "def f(x): return y\n" * 4}, "candidate_sources", "no function gives a result; the first one: raises NameError"),
    "no function and no model": ({"sources": " "}, "candidate_sources", "no function was given"),
    "no call": ({"probes": "\n"}, "probes", "there are 0 calls"),
    "too many calls": ({"probes": "f(1)\n" * 61}, "probes", "there are 61 calls"),
    "a call that computes": ({"probes": "f(1)\nf(print(1))"}, "probes", "print(1): it holds more than plain values"),
    "a call that is not one": ({"probes": "1) + f(2"}, "probes", "it is not a list of arguments"),
    "no request": ({"request": " "}, "request", "the request has 0 characters"),
    "a long request": ({"request": "a" * 2001}, "request", "the request has 2,001 characters"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_its_field(name: str) -> None:
    given, field, problem = BAD[name]
    with pytest.raises(InputError) as error:
        own_task(**given)
    assert error.value.field == field
    assert problem in error.value.problem


def test_pasted_text_is_split_into_functions() -> None:
    helper = "def g(x):\n    return x\n\ndef f(x):\n    return g(x)"
    assert own.split_sources(f"{helper}\n---\n{helper}\n# ---\n\n") == [helper, helper]
    decorated = "import math\n\n@cache\ndef f(x):\n    return (\n        1,\n)\n# the other\nclass A:\n    pass\ndef f(x):\n    return 2\n"
    assert own.split_sources(decorated) == [
        "import math\n\n@cache\ndef f(x):\n    return (\n        1,\n)",
        "import math\n# the other\nclass A:\n    pass\ndef f(x):\n    return 2",
    ]
    assert own.split_sources(" \n") == []


def test_the_grammar_writes_for_its_request_only() -> None:
    found = own.OwnTask(request=code.REQUEST, probes="[1, 2], 2", sources="", sampler=own.GrammarSampler()).draw(6, np.random.default_rng(0))
    assert len(found) == 6
    assert found.model == "grammar of the code task"


@pytest.mark.parametrize("key", [None, "of-the-visitor"])
def test_an_endpoint_writes_the_functions(chat_server: ChatServer, key: str | None) -> None:
    chat_server.answer = lambda body: f"Sure:\n```python\ndef f(x):\n    return x + {body['seed'] % 2}\n```"
    sampler = own.host_sampler(None, "cpu", key)  # type: ignore[arg-type] - an endpoint needs no models
    found = own_task("", "f(1)\nf(5)", sampler=sampler)
    assert len(found) == len(chat_server.asked) == 48
    assert {probe.outcomes for probe in found.probes} == {("1", "2"), ("5", "6")}
    assert {asked["path"] for asked in chat_server.asked} == {"/v1/chat/completions"}
    assert {asked["key"] for asked in chat_server.asked} == {f"Bearer {key or 'none'}"}  # never the host's token of the hub
    prompts = {asked["messages"][0]["content"] for asked in chat_server.asked}
    assert prompts == {own.prompt("The middle value.", ["1", "5"])}
    seeds = sorted(asked["seed"] for asked in chat_server.asked)
    assert seeds == list(range(seeds[0], seeds[0] + 48))
    assert found.model == "m at the endpoint coder"
    assert [f"return x + {seeds[0] % 2}" in source for source in found.texts] == [True, False] * 24  # in the order of the prompts


def test_without_endpoints_the_grammar_writes_and_a_hub_name_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(endpoints.VARIABLE, raising=False)
    assert own.host_sampler(None, "cpu") == own.GrammarSampler()  # type: ignore[arg-type] - no model is asked for
    monkeypatch.setenv(endpoints.VARIABLE, '{"coder": {"model": "organisation/coder"}}')
    assert own.host_sampler(None, "cpu") == own.TransformersSampler("organisation/coder", None, "cpu")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_model_on_this_host_writes_functions() -> None:
    from backends.runtime.models import Models

    sampler = own.TransformersSampler("bundled:smollm2-135m-instruct", Models(lambda _: None, lambda: None), "cpu")
    first, second = sampler.sample("Add one to a number.", ["1"], 2, np.random.default_rng(0), lambda: None)
    assert first != second
    assert "def f(" in first + second


def test_the_limits_of_the_sandbox_fit_the_task() -> None:
    """Forty endless functions must be answered within the request's time, not within forty times forty limits."""
    assert Limits().request_s <= 10
    rows = SHARED.run(["def f(x):\n    while True: pass"] * 3, ["1"] * 5, limits=Limits(request_s=0.5))
    assert {outcome.kind for row in rows for outcome in row} == {"timeout"}
