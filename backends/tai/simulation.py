"""A simulated person with one candidate in mind, who answers what it implies, and is wrong now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from backends.tai.candidates import Candidates
from backends.tai.dialogue import Dialogue, Look
from backends.tai.draws import select
from backends.tai.questions import Question

HIDDEN_STREAM, ERROR_STREAM = 31, 32


@dataclass(frozen=True, slots=True)
class Person:
    """wish: the one candidate that is wanted. error_rate: share of the answers that are another option, drawn at random."""

    wish: Candidates
    error_rate: float = 0.0
    seed: int = 0

    def reply(self, question: Question, turn: int) -> int | Literal["none"]:
        """The option's number; "none" where the wish fits no option. The same question at the same turn gets the same answer."""
        true = int(question.answers_of(self.wish)[0])
        rng = np.random.default_rng([self.seed, ERROR_STREAM, turn])
        if rng.random() < self.error_rate:
            wrong = [option for option in range(question.n_options) if option != true]
            return int(rng.choice(wrong))
        return true if true >= 0 else "none"


def hidden(candidates: Candidates, seed: int) -> int:
    """Place of the candidate that a person is dealt: any without a fault, so that intents come as often as the prior has them."""
    plain = np.flatnonzero(~candidates.quirk & ~candidates.failed)
    return int(np.random.default_rng([seed, HIDDEN_STREAM]).choice(plain if plain.size else np.arange(len(candidates))))


def person(candidates: Candidates, place: int, error_rate: float = 0.0, seed: int = 0) -> Person:
    """The person who wants the candidate at this place."""
    return Person(select(candidates, np.array([place])), error_rate, seed)


def step(dialogue: Dialogue, who: Person) -> Look | None:
    """One turn of a simulated dialogue; the last look where it ends, else None."""
    look = dialogue.look()
    if look.question is None:
        return look
    dialogue.answer(look, look.question, who.reply(look.question, len(dialogue.turns)))
    return None


def play(dialogue: Dialogue, who: Person) -> Look:
    """Plays a dialogue to its end; the last look."""
    while True:
        look = step(dialogue, who)
        if look is not None:
            return look


def is_right(dialogue: Dialogue, look: Look, who: Person) -> bool:
    """Whether the solution has the hidden intent; where intents are not known, whether it does what the wish does."""
    places = dialogue.winner(look)
    if not places or dialogue.outside > 0.5:
        return False
    found, wish = dialogue.draw.candidates, who.wish
    if found.intents is not None and wish.intents is not None:
        return bool(found.intents[places[0]] == wish.intents[0])
    same = np.flatnonzero([text == wish.texts[0] for text in found.texts])  # the candidates are one draw here
    return bool(same.size and look.partition.labels[same[0]] == look.partition.labels[places[0]])
