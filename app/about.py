"""The texts of the drawer (how it works, exercise, claims, code, data) as HTML fragments, and the code snippets.

Everything that a person typed passes through ``html.escape`` or the quoting of its language.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from app.render import claim_params
from app.tools import tool_name
from backends import registry
from backends.contract import Card, InputError, Params, Upload
from backends.store import StoredRun

Tab = Literal["how", "exercise", "claims", "code", "data"]
TABS: Mapping[str, str] = {"how": "How it works", "exercise": "Exercise", "claims": "Claims", "code": "Code", "data": "Data"}
Lookup = Callable[[Params], StoredRun | None]  # the stored run of params, never a new one
DOWNLOADS = {
    "json": "the last frame, whole: metrics and every array",
    "csv": "metrics and arrays as one tidy table",
    "html": "this page as one file that opens without a network",
    "ipynb": "a notebook that runs the method again and draws its pictures",
}
LOCAL = "http://localhost:7860"


def fragment(slug: str, tab: str, params: Params, stored: Lookup, base: str = LOCAL) -> str:
    """The HTML of one tab for these params.

    stored: looks up the stored run of any params (claims and downloads need it). base: the lab's address, for the
    snippets. Raises InputError for an unknown method or tab.
    """
    card = registry.get(slug).card
    if tab == "how":
        return _how(card)
    if tab == "exercise":
        return _exercise(card)
    if tab == "claims":
        return _claims(card, stored)
    if tab == "code":
        return _code(slug, params, base)
    if tab == "data":
        return _data(stored(params))
    raise InputError("tab", f"there is no text {tab[:40]!r}", "choose one of " + ", ".join(TABS))


# ------------------------------------------------------------------------------------------- Markdown with formulas


@cache
def _markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "typographer": False}).enable("table")
    parser.inline.ruler.before("escape", "math", _math_rule)  # before "escape": a formula keeps its backslashes
    parser.add_render_rule("math", _math_html)
    return parser


def _math_rule(state: StateInline, silent: bool) -> bool:
    found = re.compile(r"\$\$(.+?)\$\$|\$(?![\s$])([^$]+?)(?<!\s)\$(?!\d)", re.DOTALL).match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        token = state.push("math", "math", 0)
        token.content, token.meta = (found[1] or found[2]).strip(), {"display": found[1] is not None}
    state.pos = found.end()
    return True


def _math_html(_: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    return convert(token.content, display="block" if token.meta["display"] else "inline")


def markdown(text: str) -> str:
    """CommonMark with tables to HTML; raw HTML is shown as text, ``$...$`` and ``$$...$$`` become MathML.

    >>> markdown("a <b>")
    '<p>a &lt;b&gt;</p>\\n'
    """
    return str(_markdown().render(text))


# ------------------------------------------------------------------------------------------------------- the tabs


def _how(card: Card) -> str:
    paper = card.paper
    link = f'<a href="{html.escape(paper.url)}" target="_blank" rel="noreferrer">{html.escape(paper.title)}</a>'
    needs = f"<h3>What it needs</h3><ul>{''.join(f'<li>{html.escape(n)}</li>' for n in card.needs)}</ul>" if card.needs else ""
    return (
        f"{markdown(card.how)}{needs}<h3>What is reconstructed</h3>{markdown(card.reconstructed)}"
        f"<h3>Paper</h3><p>{html.escape(paper.authors)}: {link}, {html.escape(paper.venue)}</p>"
    )


def _exercise(card: Card) -> str:
    def step(number: int, preset_name: str, question: str, answer: str) -> str:
        preset = card.preset(preset_name)
        button = f'<button type="button" data-preset="{html.escape(preset.name)}">{html.escape(preset.title)}</button>'
        seconds = f'<span class="pp-note">about {preset.seconds:g} s</span>'
        folded = f"<details><summary>Answer {number}</summary>{markdown(answer)}</details>"
        return f"<li>{markdown(question)}<p>{button} {seconds}</p>{folded}</li>"

    return "<ol>" + "".join(step(i, s.preset, s.question, s.answer) for i, s in enumerate(card.exercise, 1)) + "</ol>"


def _claims(card: Card, stored: Lookup) -> str:
    method = registry.get(card.slug)
    rows = []
    for claim in card.claims:
        run = stored(claim_params(card, method.Params, claim.name))
        here = None if run is None else run.frames[-1].metrics.get(claim.metric)
        cells = [html.escape(claim.text), f"{claim.value:g}", html.escape(claim.setting), html.escape(claim.source)]
        if run is not None and isinstance(here, int | float):
            difference = float(here) - claim.value
            within = "within" if abs(difference) <= claim.tolerance else "outside"
            cells += [f'<span title="{html.escape(run.made.stamp())}">{here:.4g}</span>', f"{difference:+.3g}, {within} {claim.tolerance:g}"]
        else:
            cells += ["not measured yet" if run is None else "not defined", f"tolerance {claim.tolerance:g}"]
        cells.append(f'<button type="button" data-claim="{html.escape(claim.name)}">measure now</button>')
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Claim", "Stated", "Setting", "Source", "Measured here", "Difference", ""))
    return f'<div class="pp-scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _code(slug: str, params: Params, base: str) -> str:
    parts = (
        ("Python", python_snippet(slug, params)),
        ("Command line", cli_snippet(slug, params)),
        ("HTTP", curl_snippet(slug, params, base)),
        ("Python client", client_snippet(slug, params, base)),
    )
    blocks = "".join(f"<h3>{title}</h3><pre><code>{html.escape(text)}</code></pre>" for title, text in parts)
    return f'<p class="pp-note">The same run, four ways: exactly the controls as they stand, defaults left out.</p>{blocks}'


def _data(run: StoredRun | None) -> str:
    if run is None:
        return '<p class="pp-note">These settings have no stored run yet: press Run, then take it home from here.</p>'
    links = "".join(f'<li><a href="/runs/{run.run}.{kind}" download>{kind.upper()}</a>: {what}</li>' for kind, what in DOWNLOADS.items())
    pictures = '<p class="pp-note">Each picture saves itself as PNG or SVG from its own menu.</p>'
    return f'<p class="pp-note">The run {html.escape(run.made.stamp())}.</p><ul>{links}</ul>{pictures}'


# --------------------------------------------------------------------------------------------------- the snippets


def differing(params: Params) -> dict[str, Any]:
    """The plain values that differ from the model's defaults; an upload stays an Upload.

    >>> differing(Params(seed=3))
    {'seed': 3}
    """
    model, plain = type(params), params.model_dump(mode="json")
    changed = [name for name, field in model.model_fields.items() if getattr(params, name) != field.get_default(call_default_factory=True)]
    return {name: getattr(params, name) if isinstance(getattr(params, name), Upload) else plain[name] for name in changed}


def python_snippet(slug: str, params: Params) -> str:
    """A script that runs these params by ``backends``; ``frame`` is the last frame."""
    values = differing(params)
    has_file = any(isinstance(v, Upload) for v in values.values())
    written = "".join(f"    {name!r}: {_python_value(value)},\n" for name, value in values.items())
    given = f"{{\n{written}}}" if values else "{}"
    imports = "from pathlib import Path\n\n" if has_file else ""
    upload = ", Upload" if has_file else ""
    return f"""{imports}from backends.runtime import threads

threads.configure()  # as in the lab: one compute thread a run

from backends.contract import ContextSpec{upload}
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

method = get({slug!r})
params = validate(method.Params, {given})
*_, frame = method.run(params, RunContext(ContextSpec(seed=params.seed)))
print(dict(frame.metrics))
"""


def _python_value(value: Any) -> str:
    return f"Upload.of({value.name!r}, Path({value.name!r}).read_bytes())" if isinstance(value, Upload) else repr(value)


def cli_snippet(slug: str, params: Params) -> str:
    """The command that runs these params; a file is named as it was uploaded."""
    settings = [f"--set {shlex.quote(f'{name}={_cli_value(value)}')}" for name, value in differing(params).items()]
    return " \\\n  ".join([f"playable run {slug}", *settings]) + "\n"


def _cli_value(value: Any) -> str:
    if isinstance(value, Upload):
        return "@" + value.name
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)  # a text that looks like JSON ("1", "true") would be read as such


def curl_snippet(slug: str, params: Params, base: str = LOCAL) -> str:
    """Two curl calls: the first starts the run, the second streams its frames until the end."""
    url = shlex.quote(f"{base}/gradio_api/call/v2/{tool_name(registry.get(slug))}")
    values = differing(params)
    files = {f"@@{name}@@": value.name for name, value in values.items() if isinstance(value, Upload)}
    plain = {name: {"name": v.name, "base64": f"@@{name}@@"} if isinstance(v, Upload) else v for name, v in values.items()}
    body = shlex.quote(json.dumps(plain))
    for mark, name in files.items():  # the quotes end where the shell puts in the file's content, and begin again
        body = body.replace(mark, f"'\"$(base64 < {shlex.quote('./' + name)} | tr -d '\\n')\"'")
    pick = """sed 's/.*"event_id": *"\\([^"]*\\)".*/\\1/'"""
    return f"ID=$(curl -s {url} \\\n  -H 'Content-Type: application/json' \\\n  -d {body} | {pick})\ncurl -sN {url}/$ID\n"


def client_snippet(slug: str, params: Params, base: str = LOCAL) -> str:
    """A script that runs these params on a served lab by gradio_client."""
    values = differing(params)
    has_file = any(isinstance(v, Upload) for v in values.values())
    imports = "from base64 import b64encode\nfrom pathlib import Path\n\n" if has_file else ""
    given = "".join(f"    {name}={_client_value(value)},\n" for name, value in values.items())
    return f"""{imports}from gradio_client import Client

client = Client({base!r})
result = client.predict(
{given}    api_name={"/" + tool_name(registry.get(slug))!r},
)
print(result["metrics"])
"""


def _client_value(value: Any) -> str:
    if isinstance(value, Upload):
        return f'{{"name": {value.name!r}, "base64": b64encode(Path({value.name!r}).read_bytes()).decode()}}'
    return repr(value)
