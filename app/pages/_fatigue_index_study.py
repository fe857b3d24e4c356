"""The study of twenty prompts, and what is known: the paper's figures beside those of an independent replication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plotting import Figure, Panel, axis, floats, label, layout, plain_text, scatter

LETTERS = 48  # of a prompt, beside its point
KNOWN = (
    ("paper: HotpotQA, OPT-2.7B", "7,405", "0.848", "0.976", "18\u201321 to 1.4\u20131.7"),
    ("paper: SQuAD, OPT-2.7B", "10,000", "0.856", "", ""),
    ("paper: TriviaQA, OPT-2.7B", "10,000", "0.820", "", ""),
    ("replication: the three, OPT-2.7B", "350", "0.283 / 0.593 / 0.386", "0.663", "42 to 71 % fewer"),
)


def study(data: Mapping[str, Any]) -> Figure:
    """Each text as a point: mean index against repetition."""
    found = data["study"]
    fi, ratio = floats(found["fi"]), floats(found["repetition"])
    shown = [f"{plain_text(p)}<br>index {x:.2f}, repetition {y:.0%}" for p, x, y in zip(found["prompts"], fi, ratio, strict=True)]
    trace = scatter(fi, ratio, "texts", "$method", size=11, hover="%{text}", text=shown)
    rho, low, high = found["scores"][0][1:4]
    said = (
        "no text repeats yet"
        if rho is None
        else f"\u03c1 = {rho:.2f}" + ("" if low is None else f", 95 % from {round(low, 2) + 0.0:.2f} to {round(high, 2) + 0.0:.2f}")
    )  # no minus before a zero
    top = max(0.2, 1.15 * float(ratio.max()))
    room = max(0.02, 0.12 * float(np.ptp(fi)))
    names = [int(i) for i in np.argsort(-ratio)[:1] if ratio[i] > 0.02]
    notes = [label(0, 1, f"<b>{said}</b>", "$ink", xref="paper", yref="paper", yanchor="bottom", shift=(0, 8))]
    middle = float(fi.min() + fi.max()) / 2
    for i in names:
        right = fi[i] > middle
        text = plain_text(_short(str(found["prompts"][i])))
        notes.append(label(float(fi[i]), float(ratio[i]), text, "$muted", anchor="right" if right else "left", shift=(-10 if right else 10, 0)))
    plot = layout(
        axis("mean Fatigue Index of a text", "no unit", range=[float(fi.min()) - room, float(fi.max()) + room]),
        axis("4-grams seen before", "share", range=[-0.04 * top, top], tickformat=".0%"),
        top=36,
        annotations=notes,
    )
    summary = f"Twenty texts of up to {max(found['tokens'])} tokens: {said}. Mean index {fi.mean():.2f}, mean repetition {ratio.mean():.0%}."
    return Figure("study", "Do tired texts repeat themselves?", [trace], plot, summary, "main", height=480)


def scores(data: Mapping[str, Any]) -> Panel:
    """The index beside each signal alone and beside plain uncertainty."""
    rows = [[name, _round(rho), _round(low), _round(high), _round(area)] for name, rho, low, high, area in data["study"]["scores"]]
    columns = [{"name": "score", "kind": "text"}, *({"name": n, "kind": "number"} for n in ("rank correlation", "95 % from", "to", "AUROC severe"))]
    best = max((row for row in rows if row[1] is not None), key=lambda row: row[1], default=None)
    severe = sum(floats(data["study"]["repetition"]) >= 0.6)
    note = f"AUROC needs texts of both kinds; {int(severe)} of the twenty are severe (60 % of 4-grams repeated)."
    said = (
        "No text repeats yet, so nothing can be ranked."
        if best is None
        else f"The highest rank correlation with repetition is that of {best[0]}: {best[1]:.2f}."
    )
    return Panel("scores", "table", "Does a simpler alarm do as well?", {"columns": columns, "rows": rows, "note": note, "marked": 0}, said, "wide")


def known(data: Mapping[str, Any]) -> Panel:
    """The paper and the replication, and this lab's own figure where there is one."""
    rows = [list(row) for row in KNOWN]
    if "study" in data:
        rho = data["study"]["scores"][0][1]
        rows.append(["here: twenty prompts, SmolLM2-135M", "20", "not defined" if rho is None else f"{rho:.3f}", "", ""])
    else:
        flips = data["flips"]
        rows.append(["here: this one text", "1", "see the study", "", f"{int(flips['threshold'])} to {int(flips['hysteresis'])}"])
    names = ("source", "texts", "rank correlation", "AUROC severe", "flips, plain to alarm")
    note = (
        "Paper, HotpotQA, single signals: AUROC entropy 0.954, drift 0.929, attention 0.307. Replication: the formula is exact and the loss of entropy in "
        "4-bit weights is confirmed; entropy alone (0.722) beats the index (0.663); the advantage of early evidence and the reversal at 7B are not confirmed."
    )
    summary = "The paper reports 0.82 to 0.86; an independent replication with the same formula found 0.28 to 0.59."
    columns = [{"name": n, "kind": "text"} for n in names]
    return Panel("known", "table", "What is known: the paper and its replication", {"columns": columns, "rows": rows, "note": note}, summary, "wide")


def _round(value: Any) -> float | None:
    return None if value is None else round(float(value), 3)


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "\u2026"
