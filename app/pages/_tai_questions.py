"""What tai knows and asks: belief bars, the question table, bits of the questions, entropy against turns, what the probes see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.pages._tai_marks import colour_of, letter, row_bars
from app.plotting import Figure, Panel, Trace, axis, end_labels, floats, key_row, label, layout, line, plain_text, rule, scatter

ROWS = 8  # belief bars
BEST, STYLE_BEST = 5, 3  # rows of the question table: of what is done, and of style
SOURCES = {"probe": "what happens", "hyperplane": "which of two", "style": "style"}
MARKS = {"probe": ("$method", "circle"), "hyperplane": ("$method", "diamond-open"), "style": ("$warning", "triangle-up")}
BASELINES = (("teig", "by TEIG", "$peer-1"), ("eig", "by EIG", "$peer-2"), ("random", "at random", "$peer-3"))
DIGITS = 3  # of bits
ASKED = "\u25b8 "


def belief(data: Mapping[str, Any]) -> Figure | None:
    """The belief in each meaning, most believed first."""
    rows = data.get("belief")
    if not rows:
        return None
    shown, rest = rows[:ROWS], rows[ROWS:]
    names = [f"{letter(row['colour'])}  {row['belief']:.0%}  {row['name']}" for row in shown]
    values, colours = [row["belief"] for row in shown], [colour_of(row["colour"]) for row in shown]
    if rest:
        values.append(sum(row["belief"] for row in rest))
        names.append(f"{values[-1]:.0%}  {len(rest)} others together")
        colours.append("$muted")
    if data["outside"]:
        names.append(f"{data['outside']:.0%}  none of these")
        values.append(data["outside"])
        colours.append("$warning")
    traces, notes, rows_axis, height = row_bars(names, floats(values), colours, hover="%{x:.1%}: %{text}")
    plot = layout(axis("belief", "probability", range=[0, 1], tickformat=".0%", nticks=6), rows_axis, annotations=notes)
    best = rows[0]
    summary = f"{best['belief']:.0%} of the belief is with {letter(best['colour'])}: {best['name']}."
    return Figure("belief", "Which meaning it believes", traces, plot, summary, height=height + 70)


def table(data: Mapping[str, Any], selector: str) -> Panel | None:
    """The questions that could be asked now, best first, with what each would tell and waste."""
    found = data.get("questions")
    if not found:
        return None
    style = [row for row in found if row["source"] == "style"][:STYLE_BEST]
    others = [row for row in found if row["source"] != "style"][:BEST]
    rows = [row for row in found if row["chosen"] or row in style or row in others]
    chosen = next((i for i, row in enumerate(rows) if row["chosen"]), None)
    # Short headings: a phone shows the question and its figures without a sideways scroll.
    columns = [
        {"name": "question", "kind": "text"},
        *({"name": name, "kind": "number"} for name in ("TEIG", "EIG", "waste")),
        {"name": "about", "kind": "text"},
    ]
    cells = [
        [
            f"{ASKED if row['chosen'] else ''}{row['text']}{_options(row['options'])}",
            *(_bits(row[key]) for key in ("teig", "eig", "waste")),
            SOURCES[row["source"]],
        ]
        for row in rows
    ]
    how = {"teig": "the bits about the meaning (TEIG)", "eig": "the bits about the solution (EIG)", "random": "chance"}[selector]
    summary = f"In bits: TEIG is what an answer tells about the meaning, EIG about the solution, waste the difference. \u25b8 is asked, chosen by {how}."
    if len(found) > len(rows):
        summary += f" Shown are the best of {len(found)}, and the best about style."
    return Panel("questions", "table", "What it could ask now, in bits", {"columns": columns, "rows": cells, "marked": chosen, "note": None}, summary, "wide")


def _options(options: Sequence[str]) -> str:
    return "" if list(options) == ["yes", "no"] else f"  [{' | '.join(options)}]"


def _bits(value: float) -> float:
    return round(float(value), DIGITS) + 0.0  # no minus zero


def gains(data: Mapping[str, Any]) -> Figure | None:
    """TEIG of each question against its EIG: what lies below the diagonal is wasted."""
    rows = data.get("questions")
    if not rows:
        return None
    reach = 1.08 * max(0.1, *(row["eig"] for row in rows))
    traces: list[Trace] = [line([0, reach], [0, reach], "no waste", "$peer-2", width=1, hover="skip")]
    for source, (colour, symbol) in MARKS.items():
        here = [row for row in rows if row["source"] == source]
        if here:
            x, y = floats([r["eig"] for r in here]), floats([r["teig"] for r in here])
            said = [plain_text(row["text"]) for row in here]
            traces.append(
                scatter(x, y, SOURCES[source], colour, symbol=symbol, size=9, edge=1.5, opacity=0.8, text=said, hover="%{text}<br>TEIG %{y:.2f}, EIG %{x:.2f}")
            )
    notes = key_row(("\u25cf what happens", "$method"), ("\u25c7 which of two", "$method"), ("\u25b2 style", "$warning"))
    chosen = next((row for row in rows if row["chosen"]), None)
    if chosen is not None:
        traces.append(scatter([chosen["eig"]], [chosen["teig"]], "asked", "$ink", symbol="circle-open", size=18, edge=2, hover="skip"))
        left = chosen["eig"] > 0.75 * reach
        notes.append(label(chosen["eig"], chosen["teig"], "asked", "$ink", anchor="right" if left else "left", shift=(-14 if left else 14, 0)))
    plot = layout(
        axis("about the solution: EIG", "bits", range=[-0.03 * reach, reach], nticks=6),
        axis("about the meaning: TEIG", "bits", range=[-0.04 * reach, reach], nticks=6),
        top=30,
        annotations=notes,
    )
    style = [row for row in rows if row["source"] == "style"]
    told = ""
    if style:
        worst = max(style, key=lambda row: row["waste"])
        told = f" \u201c{worst['text']}\u201d has {worst['eig']:.2f} bit by EIG and {worst['teig']:.2f} about the meaning."
    return Figure("gains", "Bits that count, and bits that are wasted", traces, plot, f"What lies below the line is waste.{told}", height=400)


def entropy(data: Mapping[str, Any]) -> Figure | None:
    """Bits that are open after each answer, beside the other ways to choose questions."""
    if "entropy" not in data:
        return None
    here = floats(data["entropy"])
    start = float(data["log2_k"])
    traces: list[Trace] = []
    ends: list[tuple[float, str, str]] = []
    longest = here.size - 1
    for key, name, colour in BASELINES:
        found = data.get("baselines", {}).get(key)
        if found:
            values = floats(found["entropy"])
            longest = max(longest, values.size - 1)
            traces.append(line(np.arange(values.size), values, name, colour, hover=f"{name}: %{{y:.2f}} bits after %{{x}}"))
            ends.append((float(values[-1]), f"{name}: {found['turns']}", colour))
    said = ["before the first answer", *(f"after \u201c{plain_text(turn['reply']['text'])}\u201d" for turn in data["transcript"])]
    mine = line(np.arange(here.size), here, "this dialogue", "$method", width=3, hover="%{y:.2f} bits %{text}", text=said)
    traces.append(mine | {"mode": "lines+markers", "marker": {"color": "$method", "size": 7}})
    top = 1.12 * max(start, float(here.max()), 0.5, *(float(floats(t["y"]).max()) for t in traces))
    if data.get("baselines"):
        ends.append((float(here[-1]), f"<b>this: {here.size - 1}</b>", "$method"))
    notes = end_labels(ends, (0, top), 300) if ends else []
    notes.append(label(1, start, f"log\u2082 K = {start:.1f}", "$muted", anchor="right", xref="x domain", yanchor="bottom"))
    plot = layout(
        axis("answers", "count", range=[-0.2, max(longest, 4) + 0.3], showgrid=False, dtick=1 if longest < 13 else None),
        axis("open about the meaning", "bits", range=[0, top], nticks=6),
        right=104 if ends else 16,
        annotations=notes,
        shapes=[rule(start, "log2 K", "$muted", across="y", dash="dot", width=1)],
    )
    return Figure("entropy", "Bits that are still open", traces, plot, _entropy_summary(data, here), height=400)


def _entropy_summary(data: Mapping[str, Any], here: np.ndarray) -> str:
    text = f"{here[0]:.1f} bits before the first answer, {here[-1]:.1f} now."
    found = data.get("baselines")
    if not found:
        return f"{text} What other ways to choose questions would have needed appears at the end."
    told = ", ".join(f"{name} {found[key]['turns']} ({found[key]['style']} about style)" for key, name, _ in BASELINES)
    return f"{text} Questions for the same wish, answered without a fault: {told}."


def coverage(data: Mapping[str, Any]) -> Figure | None:
    """Share of the probes that tell the values of each semantic axis apart."""
    found = data.get("axis_coverage")
    if not found:
        return None
    values = floats(list(found.values()))
    colours = ["$method" if v > 0 else "$warning" for v in values.tolist()]
    traces, notes, rows_axis, height = row_bars(list(found), values, colours, hover="%{x:.0%} of the probes: %{text}")
    plot = layout(axis("probes that tell it apart", "share", range=[0, 1], tickformat=".0%", nticks=6), rows_axis, annotations=notes)
    blind = [name for name, value in found.items() if not value]
    summary = f"No probe sees {', '.join(blind)}: such meanings are invisible." if blind else "Each difference in meaning is seen by some of the probes."
    return Figure("coverage", "What the probes can see", traces, plot, summary, height=height + 70)
