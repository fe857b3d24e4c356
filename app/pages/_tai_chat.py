"""The conversation of tai: what the lab says, what can be answered, and what a pressed answer means for the params."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.plotting import Changes, Panel
from backends.contract import Frame

NOT_SURE, NONE = "not-sure", "none"
WORDS_LIMIT = 120  # of a request that is repeated in the chat


def chat(frame: Frame, params: Any) -> Panel:
    """The dialogue so far and the buttons of the open question."""
    data = frame.data
    data_of_panel = {
        "turns": _turns(frame, params),
        "prompt": _prompt(data, params),
        "options": _options(data, params),
        "person": "Simulated person" if params.answerer == "simulated" else "You",
        "folds": _folds(data),
        "lead": True,
    }
    return Panel("chat", "chat", "Dialogue", data_of_panel, _summary(data, params))


def _summary(data: Mapping[str, Any], params: Any) -> str:
    if params.answerer == "simulated":
        return "A simulated person with a hidden wish answers."
    return "The link of this page holds your answers." if data.get("transcript") else "Your answers become part of the link."


def _prompt(data: Mapping[str, Any], params: Any) -> str | None:
    question = data.get("question")
    if question is not None:
        return str(question["text"]) if params.answerer == "me" else None
    if "solution" in data:
        return f"Solution: {data['solution']['name']}."
    if "belief" in data:
        return None
    arrived = data.get("arrived")
    return f"Solution {arrived['done']} of {arrived['total']}: {arrived['caption']}" if arrived else "Comparing the solutions."


def _turns(frame: Frame, params: Any) -> list[dict[str, str]]:
    data = frame.data
    request = str(data.get("request", ""))
    said = []
    if request:
        short = request if len(request) <= WORDS_LIMIT else request[: WORDS_LIMIT - 3] + "..."
        said.append(_person(short))
    if "meanings" not in data:
        return said
    found = round(2 ** data["log2_k"])
    mind = "" if params.answerer == "simulated" else " Keep one of them in mind and answer for it."
    said.append(_lab(f"I made {len(data['candidates']['captions'])} solutions and see {found} meaning{'' if found == 1 else 's'}.{mind}"))
    for turn in data.get("transcript", []):
        said += [_lab(turn["text"]), _person(turn["reply"]["text"]), _lab(turn["explanation"])]
    if data.get("stop"):
        said.append(_lab(_ending(frame, params)))
    return said


def _lab(text: str) -> dict[str, str]:
    return {"who": "lab", "text": text}


def _person(text: str) -> dict[str, str]:
    return {"who": "person", "text": text}


def _ending(frame: Frame, params: Any) -> str:
    data = frame.data
    stop = data["stop"][0].upper() + data["stop"][1:]
    found, others = data.get("solution"), data.get("baselines")
    if found is None:
        return f"{stop}."
    text = f"{stop}: {found['name']}."
    right = frame.metrics.get("right")
    if params.answerer == "simulated" and right is not None:
        text += " That is what was wished." if right else f" What was wished: {data['dealt']['name']}."
    if others:
        asked = len(data["transcript"])
        needed = f"EIG needs {others['eig']['turns']}, random questions {others['random']['turns']}"
        text += f" {asked} question{'' if asked == 1 else 's'}; for the same wish without wrong answers {needed}."
    return text


def _options(data: Mapping[str, Any], params: Any) -> list[dict[str, Any]]:
    """Answers first, then what is not one; each id says to how many earlier answers it belongs."""
    number = len(data.get("transcript", []))
    if "belief" not in data:
        return [_quiet("anew", "Start anew")] if params.answers else []  # the answers may be those of another version, which end the run here
    if params.answerer == "simulated":
        return [_quiet("self", "Answer yourself")]
    question = data.get("question")
    offered: list[dict[str, Any]] = []
    if question is not None:
        offered += [{"id": f"say {number} {question['id']} {option['id']}", "text": option["text"]} for option in question["options"]]
        offered += [
            _quiet(f"say {number} {question['id']} {reply}", text) for reply, text in ((NOT_SURE, "Not sure, or I do not care"), (NONE, "None of these"))
        ]
    if number:
        offered += [_quiet(f"back {number}", "Back"), _quiet("anew", "Start anew")]
    return offered


def _quiet(option_id: str, text: str) -> dict[str, Any]:
    return {"id": option_id, "text": text, "quiet": True}


def _folds(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a person may ask to see: all that the request could mean, and a wish to answer for."""
    if "meanings" not in data:
        return []
    meanings, dealt = data["meanings"], data["dealt"]
    shown = data["first_shown"][str(dealt["candidate"])]
    return [
        {"title": f"What it could mean ({len(meanings)})", "lines": [m["name"] for m in meanings]},
        {"title": "Deal me a wish", "lines": [dealt["name"]], "code": shown["source"] if shown["kind"] == "source" else None},
    ]


# ------------------------------------------------------------------------------------------------------------ events


def answered(option_id: Any, answers: Any) -> Changes | None:
    """The params that a pressed button means. A button of another turn than the current one (pressed twice) means nothing.

    >>> answered("say 0 1f 2e", []), answered("say 0 1f 2e", [["1f", "2e"]]), answered("back 1", [["1f", "2e"]])
    (Changes(params={'answers': [['1f', '2e']]}, run=True), None, Changes(params={'answers': []}, run=True))
    """
    if not isinstance(option_id, str):
        return None
    now = answers if isinstance(answers, list) else []
    match option_id.split(" "):
        case ["say", number, question, reply] if number == str(len(now)):
            return Changes({"answers": [*now, [question, reply]]}, run=True)
        case ["back", number] if now and number == str(len(now)):
            return Changes({"answers": now[:-1]}, run=True)
        case ["anew"]:
            return Changes({"answers": []}, run=True)
        case ["self"]:
            return Changes({"answers": [], "answerer": "me"}, run=True)
    return None
