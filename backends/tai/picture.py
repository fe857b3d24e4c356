"""What the pictures need, as plain data (the table in the docstring of ``method``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backends.tai import belief as beliefs
from backends.tai.candidates import Candidates
from backends.tai.dialogue import Dialogue, Look, Turn
from backends.tai.draws import Draw, Reply

ROWS = 40  # of the question table
STYLE_ROWS = 8  # of these at least, where there are as many


class Names:
    """The names of clusters, and their colours, which stay from turn to turn and from draw to draw: a colour belongs to a name."""

    def __init__(self) -> None:
        self._colours: dict[str, int] = {}

    def of(self, candidates: Candidates, labels: np.ndarray) -> list[tuple[str, int]]:
        """(name, colour number) of the clusters 0 to K - 1 of labels (N,): the most frequent caption within each."""
        taken: Counter[str] = Counter()
        found = []
        for cluster in range(int(labels.max(initial=-1)) + 1):
            captions = Counter(candidates.captions[i] for i in np.flatnonzero(labels == cluster))
            caption = min(captions, key=lambda c: (-captions[c], c))
            taken[caption] += 1
            name = caption if taken[caption] == 1 else f"{caption} ({taken[caption]})"
            found.append((name, self._colours.setdefault(name, len(self._colours))))
        return found


def candidates(found: Candidates) -> dict[str, Any]:
    """The candidates of a draw; equal shown forms come once."""
    place: dict[int, int] = {}
    unique: list[Mapping[str, Any]] = []
    for form in found.shown:
        if id(form) not in place:
            place[id(form)] = len(unique)
            unique.append(form)
    texts = [repr(form) for form in unique]
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    kept = sorted(set(first.values()))
    number = {old: new for new, old in enumerate(kept)}
    return {
        "shown": [dict(unique[i]) for i in kept],
        "of": np.array([number[first[texts[place[id(form)]]]] for form in found.shown]),
        "captions": list(found.captions),
        "quirk": found.quirk,
        "failed": found.failed,
        "total": len(found),
    }


def meanings(draw: Draw) -> list[dict[str, Any]]:
    """What the request could mean: the true intents among the candidates, else the clusters; each with a candidate that shows it."""
    found = draw.candidates
    groups = draw.labels if found.intents is None else found.intents
    plain = ~found.quirk & ~found.failed
    listed = []
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        best = members[plain[members]] if plain[members].any() else members
        name = found.captions[best[0]] if found.intents is None else found.intent_names[group]
        listed.append({"name": name, "candidate": int(best[0]), "candidates": len(members)})
    return listed


def homology(draw: Draw, dialogue: Dialogue, look: Look, colours: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The barcode of the living candidates; a bar has the colour of the component that its merge ends, -1 where that is in no cluster."""
    part = look.partition
    palette = np.array([colour for _, colour in colours] + [-1])
    ends = part.labels[part.at][part.merges[:, 0]] if len(part.merges) else np.zeros(0, dtype=int)
    return {
        "deaths": part.deaths,
        "bar_colours": palette[ends],
        "tau": float(draw.tau) if np.isfinite(draw.tau) and draw.clustering == "components" else None,
        "clustering": draw.clustering,
        "alive": int(look.living.sum()),
        "ess": beliefs.effective_number(dialogue.weights),
    }


def questions(look: Look, selector: str) -> list[dict[str, Any]]:
    """Rows of the question table, best by the selector first, at most 40, with the chosen one and some about style among them."""
    order = np.argsort(-(look.eig if selector == "eig" else look.teig), kind="stable")
    style = [i for i in order if look.questions[i].source == "style"][:STYLE_ROWS]
    needed = {*style, *([] if look.chosen is None else [look.chosen])}
    others = [i for i in order if i not in needed][: ROWS - len(needed)]
    listed = needed | set(others)
    return [
        {
            "id": look.questions[i].id,
            "text": look.questions[i].text,
            "source": look.questions[i].source,
            "options": list(look.questions[i].options),
            "teig": float(look.teig[i]),
            "eig": float(look.eig[i]),
            "waste": float(look.waste[i]),
            "chosen": i == look.chosen,
        }
        for i in order
        if i in listed
    ]


def belief(dialogue: Dialogue, look: Look, colours: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """One row a cluster, most believed first, each with its weighted medoid."""
    central = dialogue.winner(look)
    order = np.argsort(-look.belief, kind="stable")
    return [
        {
            "cluster": int(k),
            "name": colours[k][0],
            "colour": colours[k][1],
            "belief": float(look.belief[k]),
            "size": int((look.partition.labels == k).sum()),
            "candidate": place,
        }
        for k, place in zip(order, central, strict=True)
    ]


def said(reply: Reply) -> tuple[str, str]:
    """(id, words) of a reply."""
    if isinstance(reply.said, int):
        return reply.question.option_ids[reply.said], reply.question.options[reply.said]
    return reply.said, {"not-sure": "not sure", "none": "none of these"}[reply.said]


def explain(turn: Turn) -> str:
    """One sentence on what an answer did."""
    if turn.reply.said == "not-sure":
        return "Nothing changes; another question comes."
    text = f"Speaks against {turn.against} of {turn.meanings} meanings: {turn.before:.1f} bits before, {turn.after:.1f} after"
    if turn.style_bits is not None:
        text += f"; an average question about style would have told {turn.style_bits:.1f}"
    return text + ("; fresh candidates were drawn." if turn.fresh else ".")


def transcript(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """The dialogue so far, one row a question."""
    rows = []
    for turn in turns:
        reply_id, words = said(turn.reply)
        rows.append(
            {
                **turn.reply.question.to_dict(),
                "reply": {"id": reply_id, "text": words},
                "teig": turn.teig,
                "eig": turn.eig,
                "explanation": explain(turn),
            }
        )
    return rows


def entropies(dialogue: Dialogue, look: Look) -> list[float]:
    """H(b) before each question so far and now, in bits."""
    return [*(turn.before for turn in dialogue.turns), look.entropy]
