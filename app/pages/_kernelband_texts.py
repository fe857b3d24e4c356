"""What is read and not drawn: the edit of an attempt, what became of it, the counters, and the static facts where nothing can be timed."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from app.pages._kernelband_marks import counted, ms, recorded, strategy, way_to, whole
from app.plotting import Panel, floats

OUTPUT_LINES, OUTPUT_LETTERS = 12, 160  # of what the compiler or the checker said
LISTING_LINES = 60
CONTEXT = 4  # equal lines that are kept on each side of a change
TEXT, NUMBER = "text", "number"


def edit(data: Mapping[str, Any], params: Any) -> Panel | None:
    """Parent against child, line by line."""
    found = data.get("diff")
    if not found:
        return None
    before = found["parent"]
    after = found["child"] or before  # nothing is written yet, or the answer held no code
    language, comment = _language(params)
    if found["outcome"] is None:
        summary = "The child is under way." if found["child"] else "The child is being written."
    elif found["child"] and found["child"] != before:
        summary = f"Lines with \u2212 were the parent's, lines with + are the child's. It was judged: {_words(found['outcome'])}."
    else:
        summary = f"The child does not differ from its parent. It was judged: {_words(found['outcome'])}."
    before, after = _around_the_change(before, after, comment)
    return Panel("edit", "diff", "From parent to child, the newest attempt", {"before": before, "after": after, "language": language}, summary)


def journey(data: Mapping[str, Any], params: Any) -> Panel:
    """The naive kernel against the best one, line by line."""
    found, kernels = data["best"], data["kernels"]
    best = int(found["member"])
    naive, took = float(floats(data["drift"]["ms"]).min()), float(floats(kernels["ms"])[best])
    edits = ", ".join(strategy(data["strategies"], int(whole(kernels["strategy"])[k])) for k in way_to(kernels["parent"], best)[1:])
    summary = f"{ms(naive)} became {ms(took)} by {edits}." if best else "No child is faster than the naive kernel yet."
    language, _ = _language(params)
    return Panel("journey", "diff", "From naive to best", {"before": found["naive"], "after": found["source"], "language": language}, summary)


def _language(params: Any) -> tuple[str, str]:
    """Of the programs, with the form of its comments."""
    return ("python", "# {}") if params.substrate == "triton" else ("c", "/* {} */")


def _around_the_change(before: str, after: str, comment: str) -> tuple[str, str]:
    """Both texts without the equal lines at their ends, but for a few: a change far down would be out of sight.

    >>> _around_the_change("a\\nb\\nc\\nd\\ne\\nf\\ng", "a\\nb\\nc\\nd\\ne\\nf\\nG", "# {}")[1].splitlines()[:2]
    ['# 2 equal lines', 'c']
    """
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return before, after
    head = _equal(old, new)
    tail = _equal(old[head:][::-1], new[head:][::-1])
    first, last = max(0, head - CONTEXT), max(0, tail - CONTEXT)

    def cut(lines: list[str]) -> str:
        kept = lines[first : len(lines) - last]
        above, below = ([comment.format(counted(hidden, "equal line"))] if hidden else [] for hidden in (first, last))
        return "\n".join([*above, *kept, *below])

    return cut(old), cut(new)


def _equal(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines are equal from the start on."""
    return sum(itertools.takewhile(bool, map(operator.eq, old, new)))


def verdict(data: Mapping[str, Any]) -> Panel | None:
    """What became of the newest attempt that is settled, with the compiler's and the checker's own words."""
    attempts = data["attempts"]
    if not len(attempts["round"]):
        return None
    took, parent = attempts["ms"][-1], attempts["parent"][-1]
    rows: list[list[Any]] = [
        ["attempt", f"{attempts['round'][-1]}, {strategy(data['strategies'], attempts['strategy'][-1])}"],
        ["parent", f"kernel {parent}, {ms(attempts['parent_ms'][-1])}"],
        ["child", _words(attempts["outcome"][-1]) + (f", {ms(took)}" if took is not None else ", not timed")],
        ["reward", f"{attempts['reward'][-1]:.3f}"],
    ]
    reason, output = attempts["text"][-1].strip(), (data["diff"] or {}).get("output", "")
    if reason not in output:  # of a checker; a compiler's stands in its output already
        output = f"{reason}\n{output}"
    rows += [["output", said] for said in _lines(output)]
    columns = [{"name": name, "kind": TEXT} for name in ("what", "of the newest settled attempt")]
    note = None if output.strip() else "The compiler and the checker had nothing to say."
    summary = "Reward is the share of the parent's time that the child saves; a failure or a slower child gives 0 and still counts as a pull."
    return Panel("verdict", "table", "What became of it", {"columns": columns, "rows": rows, "note": note}, summary)


def counters(data: Mapping[str, Any], params: Any) -> Panel:
    """What the attempts gave, and what they cost in seconds."""
    found = data["counters"]
    rows: list[list[Any]] = [
        ["looked up" if data["recorded"] else "compiler runs", found["compiled"], "the naive one too"],
        ["right", found["correct"], "slower ones too" if data["mode"] == "search" else "the naive one aside"],
        ["wrong", found["wrong"], "or crash, hang, cheat"],
        ["not compiled", found["compile_errors"], ""],
        ["seen before", found["duplicates"], "not measured again"],
    ]
    if data["mode"] == "search" and params.policy in ("kernelband", "thompson"):
        rows.append(["turned by a mask", found["masked_pulls"], "first choice closed"])
    if data["mode"] == "search" and not data["recorded"]:
        rows += [
            ["compiler, s", round(found["compile_s"], 2), ""],
            ["checks, timing, s", round(found["run_s"], 2), ""],
            ["writing, s", round(found["propose_s"], 2), ""],
        ]
    columns = [{"name": "what", "kind": TEXT}, {"name": "count or s", "kind": NUMBER}, {"name": "which", "kind": TEXT}]
    failed = f"{counted(found['failed'], 'attempt')} failed, {found['duplicates']} had been seen before."
    return Panel("counters", "table", "Where the attempts went", {"columns": columns, "rows": rows, "note": None}, failed)


def task(data: Mapping[str, Any]) -> Panel | None:
    """What a person's own program must be, with its exact signature; None where none can run."""
    if not data["task"]:
        return None
    rows = [[line] for line in data["task"].splitlines()]
    table = {"columns": [{"name": "what it must be", "kind": TEXT}], "rows": rows, "note": None}
    summary = "Paste it under More, Your own C; it is checked and timed before the first attempt and joins the others."
    return Panel("task", "table", "Write your own", table, summary, "wide")


def survey(data: Mapping[str, Any]) -> Panel:
    """Every program that was compiled ahead of time, and what the compiler says of it; never a time."""
    rows = data["rows"]
    names = dict.fromkeys(name for row in rows for name in row["facts"])
    grouped: dict[str, list[str]] = {}  # "sm_80 registers" and its kin share the column "registers"
    for name in names:
        target, _, fact = str(name).partition(" ")
        grouped.setdefault(fact or target, []).append(str(name))
    targets = list(dict.fromkeys(str(name).partition(" ")[0] for name in names))
    columns = [{"name": name, "kind": TEXT} for name in ("program", "strategy", "edit of", "outcome", *grouped)]
    table = []
    for place, row in enumerate(rows):
        made = "baseline" if row["parent"] < 0 else strategy(data["strategies"], row["strategy"])
        edited = "" if row["parent"] < 0 else str(row["parent"])
        table.append([str(place), made, edited, _words(row["outcome"]), *(_joined(row["facts"], members) for members in grouped.values())])
    right = sum(row["outcome"] == "right" for row in rows)
    note = f"Where the targets differ, they stand in this order: {', '.join(targets)}." if targets else None
    summary = f"{right} of {counted(len(rows), 'program')} compile and give right results. Static facts only: there is no GPU here, so nothing was timed."
    title = f"What the compiler says, without a GPU{recorded(data)}"
    return Panel("survey", "table", title, {"columns": columns, "rows": table, "note": note}, summary, "main")


def machine_code(data: Mapping[str, Any]) -> Panel | None:
    """The PTX of the newest right program against that of the one that it was made from; None where the compiler writes none."""
    found = data["ptx"]
    if not found["after"]:
        return None
    before, after = (_first_lines(text) for text in _around_the_change(found["before"], found["after"], "// {}"))
    changed = found["before"] != found["after"]
    summary = f"Program {found['parent']} became program {found['program']}." if changed else f"Program {found['program']}; the edit left its PTX as it was."
    title = "PTX for the newest architecture, before and after"
    return Panel("ptx", "diff", title, {"before": before, "after": after, "language": "ptx"}, summary)


def _first_lines(listing: str) -> str:
    """A listing as far as anybody reads it; the whole one is in the file that can be downloaded."""
    lines = listing.splitlines()
    return listing if len(lines) <= LISTING_LINES else "\n".join([*lines[:LISTING_LINES], f"// {len(lines) - LISTING_LINES} more lines"])


def said_of_survey(data: Mapping[str, Any]) -> Panel:
    """The compiler's and the checker's words on the newest program of a survey."""
    row = data["rows"][-1]
    output = (data["diff"]["output"] or row["text"]).partition("\n//")[0]  # the PTX stands in a view of its own
    rows = [[said] for said in _lines(output)]
    note = None if rows else "The compiler and the checker had nothing to say."
    columns = [{"name": f"on program {len(data['rows']) - 1}", "kind": TEXT}]
    return Panel("output", "table", "What was said of it", {"columns": columns, "rows": rows, "note": note}, f"The newest program: {_words(row['outcome'])}.")


def _joined(facts: Mapping[str, Any], names: list[str]) -> str:
    """One value where all targets agree, else all of them."""
    values = [f"{v:.3g}" if isinstance(v, int | float) else str(v) for v in (facts.get(name, "") for name in names)]
    return values[0] if len(set(values)) == 1 else " / ".join(values)


def _words(outcome: str) -> str:
    """An outcome in words.

    >>> _words("within-noise"), _words("duplicate")
    ('within noise', 'seen before')
    """
    return {"duplicate": "seen before", "no-code": "no code in the answer"}.get(outcome, outcome.replace("-", " "))


def _lines(text: str) -> list[str]:
    kept = [part.rstrip()[:OUTPUT_LETTERS] for part in text.splitlines() if part.strip() and not part.startswith("//")]
    return [*kept[:OUTPUT_LINES], *([f"{len(kept) - OUTPUT_LINES} more lines"] if len(kept) > OUTPUT_LINES else [])]
