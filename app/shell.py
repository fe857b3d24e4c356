"""The frame around the methods: header, home with the gallery, one page a theme, about."""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import urlencode

import gradio as gr

from app import preview, share
from app.assets import static_url, tags
from app.blocks import LabBlocks
from app.tools import make_tool, tool_name
from app.workbench import PRIVATE, Workbench
from backends import registry
from backends.registry import THEMES, Registered
from backends.runner import Runner

MAX_THREADS = 400  # Gradio's default of 40 also bounds active events: visitor 41 would wait for the end
QUEUE_SIZE = 500
SESSIONS_KEPT = 300
TURN = "document.body.classList.toggle('dark'); this.dataset.turned = 1"  # static/js/page.js keeps the choice once it is there
_text = html.escape


def theme_path(theme: str) -> str:
    """The page of a theme. ``/code`` and the like are free; Gradio takes only names of its own."""
    return f"/{theme}"


def header(current: str | None = None) -> str:
    """The top of every page: brand, links to the themes that have methods, switch of light and dark."""
    title = " · ".join([*([THEMES.get(current, current.capitalize())] if current else []), "Playable Papers"])
    here = {current: " aria-current='page'"}
    links = "".join(f"<a href='{theme_path(theme)}' data-theme='{theme}'{here.get(theme, '')}>{_text(THEMES[theme])}</a>" for theme in registry.by_theme())
    return (
        "<a class='pp-skip' href='#pp-content'>Skip to the content</a>"
        f"<header class='pp-head' data-title='{_text(title)}'>"
        f"<a class='pp-brand' href='/'><img src='{static_url('icons/logo.svg')}' alt='' width='28' height='28'>Playable Papers</a>"
        f"<nav class='pp-nav' aria-label='Themes'>{links}<a href='/about'{here.get('about', '')}>About</a></nav>"
        f"<button class='pp-icon-button' type='button' data-theme-toggle onclick=\"{TURN}\" aria-label='Switch between light and dark'>"
        "<span class='pp-icon pp-icon-theme' aria-hidden='true'></span></button></header><div id='pp-content'></div>"
    )


def gallery() -> str:
    """The registered methods by theme, with a search."""
    groups = []
    for theme, methods in registry.by_theme().items():
        cards = "".join(_card(m) for m in methods)
        groups.append(f"<section class='pp-group' data-theme='{theme}'><h2>{_text(THEMES[theme])}</h2><div class='pp-cards'>{cards}</div></section>")
    return (
        f"<main class='pp-home'><h1 class='pp-lead'>{preview.SENTENCE}</h1>"
        f"<input type='search' placeholder='Search methods' aria-label='Search methods'>{''.join(groups)}"
        "<p class='pp-none'>No method has these words.</p></main>"
    )


def _card(method: Registered) -> str:
    card = method.card
    words = _text(f"{card.slug} {card.paper.title} {card.paper.authors}")
    return (
        f"<a class='pp-card' href='/m/{card.slug}' data-theme='{card.theme}' data-words='{words}'>"
        f"<img src='/thumbnails/{card.slug}.svg' alt='' width='320' height='180' loading='lazy'><h3>{_text(card.title)}</h3><p>{_text(card.aha)}</p></a>"
    )


def about() -> str:
    """What the lab is, what it promises, and how to run it at home."""
    return (
        "<main class='pp-about'><h1>About</h1>"
        "<p>Playable Papers runs methods of recent machine-learning papers live. Every figure on these pages was computed here by the method itself; "
        "a stored run always says when and where it was computed, and what had to be reconstructed from a paper is named on the method's page.</p>"
        "<p>Everything a page does is also one HTTP and MCP call and one command: <code>playable run METHOD</code>. "
        f"There are {len(registry.methods())} methods now.</p>"
        "<p>Files that you choose stay on this server's memory for at most an hour, are seen by nobody else and are never part of a link. "
        "Pages load nothing from other hosts and count no visits.</p>"
        "<p><a href='/gradio_api/openapi.json'>OpenAPI</a>, MCP at <code>/gradio_api/mcp/</code>, health at <a href='/healthz'>/healthz</a>.</p></main>"
    )


def footer() -> str:
    return "<footer class='pp-footer'>Playable Papers. Real algorithms, real data, nothing canned.</footer>"


def _html(text: str, **options: Any) -> gr.HTML:
    return gr.HTML(text, apply_default_css=False, js_on_load=None, **options)  # Gradio's running-text style fits no part of ours


def _header(current: str | None = None) -> gr.HTML:
    return _html(header(current), head=tags())  # pages without a method need the switch of light and dark too


def build(runner: Runner) -> gr.Blocks:
    """The whole Gradio application, not yet mounted."""
    with LabBlocks(title="Playable Papers", analytics_enabled=False, fill_width=True) as demo:
        gr.Navbar(visible=False)
        _header()
        _html(gallery())
        _html(footer())
        for method in registry.methods().values():
            gr.api(make_tool(method, runner), api_name=tool_name(method), concurrency_limit=None)
    for theme, methods in registry.by_theme().items():
        with demo.route(THEMES[theme], theme_path(theme), show_in_navbar=False):
            _theme_page(demo, theme, methods, runner)
    with demo.route("About", "/about", show_in_navbar=False):
        gr.Navbar(visible=False)
        _header("about")
        _html(about())
        _html(footer())
    demo.keep_configs()
    demo.max_threads = MAX_THREADS
    demo.state_session_capacity = SESSIONS_KEPT
    demo.queue(max_size=QUEUE_SIZE, default_concurrency_limit=None)
    return demo


def _theme_page(demo: gr.Blocks, theme: str, methods: list[Registered], runner: Runner) -> None:
    gr.Navbar(visible=False)
    _header(theme)
    benches = [Workbench(m, runner) for m in methods]
    with gr.Tabs(elem_classes=["pp-tabs"], elem_id=f"theme-{theme}"):
        for bench in benches:
            with gr.Tab(bench.card.title, id=bench.slug, elem_id=f"tab-{bench.slug}"):
                bench.build()
    _html(footer())

    def restore(request: gr.Request) -> list[Any]:
        return restored(benches, dict(request.query_params))

    outputs = [c for b in benches for c in (*(x for control in b.controls for x in control.components), b.bar)]
    demo.load(restore, None, outputs, queue=False, **PRIVATE)


def restored(benches: list[Workbench], pairs: dict[str, str]) -> list[Any]:
    """The updates that show what a link says: the method's controls (hidden or held for a hand-out), and notes."""
    out: list[Any] = []
    for bench in benches:
        number = sum(len(c.components) for c in bench.controls)
        if bench.slug != pairs.get("_m"):
            out += [gr.skip()] * (number + 1)
            continue
        shared = share.read(bench.method, pairs)
        for control in bench.controls:
            for component, value in zip(control.components, control.write(getattr(shared.params, control.field)), strict=True):
                out.append(_held(component, value, hide=control.field in shared.hide, pin=control.field in shared.pin))
        out.append(bench.idle(shared))  # tells the bar that the controls now show what the address says
    return out


def _held(component: Any, value: Any, *, hide: bool, pin: bool) -> Any:
    changes: dict[str, Any] = {"value": value}
    if hide:
        changes["visible"] = "hidden"
    if pin:
        changes |= {"elem_classes": [*component.elem_classes, "pp-pinned"]} | ({} if isinstance(component, gr.HTML) else {"interactive": False})
    return gr.update(**changes)


def page_address(slug: str, query: str) -> str:
    """Where ``/m/<slug>?query`` leads: the theme's page with the method named."""
    method = registry.get(slug)
    return f"{theme_path(method.card.theme)}?{urlencode({'_m': slug})}" + (f"&{query}" if query else "")
