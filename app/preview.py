"""What a chat or a search engine shows of a link to the lab: the method's title and idea, not Gradio's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gradio.routes
from jinja2 import ChoiceLoader, FunctionLoader

from app.assets import static_url
from backends import registry
from backends.contract import InputError

PAGE = "frontend/index.html"
SENTENCE = "Turn a control, watch the real algorithm of a new paper run, take the run home."
_OTHERS = re.compile(r'<meta\s+(?:property="og:|name="twitter:)[^>]*>')
_TAGS = """<meta name="description" content="{{ config['simple_description'] }}" />
<meta property="og:type" content="website" />
<meta property="og:site_name" content="Playable Papers" />
<meta property="og:title" content="{{ config['title'] }}" />
<meta property="og:description" content="{{ config['simple_description'] }}" />
<meta property="og:image" content="{{ config['root'] }}{{ config['thumbnail'] }}" />
<meta name="twitter:card" content="summary_large_image" />
</head>"""


def install() -> None:
    """Puts the lab's tags into Gradio's page template, which names Gradio and its own picture in fixed text."""
    environment = gradio.routes.templates.env
    if environment.loader is not None and not isinstance(environment.loader, ChoiceLoader):
        environment.loader = ChoiceLoader([FunctionLoader(_page), environment.loader])


def said_of(slug: str | None) -> Mapping[str, Any]:
    """The words and the picture for the page's configuration, under the names that Gradio reads."""
    picture = {"thumbnail": static_url("readme.png")}
    try:
        card = registry.get(slug).card if slug else None
    except InputError:
        card = None
    if card is None:
        return {"title": "Playable Papers", "simple_description": SENTENCE, **picture}
    return {"title": f"{card.title} · Playable Papers", "simple_description": card.aha, **picture}


@cache
def _page(name: str) -> str | None:
    if name != PAGE:
        return None
    text = (Path(gradio.routes.STATIC_TEMPLATE_LIB) / PAGE).read_text(encoding="utf-8")
    return _OTHERS.sub("", text).replace("</head>", _TAGS, 1)
