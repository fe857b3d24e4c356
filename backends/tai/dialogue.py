"""The dialogue: pick the question that splits the belief over intents best, take the answer, and contract (section 4 of the card)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from backends.contract import InputError
from backends.tai import belief as beliefs
from backends.tai.draws import Draw, Reply
from backends.tai.information import entropy, scores, waste
from backends.tai.pool import Pool
from backends.tai.questions import Partition, Question

Selector = Literal["teig", "eig", "random"]
LEAST_BITS = 0.02
MOST_TURNS = 12
TIE = 1e-9  # bits; smaller differences are rounding
RANDOM_STREAM = 21
UNLIKELY = 0.5  # P(reply | cluster) below which the reply speaks against a cluster


@dataclass(frozen=True, slots=True)
class Rules:
    """How a dialogue is led. error_rate: assumed share of wrong answers. binary: yes/no questions only. seed: of ties and random picks.

    cost: bits that TEIG pays for a unit of ``Question.cost``.
    """

    error_rate: float = 0.05
    selector: Selector = "teig"
    binary: bool = False
    stop_at: float = 0.95
    most_turns: int = MOST_TURNS
    seed: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class Look:
    """What stands now, before the next question.

    living (N,) bool; partition of the living candidates; belief (K,), whose sum falls short of 1 by what is outside or no longer
    alive; questions (Q) with teig, eig and waste (Q,) in bits; stop: why the dialogue ends here, or None.
    """

    living: np.ndarray
    partition: Partition
    belief: np.ndarray
    questions: tuple[Question, ...]
    teig: np.ndarray
    eig: np.ndarray
    stop: str | None
    chosen: int | None

    @cached_property
    def waste(self) -> np.ndarray:
        return waste(self.teig, self.eig)

    @property
    def entropy(self) -> float:
        """H(b) of the normalised belief, in bits."""
        return float(entropy(self.belief / self.belief.sum())) if self.belief.sum() > 0 else 0.0

    @property
    def question(self) -> Question | None:
        return None if self.chosen is None else self.questions[self.chosen]


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: the reply, the entropies before and after it, what the question promised, and how many meanings it spoke against."""

    reply: Reply
    before: float
    after: float
    teig: float
    eig: float
    style_bits: float | None  # mean TEIG of the style questions that could have been asked
    against: int
    meanings: int
    fresh: bool  # a new draw followed


@dataclass(eq=False)
class Dialogue:
    """A dialogue over one draw after another. ``fresh``: makes a draw that fits the replies, or None where the task cannot. ``shared``: the
    draw's pool, where other dialogues over it have made one.

    The state is rebuilt from the replies alone, so that undo is to play them again without the last one.
    """

    draw: Draw
    rules: Rules
    fresh: Callable[[list[Reply], float, int], Draw] | None = None
    shared: InitVar[Pool | None] = None
    replies: list[Reply] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outside: float = 0.0  # mass of "none of the candidates"
    draws: int = 1
    pool: Pool = field(init=False)
    weights: np.ndarray = field(init=False)
    error_rate: float = field(init=False)
    struck: set[str] = field(default_factory=set)
    _since: int = 0  # replies that the current draw already fits

    def __post_init__(self, shared: Pool | None) -> None:
        self.pool = shared or Pool(self.draw, self.rules.binary)
        self.weights = np.full(len(self.draw.candidates), 1 / len(self.draw.candidates))
        self.error_rate = self.rules.error_rate

    def look(self) -> Look:
        """Clusters, belief, questions and the choice among them, as they stand."""
        living = beliefs.alive(self.weights)
        partition = self.pool.partition(living)
        mass = beliefs.belief(self.weights, partition.labels) * (1 - self.outside)
        stop = self._stop(mass)
        if stop is not None:
            return Look(living, partition, mass, (), np.zeros(0), np.zeros(0), stop, None)
        questions = self.pool.questions(self.weights, living, self.struck)
        about_intent, about_candidate = self._scores(questions, partition.labels)
        if not questions or about_intent.max() < LEAST_BITS:
            return Look(living, partition, mass, tuple(questions), about_intent, about_candidate, "no question tells the meanings apart any more", None)
        look = Look(living, partition, mass, tuple(questions), about_intent, about_candidate, None, None)
        return Look(living, partition, mass, look.questions, about_intent, about_candidate, None, self._choose(look))

    def _stop(self, mass: np.ndarray) -> str | None:
        if self.outside > self.rules.stop_at - 1e-12:
            return "none of the meanings that can be made fits"
        if len(mass) < 2:
            return "one meaning is left" if self.turns else "the request is not ambiguous: all candidates mean the same"
        if mass.max() >= self.rules.stop_at:
            return f"one meaning has {mass.max():.0%} of the belief"
        if len(self.turns) >= self.rules.most_turns:
            return f"{self.rules.most_turns} questions were asked"
        return None

    def _scores(self, questions: list[Question], labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(TEIG, EIG) of the questions, both (Q,), over the living candidates that belong to a cluster."""
        if not questions:
            return np.zeros(0), np.zeros(0)
        inside = labels >= 0
        share = self.weights[inside] / self.weights[inside].sum()
        of_cluster = np.eye(int(labels.max()) + 1)[labels[inside]] * share[:, None]
        options = np.array([q.n_options for q in questions])
        answers = np.stack([q.answers for q in questions])[:, inside]
        given = answers[:, None, :] == np.arange(options.max())[None, :, None]
        joint = np.swapaxes(given @ of_cluster, 1, 2)
        # What implies no option counts as undecided between them all.
        missing = (answers < 0) @ of_cluster
        joint = joint + np.where(np.arange(options.max()) < options[:, None], 1 / options[:, None], 0.0)[:, None, :] * missing[:, :, None]
        return scores(joint, options, self.error_rate)

    def _choose(self, look: Look) -> int:
        """Place of the next question. TEIG: least free energy G = -TEIG + c cost, ties to the smaller waste, then to fewer options. Ties of EIG: to chance."""
        rng = np.random.default_rng([self.rules.seed, RANDOM_STREAM, len(self.turns)])
        if self.rules.selector == "random":
            return int(rng.integers(len(look.questions)))
        if self.rules.selector == "eig":
            return int(rng.choice(np.flatnonzero(look.eig >= look.eig.max() - TIE)))
        value = look.teig - self.rules.cost * np.array([question.cost for question in look.questions])
        value[look.teig < LEAST_BITS] = -np.inf  # short and empty is no question: there is one that tells enough, or the dialogue had ended
        best = np.flatnonzero(value >= value.max() - TIE)
        return int(min(best, key=lambda i: (round(float(look.waste[i]), 9), look.questions[i].n_options, i)))

    def find(self, look: Look, question_id: str) -> Question | None:
        """The question with this id among those that can be asked now."""
        return next((q for q in look.questions if q.id == question_id), None)

    def answer(self, look: Look, question: Question, said: int | Literal["not-sure", "none"]) -> None:
        """Takes the reply to a question of this look. Raises InputError where nothing fits all replies any more."""
        reply = Reply(question, said)
        place = look.questions.index(question)
        against, meanings = self._against(reply, look), len(look.belief)
        style = [bits for q, bits in zip(look.questions, look.teig, strict=True) if q.source == "style"]
        self.replies.append(reply)
        self.struck.add(question.id)
        self._take(reply)
        made_anew = self._contract()
        labels = self.pool.partition(beliefs.alive(self.weights)).labels
        mass = beliefs.belief(self.weights, labels)
        after = float(entropy(mass / mass.sum())) if mass.sum() > 0 else 0.0
        promised = float(look.teig[place]), float(look.eig[place])
        self.turns.append(Turn(reply, look.entropy, after, *promised, float(np.mean(style)) if style else None, against, meanings, made_anew))

    def _against(self, reply: Reply, look: Look) -> int:
        """Number of clusters that would have made this reply unlikely."""
        labels = look.partition.labels
        inside = labels >= 0
        likely = reply.likelihood(reply.question.answers, self.error_rate)
        mass = np.bincount(labels[inside], self.weights[inside])
        given = np.bincount(labels[inside], (self.weights * likely)[inside]) / np.maximum(mass, beliefs.LEAST)
        return int(np.count_nonzero(given < UNLIKELY))

    def _take(self, reply: Reply) -> None:
        question, said = reply.question, reply.said
        answers = question.answers
        if said == "not-sure":
            return
        if said == "none":
            self.weights, self.outside = beliefs.none_of_these(self.weights, answers, self.outside, self.error_rate)
            return
        if beliefs.contradicts(self.weights, answers, said, self.error_rate):
            self.notes.append(f"the answers contradict each other: from here on {beliefs.FALL_BACK:.0%} of them are taken to be wrong")
            self.error_rate = beliefs.FALL_BACK
            self.weights = np.full(len(self.weights), 1 / len(self.weights))
            for former in self.replies[self._since :]:
                if isinstance(former.said, int):
                    self.weights = beliefs.update(self.weights, former.question.answers, former.question.n_options, former.said, self.error_rate)
            return
        if self.outside:
            inside = float(self.weights @ reply.likelihood(answers, self.error_rate)) * (1 - self.outside)
            self.outside /= self.outside + inside * question.n_options  # whatever lies outside gives each answer equally likely
        self.weights = beliefs.update(self.weights, answers, question.n_options, said, self.error_rate)

    def _contract(self) -> bool:
        """A fresh draw where few candidates are left to stand for what is possible, or none fits; True when there was one."""
        few = beliefs.effective_number(self.weights) < len(self.weights) / 4
        if self.fresh is None or not (few or self.outside):
            return False
        try:
            draw = self.fresh(self.replies, self.error_rate, self.draws)
        except InputError:
            return False  # what fits is too rare to be drawn: the candidates that are left go on
        last = self.replies[-1]
        if last.said == "none":
            fits = last.question.answers_of(draw.candidates) < 0
            if not fits.any():
                return False
        self.draw, self.outside, self.draws = draw, 0.0, self.draws + 1
        self.weights = np.full(len(draw.candidates), 1 / len(draw.candidates))
        self._since, self.pool = len(self.replies), Pool(draw, self.rules.binary)
        return True

    def winner(self, look: Look) -> list[int]:
        """Weighted medoids of the clusters, most believed first: the solution and its runners-up."""
        found = []
        for cluster in np.argsort(-look.belief, kind="stable"):
            members = np.flatnonzero(look.partition.labels == cluster)
            cost = self.draw.distance[np.ix_(members, members)] @ self.weights[members]
            found.append(int(members[np.argmin(cost)]))
        return found
