"""Dialogues of tai: the pool of questions, the choice, answers, contraction, undo, and the numbers of simulated ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from backends import tai
from backends.contract import InputError
from backends.tai import belief as beliefs
from backends.tai import benchmark, questions, separators
from backends.tai.candidates import Candidates, Nuisance, Probe, check
from backends.tai.dialogue import Dialogue, Rules
from backends.tai.draws import Draw, Geometry, Reply, analyse, redraw, select
from backends.tai.simulation import Person, hidden, is_right, person, play
from backends.tai.tasks.navigation import NavigationTask


def bits(intents: np.ndarray, n_bits: int) -> Candidates:
    """Candidates whose probes are the binary digits of their intent, with one matter of style; different intents differ by at least 1/n."""
    n = len(intents)
    digits = (intents[:, None] >> np.arange(n_bits)) & 1
    return Candidates(
        request="which number?",
        shown=tuple({"kind": "text", "text": str(i)} for i in intents),
        captions=tuple(f"number {i}" for i in intents),
        texts=tuple(f"number {i} {k}" for k, i in enumerate(intents)),
        probes=tuple(Probe(f"What is digit {b}?", f"Is digit {b} a {{outcome}}?", ("0", "1")) for b in range(n_bits)),
        codes=digits,
        distance=(digits[:, None] != digits).mean(2),
        resolution=0.01,
        nuisance=(Nuisance("Which colour?", ("red", "green"), np.arange(n) % 2),),
        features=digits.astype(float),
        feature_names=tuple(f"digit {b}" for b in range(n_bits)),
        intents=intents,
        intent_names=tuple(f"number {i}" for i in range(2**n_bits)),
        quirk=np.zeros(n, dtype=bool),
        failed=np.zeros(n, dtype=bool),
        axis_coverage={},
        model="digits",
        data="none",
    )


def draw_of(candidates: Candidates, **geometry: object) -> Draw:
    return analyse(candidates, Geometry(**geometry), np.random.default_rng(0))  # type: ignore[arg-type]


def digits(n_bits: int, copies: int = 4) -> Draw:
    return draw_of(bits(np.repeat(np.arange(2**n_bits), copies), n_bits))


@pytest.fixture(scope="module")
def task() -> NavigationTask:
    return NavigationTask(seed=0, quirk_rate=0.2, prior_skew=0.6)


@pytest.fixture(scope="module")
def routes(task: NavigationTask) -> Draw:
    return draw_of(task.draw(48, np.random.default_rng(1)))


def fresh_of(task: NavigationTask) -> Callable[[list[Reply], float, int], Draw]:
    return lambda replies, rate, number: draw_of(redraw(task, 48, replies, rate, np.random.default_rng(number)))


# -------------------------------------------------------------------------------------------------------- questions


def test_all_three_sources_are_in_the_pool(routes: Draw) -> None:
    look = Dialogue(routes, Rules()).look()
    assert {q.source for q in look.questions} == {"probe", "hyperplane", "style"}
    style = [bits for q, bits in zip(look.questions, look.teig, strict=True) if q.source == "style"]
    assert max(style) < 0.2 < max(look.teig)
    assert all(2 <= q.n_options <= questions.OPTIONS_LIMIT for q in look.questions)
    binary = Dialogue(routes, Rules(binary=True)).look()
    assert {q.n_options for q in binary.questions} == {2}


def test_no_two_questions_tell_the_same_and_none_is_constant(routes: Draw) -> None:
    asked = Dialogue(routes, Rules()).look().questions
    assert len({q.id for q in asked}) == len(asked), "an id of a link says which question was answered"
    answers = [tuple(q.answers.tolist()) for q in asked]
    assert all(len(set(row)) > 1 for row in answers)
    renamed = {tuple({a: i for i, a in enumerate(dict.fromkeys(row))}[a] for a in row) for row in answers}
    assert len(renamed) == len(answers)


def test_ids_are_of_the_content_alone(routes: Draw) -> None:
    first = {q.text: (q.id, q.option_ids) for q in Dialogue(routes, Rules(seed=1)).look().questions if q.source == "probe"}
    turned = select(routes.candidates, np.arange(48)[::-1])
    second = {q.text: (q.id, q.option_ids) for q in Dialogue(draw_of(turned), Rules(seed=2)).look().questions if q.source == "probe"}
    same = {text for text in first if first[text][1] and set(first[text][1]) == set(second.get(text, ("", ()))[1])}
    assert same
    assert all(len(set(ids)) == len(ids) for _, ids in first.values())


def test_a_question_is_answered_for_candidates_of_another_draw(task: NavigationTask, routes: Draw) -> None:
    other = task.draw(60, np.random.default_rng(7))
    for question in Dialogue(routes, Rules()).look().questions:
        assert np.array_equal(question.answers_of(routes.candidates), question.answers)
        answers = question.answers_of(other)
        assert answers.min() >= -1
        assert answers.max() < question.n_options
        if question.source == "probe" and not question.rest:
            outcomes = [other.probes[question.axis].outcomes[c] for c in other.codes[:, question.axis]]
            assert [question.options[a] if a >= 0 else None for a in answers] == [o if o in question.options else None for o in outcomes]


def test_rare_outcomes_share_the_last_button() -> None:
    found = replace(bits(np.arange(8), 3), probes=(Probe("Which?", "Is it {outcome}?", tuple("abcdefgh")),), codes=np.arange(8)[:, None])
    asked = [q for q in Dialogue(draw_of(found), Rules()).look().questions if q.source == "probe"]
    assert asked[0].options == ("a", "b", "c", "d", questions.OTHER)
    assert asked[0].answers.tolist() == [0, 1, 2, 3, 4, 4, 4, 4]
    assert len(asked) == 9  # and one yes/no version for each outcome


def test_hyperplanes_are_those_of_a_logistic_regression(routes: Draw) -> None:
    rng = np.random.default_rng(0)
    features, weights = rng.random((40, 5)), rng.dirichlet(np.ones(40))
    height = features @ rng.normal(size=(5, 3)) + 0.3 * rng.normal(size=(40, 3))
    sides = (height > np.median(height, axis=0)).T
    normals, offsets = separators.hyperplanes(features, weights, sides)
    for side, normal, offset in zip(sides, normals, offsets, strict=True):
        peer = LogisticRegression(C=1 / separators.RIDGE, tol=1e-10, max_iter=1000).fit(features, side, sample_weight=40 * weights)
        assert normal == pytest.approx(peer.coef_[0], abs=1e-4)
        assert offset == pytest.approx(peer.intercept_[0], abs=1e-4)


def test_every_edge_of_the_merge_tree_gives_a_bipartition() -> None:
    draw = digits(3, 1)
    sides = separators.bipartitions(separators.merge_tree(draw.labels, draw.merges, 8), np.full(8, 1 / 8))
    assert len(np.unique(sides ^ sides[:, :1], axis=0)) == len(sides)
    assert 7 <= len(sides) <= 7 + separators.UNIONS
    assert (np.abs(sides.mean(1) - 0.5) <= 1e-12).sum() >= 8  # unions of half the belief


# ---------------------------------------------------------------------------------------------------------- dialogue


@pytest.mark.parametrize("n_bits", [1, 3, 4])
def test_balanced_questions_need_log2_k_turns(n_bits: int) -> None:
    draw = digits(n_bits)
    assert draw.labels.max() + 1 == 2**n_bits
    for place in range(0, len(draw.labels), 7):
        led = Dialogue(draw, Rules(error_rate=0.0, binary=True))
        look = play(led, person(draw.candidates, place))
        assert len(led.turns) == n_bits
        assert is_right(led, look, person(draw.candidates, place))
        assert [turn.before for turn in led.turns] == pytest.approx(range(n_bits, 0, -1), abs=1e-6)


def test_the_intent_question_beats_the_question_of_style() -> None:
    """Two intents of 6 and 2; style halves each: EIG takes style, TEIG the intent."""
    found = bits(np.array([0] * 6 + [1] * 2), 1)
    draw = draw_of(found)
    by_teig, by_eig = (Dialogue(draw, Rules(error_rate=0.0, selector=s)).look() for s in ("teig", "eig"))
    assert by_teig.question is not None
    assert by_eig.question is not None
    assert (by_teig.question.source, by_eig.question.source) == ("probe", "style")
    style = by_eig.questions.index(by_eig.question)
    assert (by_eig.teig[style], by_eig.eig[style], by_eig.waste[style]) == pytest.approx((0.0, 1.0, 1.0), abs=1e-12)
    assert by_teig.teig.max() == pytest.approx(0.811278, abs=1e-6)


def mutual(joint: np.ndarray) -> float:
    """I(row; column) in bits by its definition, cell by cell."""
    rows, columns = joint.sum(1), joint.sum(0)
    return sum(p * math.log2(p / (rows[i] * columns[j])) for (i, j), p in np.ndenumerate(joint) if p > 0)


@pytest.mark.parametrize("seed", range(4))
def test_the_gains_in_a_dialogue_are_mutual_informations_cell_by_cell(seed: int, task: NavigationTask) -> None:
    """Unequal weights, candidates in no cluster, and answers that fit no option, which count as any of them."""
    rng = np.random.default_rng(seed)
    draw = draw_of(task.draw(20, rng))
    draw = replace(draw, labels=np.where(rng.random(20) < 0.2, -1, draw.labels), clustering="peer")
    led = Dialogue(draw, Rules(error_rate=0.15))
    led.weights = rng.dirichlet(np.ones(20))
    look = led.look()
    assert look.questions
    lost = replace(look.questions[0], answers=np.where(rng.random(20) < 0.3, -1, look.questions[0].answers))
    labels = look.partition.labels
    inside = np.flatnonzero(labels >= 0)
    share = led.weights[inside] / led.weights[inside].sum()
    for question, gain in zip([lost, *look.questions], led._scores([lost, *look.questions], labels)[0], strict=True):
        options = question.n_options
        by_candidate = np.empty((len(inside), options))
        for i, answer in enumerate(question.answers[inside]):
            for a in range(options):
                chance = 1 / options if answer < 0 else 0.85 if a == answer else 0.15 / (options - 1)
                by_candidate[i, a] = share[i] * chance
        by_cluster = np.stack([by_candidate[labels[inside] == k].sum(0) for k in range(labels.max() + 1)])
        assert gain == pytest.approx(mutual(by_cluster), abs=1e-9)
        if question is not lost:
            assert look.eig[look.questions.index(question)] == pytest.approx(mutual(by_candidate), abs=1e-9)


def test_a_long_question_has_its_price() -> None:
    """G = -TEIG + c cost, against a loop over the pool; c = 0 is TEIG alone, and a price never asks what tells nothing."""
    found = bits(np.repeat(np.arange(8), 4), 3)
    long = Probe("What is " + "very " * 60 + "exactly digit 0?", "Is digit 0 a {outcome}?", ("0", "1"))
    uneven = replace(found, probes=(long, *found.probes[1:]), codes=np.c_[found.codes[:, :1], found.codes[:, 1:] | (found.codes[:, :1] & 0)])
    draw = draw_of(uneven)
    for price in (0.0, 0.05, 0.5):
        look = Dialogue(draw, Rules(error_rate=0.0, cost=price)).look()
        assert look.question is not None
        values = {}
        for question, teig in zip(look.questions, look.teig, strict=True):
            characters = len(question.text) + sum(len(option) for option in question.options)
            values[question.id] = teig - price * (characters / 100 + len(question.options) - 2) if teig >= 0.02 else -math.inf
        assert values[look.question.id] == pytest.approx(max(values.values()), abs=1e-9)
        assert look.question.text != long.question or price == 0.0
        assert look.teig[look.questions.index(look.question)] >= 0.02


def test_one_meaning_asks_nothing() -> None:
    draw = draw_of(bits(np.zeros(8, dtype=int), 2))
    look = Dialogue(draw, Rules()).look()
    assert look.question is None
    assert "not ambiguous" in str(look.stop)


def test_an_asked_question_is_not_asked_again_and_not_sure_strikes_it() -> None:
    led = Dialogue(digits(3), Rules())
    asked = []
    for _ in range(3):
        look = led.look()
        assert look.question is not None
        asked.append(look.question.id)
        before = led.weights.copy()
        led.answer(look, look.question, "not-sure")
        assert led.weights == pytest.approx(before)
    assert len(set(asked)) == 3


def test_undo_is_to_play_the_answers_again() -> None:
    draw = digits(3)
    who = person(draw.candidates, 9, 0.3, 5)
    led = Dialogue(draw, Rules(error_rate=0.1))
    states = []
    for _ in range(4):
        look = led.look()
        assert look.question is not None
        states.append((look.question.id, led.weights.copy()))
        led.answer(look, look.question, who.reply(look.question, len(led.turns)))
    again = Dialogue(draw, Rules(error_rate=0.1))
    for (question_id, weights), reply in zip(states, led.replies, strict=True):
        look = again.look()
        assert np.array_equal(again.weights, weights)
        found = again.find(look, question_id)
        assert found is not None
        again.answer(look, found, reply.said)
    assert np.array_equal(again.weights, led.weights)


def test_contradictory_answers_are_reported_and_some_are_taken_for_wrong() -> None:
    draw = digits(2)
    led = Dialogue(draw, Rules(error_rate=0.0, most_turns=20, stop_at=0.99))
    look = led.look()
    digit = {q.text: q for q in look.questions}
    yes = digit["What is digit 0?"]
    led.answer(look, yes, yes.options.index("1"))
    both = [q for q in led.look().questions if q.source == "hyperplane" or "digit 0" in q.text]
    assert not both  # what is known is not asked again
    led.replies.append(Reply(yes, yes.options.index("1")))
    led._take(Reply(yes, yes.options.index("0")))
    assert led.error_rate == beliefs.FALL_BACK
    assert any("contradict" in note for note in led.notes)
    assert np.isfinite(led.weights).all()


def test_none_of_these_ends_where_nothing_else_can_be_made() -> None:
    led = Dialogue(digits(2), Rules(error_rate=0.05))
    look = led.look()
    assert look.question is not None
    led.answer(look, look.question, "none")
    assert led.outside == pytest.approx(0.95)
    assert "none of the meanings" in str(led.look().stop)


def test_few_candidates_left_are_replaced_by_fresh_ones_that_fit(task: NavigationTask, routes: Draw) -> None:
    who = person(routes.candidates, hidden(routes.candidates, 3))
    led = Dialogue(routes, Rules(error_rate=0.0, binary=True), fresh_of(task))
    look = play(led, who)
    assert led.draws > 1
    assert any(turn.fresh for turn in led.turns)
    assert is_right(led, look, who)
    fitting = [r for r in led.replies if isinstance(r.said, int)][: led._since]
    for reply in fitting:
        assert (reply.question.answers_of(led.draw.candidates) == reply.said).all()


def test_what_fits_no_candidate_cannot_be_drawn(task: NavigationTask, routes: Draw) -> None:
    question = next(q for q in Dialogue(routes, Rules()).look().questions if q.source == "probe" and not q.rest)
    impossible = [Reply(question, 0), Reply(question, 1)]
    with pytest.raises(InputError, match="answers"):
        redraw(task, 48, impossible, 0.0, np.random.default_rng(0))


def test_an_intent_ruled_out_wrongly_comes_back_only_if_errors_are_assumed() -> None:
    """Step three of the exercise: one wrong answer at assumed rate 0 is final; at 0.2 the rest outvotes it."""
    draw = digits(3)
    truth = 5 * 4
    for rate, recovers in ((0.0, False), (0.2, True)):
        led = Dialogue(draw, Rules(error_rate=rate, binary=True, most_turns=30))
        wrong_first = True
        while (look := led.look()).question is not None:
            reply = int(look.question.answers[truth])
            led.answer(look, look.question, 1 - reply if wrong_first else reply)
            wrong_first = False
        best = led.winner(look)[0]
        assert (draw.candidates.intents[best] == 5) == recovers  # type: ignore[index]


def test_noise_makes_dialogues_longer_by_its_price() -> None:
    """Eight intents: at least log2 8 / (1 - H2(.1)) = 5.65 questions on average, and most end right."""
    draw = digits(3, 6)
    turns, right = [], []
    for seed in range(40):
        who = person(draw.candidates, seed % 48, 0.1, seed)
        led = Dialogue(draw, Rules(error_rate=0.1, binary=True, most_turns=60, seed=seed))
        look = play(led, who)
        turns.append(len(led.turns))
        right.append(is_right(led, look, who))
    bound = 3 / (1 + 0.1 * math.log2(0.1) + 0.9 * math.log2(0.9))
    assert bound - 1.2 < np.mean(turns) < bound + 3
    assert np.mean(right) >= 0.85


def test_repeated_answers_are_equal_and_wrong_ones_come_at_their_rate() -> None:
    draw = digits(3)
    who = person(draw.candidates, 0, 0.3, 1)
    question = Dialogue(draw, Rules()).look().questions[0]
    replies = [who.reply(question, turn) for turn in range(400)]
    assert replies == [who.reply(question, turn) for turn in range(400)]
    assert 0.2 < np.mean(np.array(replies) != question.answers[0]) < 0.4
    assert Person(who.wish).reply(question, 0) == question.answers[0]


# --------------------------------------------------------------------------------------------------------- benchmark


def test_the_benchmark_orders_the_ways_to_ask(task: NavigationTask) -> None:
    conditions = {"clean": benchmark.Condition(0.0, 0.0)}
    played = list(benchmark.run(task, 48, Geometry(), Rules(binary=True), conditions, dialogues=8))
    assert len(played) == 8
    rows = {name: benchmark.summary(found) for name, found in played[-1]["clean"].items()}
    assert set(rows) == set(benchmark.STRATEGIES)
    assert rows["teig"]["turns"] < rows["eig"]["turns"]
    assert rows["teig"]["turns"] < rows["random"]["turns"]
    assert rows["teig"]["style"] < rows["eig"]["style"]
    assert rows["teig"]["right"] == 1.0
    assert rows["teig"]["turns_low"] <= rows["teig"]["turns"] <= rows["teig"]["turns_high"]


def test_peers_group_by_their_own_rules(routes: Draw) -> None:
    k = int(routes.labels.max()) + 1
    means, density, fixed = (benchmark.regrouped(routes, name, 0) for name in ("k-means", "hdbscan", "fixed cut"))
    assert means.labels.max() + 1 == k
    assert density.labels.min() >= -1
    assert 2 <= density.labels.max() + 1 <= len(routes.labels) // 2  # of two candidates at least
    assert np.array_equal(fixed.labels, tai.clusters(routes.distance, 0.3))
    trap = draw_of(bits(np.repeat(np.arange(4), 3), 2))
    assert (benchmark.regrouped(trap, "fixed cut", 0).labels.max(), trap.labels.max()) == (3, 3)
    coarse = replace(trap, distance=trap.distance / 2, deaths=trap.deaths / 2)
    assert benchmark.regrouped(coarse, "fixed cut", 0).labels.max() == 0  # one rule for all scales fails at another


def test_what_leads_no_dialogue_is_refused() -> None:
    found = bits(np.arange(8), 3)
    with pytest.raises(InputError, match="at least 4"):
        check(select(found, np.arange(3)))
    with pytest.raises(InputError, match="every candidate fails"):
        check(replace(found, failed=np.ones(8, dtype=bool)))
    with pytest.raises(InputError, match="2,001 characters"):
        check(replace(found, request="x" * 2001))


def test_public_functions_are_named() -> None:
    assert set(tai.__all__) >= {"barcode", "cut", "clusters", "teig", "eig", "update"}
