"""A run to take home: one self-contained page, a tidy table, a notebook."""

from __future__ import annotations

import base64
import csv
import html
import io
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import orjson

from app.about import cli_snippet, python_snippet
from app.assets import STATIC, plotly_path
from app.plotting import Figure, view_json
from app.render import render
from app.theme import STYLES
from app.thumbnails import hue
from backends import registry
from backends.contract import Card, Frame, Params

PRINT_COLOURS = {
    "method": "#2f6f9f",
    "truth": "#111111",
    "peer-1": "#6c6f76",
    "peer-2": "#898c93",
    "peer-3": "#a5a7ad",
    "warning": "#b3371b",
    "data": "#55585e",
    "ink": "#1d1f24",
    "surface": "#ffffff",
    "grid": "#e4e4e4",
    "muted": "#7d8087",
}


# ------------------------------------------------------------------------------------------------------- the page


def html_page(slug: str, params: Params, frame: Frame) -> str:
    """One HTML file with the pictures alive, metrics, what ran and how to run it again; needs no network."""
    card = registry.get(slug).card
    stage = render(slug, frame, params).replace("<", "\\u003c")  # no text of the data can close the script
    meta = html.escape(orjson.dumps({"slug": slug, "theme": card.theme}).decode())
    snippets = "".join(
        f"<h3>{title}</h3><pre><code>{html.escape(text)}</code></pre>"
        for title, text in (("Command line", cli_snippet(slug, params)), ("Python", python_snippet(slug, params)))
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(card.title)}</title>
<style>{_stylesheet()}
.pp-page {{ max-width: 1180px; margin: 0 auto; padding: 24px 16px 64px; }}</style>
<script type="importmap">{_import_map()}</script>
<script type="text/plain" id="plotly">{plotly_path().read_text(encoding="utf-8")}</script>
</head>
<body data-theme="{card.theme}">
<main class="pp-page">
<header class="pp-title"><h2>{html.escape(card.title)}</h2><p class="pp-aha">{html.escape(card.aha)}</p><p class="pp-paper">{_paper(card)}</p></header>
<p class="pp-note">{html.escape(frame.message)}</p>
<div class="pp-stage" data-meta="{meta}"></div>
<section class="pp-about"><h2>Run it again</h2>{snippets}</section>
</main>
<script type="application/json" id="stage">{stage}</script>
<script type="module">{_START}</script>
</body>
</html>
"""


_START = """
const scheme = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.body.classList.toggle("dark", scheme.matches);
scheme.addEventListener("change", follow);
follow();
const code = new Blob([document.getElementById("plotly").textContent], { type: "text/javascript" });
document.documentElement.dataset.plotly = URL.createObjectURL(code);
const { mount } = await import("playable/stage.js");
const root = document.querySelector(".pp-stage");
const value = document.getElementById("stage").textContent;
mount(root, { value, send() {} }, JSON.parse(root.dataset.meta)).update(value);
"""


def _paper(card: Card) -> str:
    return f'{html.escape(card.paper.authors)}: <a href="{html.escape(card.paper.url)}">{html.escape(card.paper.title)}</a>, {html.escape(card.paper.venue)}'


def _data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@cache
def _stylesheet() -> str:
    def inlined(match: re.Match[str]) -> str:
        return _data_url("image/svg+xml", (STATIC / "icons" / match[1]).read_bytes())

    text = "\n".join((STATIC / "css" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES if name != "gradio")
    return re.sub(r"\.\./icons/([a-z-]+\.svg)", inlined, text)


@cache
def _import_map() -> str:
    """The lab's modules as data addresses: a page on disk cannot import its neighbours."""
    modules = {}
    for path in sorted((STATIC / "js").rglob("*.js")):
        place = path.relative_to(STATIC / "js").as_posix()
        here = "playable/" + place.rpartition("/")[0] + "/" * ("/" in place)

        def absolute(match: re.Match[str], here: str = here) -> str:
            return match[1] + ("playable/" if match[2] == ".." else here)

        source = re.sub(r"((?:from |import\()[\"`])(\.{1,2})/", absolute, path.read_text(encoding="utf-8"))
        modules[f"playable/{place}"] = _data_url("text/javascript", source.encode())
    return orjson.dumps({"imports": modules}).decode()


# ------------------------------------------------------------------------------------------------------ the table


def csv_text(frame: Frame) -> str:
    """Metrics and all one-dimensional arrays as one tidy table: group, name, index, value.

    Texts that a spreadsheet would take for a formula begin with a quote.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("group", "name", "index", "value"))
    writer.writerows(("metrics", name, "", _cell(value)) for name, value in frame.metrics.items())
    for group, name, index, value in _entries("data", frame.data):
        writer.writerow((_cell(group), _cell(name), index, _cell(value)))
    return out.getvalue()


def _entries(group: str, data: Mapping[str, Any]) -> Iterator[tuple[str, str, int | str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _entries(name if group == "data" else f"{group}.{name}", value)
        elif isinstance(value, list | tuple | np.ndarray):
            plain = value.tolist() if isinstance(value, np.ndarray) else value
            for i, item in enumerate(plain):
                if isinstance(item, Mapping):  # a small table: one entry a cell
                    yield from ((f"{group}.{name}", column, i, cell) for column, cell in item.items())
                elif not isinstance(item, list | tuple):
                    yield group, name, i, item
        else:
            yield group, name, "", value


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value


# --------------------------------------------------------------------------------------------------- the notebook


def notebook(slug: str, params: Params, frame: Frame) -> dict[str, Any]:
    """A Jupyter notebook (format 4.5) that runs these params by ``backends`` and draws the pictures."""
    card = registry.get(slug).card
    made = frame.data.get("made_by", {})
    intro = f"# {card.title}\n\n{card.aha}\n\n{card.paper.authors}: [{card.paper.title}]({card.paper.url}), {card.paper.venue}\n\n"
    intro += f"What ran: {', '.join(str(v) for v in made.values())}.\n\n" if made else ""
    intro += "Run it from the project's folder, in the environment that `make setup` made."
    if params.uploads():
        intro += " It reads " + ", ".join(f"`{u.name}`" for u in params.uploads().values()) + ": put the file beside it."
    draw = f"""import plotly.graph_objects as go

from app.export import to_plotly
from app.pages import load
from app.plotting import Figure

for view in load({slug!r}).views(frame, params):
    if isinstance(view, Figure):
        go.Figure(to_plotly(view)).show()"""
    cells = [_notebook_cell("markdown", "about", intro), _notebook_cell("code", "run", python_snippet(slug, params)), _notebook_cell("code", "draw", draw)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}


def _notebook_cell(kind: str, name: str, text: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": name, "metadata": {}, "source": text.rstrip("\n").splitlines(keepends=True)}
    return cell if kind == "markdown" else cell | {"outputs": [], "execution_count": None}


def to_plotly(view: Figure, colours: Mapping[str, str] = PRINT_COLOURS) -> dict[str, Any]:
    """The figure as plotly takes it in Python: its title inside, colour tokens replaced; typed arrays stay."""
    figure: dict[str, Any] = _coloured(view_json(view)["figure"], colours)
    axes = {name: {"gridcolor": colours["grid"], **value} for name, value in figure["layout"].items() if re.fullmatch(r"[xy]axis\d*", name)}
    size = {} if view.height is None else {"height": view.height + 40}
    margin = {**figure["layout"].get("margin", {}), "t": figure["layout"].get("margin", {}).get("t", 16) + 40}
    figure["layout"] |= {**axes, **size, "margin": margin, "title": {"text": view.title}, "paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}
    return figure


def _coloured(value: Any, colours: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _colour(value, colours) if value.startswith("$") else value
    if isinstance(value, dict):
        return value if "bdata" in value else {k: _coloured(v, colours) for k, v in value.items()}
    return [_coloured(v, colours) for v in value] if isinstance(value, list) else value


def _colour(token: str, colours: Mapping[str, str]) -> str:
    name, _, opacity = token[1:].partition("/")
    colour = hue(name.removeprefix("theme-")) if name.startswith("theme-") else colours.get(name)
    if colour is None or not opacity:
        return colour or token
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
